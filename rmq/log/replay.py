"""The records that a start replays: everything behind the newest snapshot that changes a table."""

from collections.abc import Iterator

from rmq.errors import StoreError
from rmq.log.files.epochs import pieces
from rmq.log.files.segment import BadEntry, Records
from rmq.log.records import columns
from rmq.log.records.pending import is_pending_change, may_be_pending_change, names_pending_change
from rmq.log.records.record import Record, decode
from rmq.log.store import Store
from rmq.model import STATE_TOPIC


def replay(store: Store) -> Iterator[Record]:
    """The dispatched state records, those of pending messages and those handed on, in log order.

    Passes over records that Apache RocketMQ wrote: its adoption has said which of them count. Of a damaged log only state
    records: nothing is handed on there. Raises StoreError.
    """
    if store.log.damages:
        yield from store.state_records()
        return
    newest = store.snapshots.newest
    try:
        begin = max(store.log.start, newest.s0 if newest else 0)
        for from_, to, ours in pieces(store.epochs, begin, store.dispatcher.position):
            for some in store.log.records(from_, to) if ours else ():
                for at in _candidates(some):
                    found = decode(some.buf, at)
                    if found.topic == STATE_TOPIC or is_pending_change(found):
                        yield found
    except (BadEntry, OSError) as error:
        raise StoreError(f"the log cannot be read at a start: {error}; run `rmq store repair`") from error


def _candidates(some: Records) -> list[int]:
    """Where in the buffer the records are that may count: mostly none, so topics and properties of all are looked at together."""
    block, _ = columns.layout(some.buf, some.at)
    spans = zip(block.topic.tolist(), block.end.tolist(), strict=True)
    if not names_pending_change(b"".join([some.buf[start:stop] for start, stop in spans])):
        return []
    return [place.at for place in some.each() if may_be_pending_change(place.buf, place.at, place.size)]
