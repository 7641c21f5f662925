"""Which of the messages that were read an SQL92 expression wants, in steps that do not hold the loop.

What a step may take is counted, not timed: in units of about a microsecond (`Sql.cost_of`).
"""

from typing import Final

from rmq.delivery.sql import Sql
from rmq.log.queues.consumequeue import MatchingEntries
from rmq.log.records.peek import properties_of
from rmq.log.records.properties import bytes_to_properties

SIFTED_BYTES: Final = 512 * 1024  # of messages that one step looks at, at most; the first one always
STEP_COST: Final = 5_000


def sifted(found: MatchingEntries, messages: bytes, sql: Sql, count: int, max_bytes: int) -> tuple[MatchingEntries, bytes]:
    """The matching ones of these messages (records back to back, from `found.spans` of the log), up to `count` and `max_bytes`.

    Messages behind the last examined one are left for the next step; one is always examined, and the first match always returned.
    """
    spans: list[tuple[int, int]] = []
    kept: list[bytes] = []
    at, left, room = 0, STEP_COST, max_bytes
    for examined, span in enumerate(found.spans):
        record = messages[at : at + span[1]]
        properties = properties_of(record)
        left -= sql.cost_of(len(properties))
        full = len(spans) == count or (spans and room < span[1])
        if full or (left < 0 and examined):
            return MatchingEntries(int.from_bytes(record[20:28], "big"), spans, examined), b"".join(kept)
        if sql.matches(bytes_to_properties(properties)):
            spans.append(span)
            kept.append(record)
            room -= span[1]
        at += span[1]
    return MatchingEntries(found.next_offset, spans, found.examined), b"".join(kept)
