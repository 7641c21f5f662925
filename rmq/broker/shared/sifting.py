"""Which of the messages that were read an SQL92 expression wants, in steps that do not hold the loop.

What a step may take is counted, not timed: in units of about a microsecond (`Sql.cost_of`).
"""

from functools import lru_cache
from typing import Final

from rmq.delivery.sql import Sql
from rmq.log.queues.consumequeue import MatchingEntries
from rmq.log.records.peek import properties_of
from rmq.log.records.properties import bytes_to_properties

SIFTED_BYTES: Final = 512 * 1024  # of messages that one step looks at, at most; the first one always
STEP_COST: Final = 5_000
KNOWN_COST: Final = 2  # of a message with values that were met before
MAX_NAMES: Final = 8  # of an expression whose findings are remembered
MAX_VALUE: Final = 64  # bytes of a value that is remembered
MAX_PROPERTIES: Final = 2048  # bytes in which values are looked for one by one
MAX_KNOWN: Final = 1024  # findings of one expression
KEPT: Final = 16  # expressions whose findings are remembered: 18 MB at most

Values = tuple[bytes | None, ...]


class Judge:
    """Says which messages an expression wants. The values of the properties that it names decide, and nothing else; so what was
    found for them is remembered, and most messages are neither split nor compared."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._marks = [f"\x02{name}\x01".encode() for name in sql.names]
        self._known: dict[Values, bool] = {}

    def known(self, properties: bytes) -> tuple[bool | None, Values | None]:
        """What was found for messages with such values, if they came before; and the values, if they are to be remembered."""
        if len(self._marks) > MAX_NAMES or len(properties) > MAX_PROPERTIES:
            return None, None
        values: list[bytes | None] = []
        text = b"\x02" + properties
        for mark in self._marks:
            at = text.rfind(mark)  # the last of two equal names wins
            if at < 0:
                values.append(None)
                continue
            at += len(mark)
            end = text.find(b"\x02", at)
            value = text[at:end] if end >= 0 else text[at:]
            if not 0 < len(value) <= MAX_VALUE:  # an empty one does not count
                return None, None
            values.append(value)
        key = tuple(values)
        return self._known.get(key), key

    def judge(self, properties: bytes, values: Values | None) -> bool:
        found = self._sql.matches(bytes_to_properties(properties))
        if values is not None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[values] = found
        return found


judge_of = lru_cache(maxsize=KEPT)(Judge)


def sifted(found: MatchingEntries, messages: bytes, sql: Sql, count: int, max_bytes: int) -> tuple[MatchingEntries, bytes]:
    """The matching ones of these messages (records back to back, from `found.spans` of the log), up to `count` and `max_bytes`.

    Messages behind the last examined one are left for the next step; one is always examined, and the first match always returned.
    """
    spans: list[tuple[int, int]] = []
    kept: list[bytes] = []
    judge = judge_of(sql)
    at, left, room = 0, STEP_COST, max_bytes
    for examined, span in enumerate(found.spans):
        record = messages[at : at + span[1]]
        properties = properties_of(record)
        wanted, values = judge.known(properties)
        left -= KNOWN_COST if wanted is not None else sql.cost_of(len(properties))
        full = len(spans) == count or (spans and room < span[1])
        if full or (left < 0 and examined):
            return MatchingEntries(int.from_bytes(record[20:28], "big"), spans, examined), b"".join(kept)
        if judge.judge(properties, values) if wanted is None else wanted:
            spans.append(span)
            kept.append(record)
            room -= span[1]
        at += span[1]
    return MatchingEntries(found.next_offset, spans, found.examined), b"".join(kept)
