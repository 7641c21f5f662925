"""Rates of brokers and topics over the last 30 days, in one SQLite file. Counts come in, rates go out; it knows no cluster."""

import sqlite3
import threading
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rmq.errors import InvalidArgument, StoreError

KEPT_MS = 30 * 86_400_000
_MOST = 1 << 47  # messages between two counts: what grows more is no count, and SQLite adds up those of 30 days in 63 bits
_SCHEMA = """
create table if not exists rates (kind text, name text, at_ms integer, per_second real, messages integer,
    primary key (kind, name, at_ms)) without rowid;
create index if not exists rates_by_time on rates (at_ms);
"""
_TOP = """
select name, sum(messages) as n from rates where kind = ? and at_ms between ? and ? and ? in ('', name)
group by name having n > 0 order by n desc, name limit 10
"""


class Point(NamedTuple):
    at_ms: int
    per_second: float


class History:
    """Takes counts. A rate is the growth of a count since the one before, per second."""

    def __init__(self, directory: Path) -> None:
        """Raises InvalidArgument if the directory cannot hold the file."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = directory / "history.sqlite"
            self._base = sqlite3.connect(self._file, check_same_thread=False)
            self._base.executescript(f"pragma journal_mode=wal; pragma synchronous=normal; {_SCHEMA}")
        except (OSError, sqlite3.Error) as error:
            raise InvalidArgument(f"no history can be kept in {directory}: {error}; choose another place with --data") from error
        self._turn = threading.Lock()  # pages read in threads while the next minute is written
        self._last: dict[tuple[str, ...], tuple[int, int]] = {}  # by kind, name, and perhaps place

    def count(self, kind: str, counts: Iterable[tuple[str, int] | tuple[str, int, str]], at_ms: int, forget: bool = True) -> None:
        """`counts`: total numbers of messages by name, or by name and place: what grew at each is added up, so one that was away
        brings nothing but that. A number that fell has begun at 0 again. `forget`: older days go. Raises StoreError if the file
        does not take it."""
        grown: dict[str, tuple[float, int]] = {}
        for name, number, *place in counts:
            before_ms, before = self._last.get((kind, name, *place), (0, 0))
            self._last[kind, name, *place] = (at_ms, number)
            if 0 < before_ms < at_ms and 0 <= number - before <= _MOST:
                per_second, messages = grown.get(name, (0.0, 0))
                grown[name] = per_second + (number - before) * 1000 / (at_ms - before_ms), messages + number - before
        rows = [(kind, name, at_ms, *rate) for name, rate in grown.items()]
        try:
            with self._turn, self._base:
                self._base.executemany("insert or replace into rates values (?, ?, ?, ?, ?)", rows)
                if forget:
                    self._base.execute("delete from rates where at_ms < ?", (at_ms - KEPT_MS,))
        except sqlite3.Error as error:
            raise StoreError(f"{self._file}: {error}") from error

    def keep(self, kind: str, names: Container[str]) -> None:
        """Others of that kind are gone: if one comes again, its count begins anew. What was counted stays."""
        for key in [key for key in self._last if key[0] == kind and key[1] not in names]:
            del self._last[key]

    def top(self, kind: str, begin_ms: int, end_ms: int, only: str = "") -> list[tuple[str, int]]:
        """The ten names with the most messages in that time, and how many. `only`: that name and no other."""
        return [(str(name), int(number)) for name, number in self._rows(_TOP, kind, begin_ms, end_ms - 1, only)]

    def line(self, kind: str, name: str, begin_ms: int, end_ms: int) -> list[Point]:
        asked = "select at_ms, per_second from rates where kind = ? and name = ? and at_ms between ? and ? order by at_ms"
        return [Point(*row) for row in self._rows(asked, kind, name, begin_ms, end_ms - 1)]

    def _rows(self, asked: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Raises InvalidArgument if the file cannot be read."""
        try:
            with self._turn:
                return self._base.execute(asked, values).fetchall()
        except sqlite3.Error as error:
            about = "restart the dashboard without it, or with another --data"
            raise InvalidArgument(f"{self._file} cannot be read: {error}; {about}") from error

    def close(self) -> None:
        self._base.close()
