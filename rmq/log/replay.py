"""The records that a start replays: everything behind the newest snapshot that changes a table."""

from collections.abc import Iterator

from rmq.errors import StoreError
from rmq.log.files.epochs import pieces
from rmq.log.files.segment import BadEntry
from rmq.log.records.pending import is_pending_change, may_be_pending_change
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
            for place in store.log.places(from_, to) if ours else ():
                if may_be_pending_change(place.buf, place.at, place.size):
                    found = decode(place.buf, place.at)
                    if found.topic == STATE_TOPIC or is_pending_change(found):
                        yield found
    except (BadEntry, OSError) as error:
        raise StoreError(f"the log cannot be read at a start: {error}; run `rmq store repair`") from error
