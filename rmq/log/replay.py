"""What a start reads of the log again: everything behind the newest snapshot that changes a table."""

from collections.abc import Iterator

from rmq.errors import StoreError
from rmq.log import epochs
from rmq.log.record import Record, decode
from rmq.log.segment import BadEntry
from rmq.log.special import is_special, may_be_special
from rmq.log.store import Store
from rmq.model import STATE_TOPIC


def replay(store: Store) -> Iterator[Record]:
    """The dispatched state records, those of held messages and those handed on, in log order.

    What Apache RocketMQ wrote of held messages is known from its adoption. Of a damaged log state records only: nothing is
    handed on there. Raises StoreError.
    """
    log, newest = store.log, store.snapshots.newest
    if log.damages:
        yield from store.state_records()
        return
    try:
        for place in log.places(max(log.start, newest.s0 if newest else 0), store.dispatcher.position):
            if may_be_special(place.buf, place.at, place.size):
                found = decode(place.buf, place.at)
                if found.topic == STATE_TOPIC or (is_special(found) and not epochs.is_foreign(log.rows, place.offset)):
                    yield found
    except (BadEntry, OSError) as error:
        raise StoreError(f"the log cannot be read at a start: {error}; run `rmq store repair`") from error
