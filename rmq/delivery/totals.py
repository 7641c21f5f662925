"""How many messages a broker group ever took and handed out, and what that was when today and yesterday began. Pure.

The leader counts, and writes one row now and then: so the counts outlive restarts and changes of leader. What was stored after
the last row is counted again from the queues; what was handed out after it is lost with a leader that dies.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rmq.staged import Versioned

KEY = "all"


class Totals(NamedTuple):
    """`day`: a number that rises by one at each midnight. `ends`: the sum of the ends of all queues of users when this was
    written. The field order is that of the state record."""

    day: int = 0
    put: int = 0
    put_today: int = 0
    put_yesterday: int = 0
    got: int = 0
    got_today: int = 0
    got_yesterday: int = 0
    ends: int = 0

    def after(self, put: int, got: int, ends: int) -> "Totals":
        """So many more."""
        return self._replace(put=self.put + put, got=self.got + got, ends=ends)

    def on(self, day: int) -> "Totals":
        """The same on that day: `..._today` is what stood there when it began, `..._yesterday` when the day before began. Before
        the first row of all nothing is known, so today begins with nothing."""
        if day <= self.day:
            return self
        was_yesterday = day == self.day + 1
        return self._replace(
            day=day,
            put_yesterday=self.put_today if was_yesterday else self.put,
            got_yesterday=self.got_today if was_yesterday else self.got,
            put_today=self.put,
            got_today=self.got,
        )


class TotalsTable(Versioned):
    """One row, as the leader wrote it last."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Totals] = {}

    @property
    def kept(self) -> Totals | None:
        return self._rows.get(KEY)

    def apply(self, key: str, value: Sequence[Any] | None, time_ms: int = 0) -> None:
        """A committed state line."""
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = Totals(*value[: len(Totals._fields)])
        self._version = self._version.risen(time_ms)

    def committed(self) -> Mapping[str, Totals]:
        """What a failover keeps."""
        return self._rows
