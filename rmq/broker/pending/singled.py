"""Messages of inner batches one by one, for pops: each has a receipt of its own, and only the wanted ones are handed out."""

from rmq.delivery import filters
from rmq.delivery.filters import Selection
from rmq.log.queues.consumequeue import MatchingEntries
from rmq.log.records import record
from rmq.log.records.innerbatch import singles
from rmq.log.records.properties import tags_code_in


def singled(found: MatchingEntries, messages: bytes, start: int, count: int, wanted: Selection) -> tuple[MatchingEntries, bytes]:
    """The messages from queue offset `start` on that these records hold, at most `count`, each as a record. `spans` say of each
    where its record is in the log, and how long it is here."""
    codes = filters.tag_codes(wanted)
    spans: list[tuple[int, int]] = []
    parts: list[bytes] = []
    for stored in record.iterate(messages):
        for one in singles(stored):
            if one.queue_offset < start or (codes is not None and tags_code_in(one.properties) not in codes):
                continue
            if len(parts) == count:
                return MatchingEntries(one.queue_offset, spans, found.examined), b"".join(parts)
            parts.append(record.encode(one))
            spans.append((one.physical_offset, len(parts[-1])))
    return MatchingEntries(found.next_offset, spans, found.examined), b"".join(parts)
