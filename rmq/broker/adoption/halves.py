"""Which halves are open where Apache RocketMQ wrote, found out from its records when a directory is taken over (docs/storage).

RocketMQ keeps no list: a half is open if its checker has not passed it (the offset of CID_RMQ_SYS_TRANS), no op record names
it, and it was not appended again. Its offset may be some seconds old and its op records may lack the last ones after a kill; so
a half that was put aside, or is in its own topic already, counts as ended too (C11).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rmq.broker.pending.halves import first_of, half_of, real_place
from rmq.broker.shared.state import Line
from rmq.delivery.offsets import OffsetKey
from rmq.delivery.transactions import PARKED_TOPIC, Half, HalfTable, op_queue_offsets
from rmq.errors import BadBytes
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.log.store import Store
from rmq.model import HALF_TOPIC, OP_TOPIC

CHECKER = OffsetKey("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0)


class _StoredHalf(NamedTuple):
    """The newest append of one message: `first` is what its own record says, `place` its topic and queue."""

    half: Half
    first: int
    place: tuple[str, int]


def half_lines(store: Store, offsets: Mapping[OffsetKey, int], table: HalfTable) -> list[Line]:
    """The state lines after which the table holds what is open. `offsets`: as RocketMQ's consumerOffset.json says."""
    known = table.open.rows
    found: dict[int, Half] = {}
    for one in _open(store, offsets.get(CHECKER, 0)):
        row = known.get(one.first)
        if row is None:
            found[one.half.offset] = one.half
        else:
            found[one.first] = row._replace(offset=one.half.offset, queue_offset=one.half.queue_offset, checks=one.half.checks)
    gone: list[Line] = [("half", first, None) for first in sorted(known.keys() - found.keys())]
    return gone + [("half", first, list(half)) for first, half in sorted(found.items()) if known.get(first) != half]


def _open(store: Store, from_queue_offset: int) -> list[_StoredHalf]:
    newest: dict[str, _StoredHalf] = {}
    for stored in store.records(HALF_TOPIC, 0, from_queue_offset):
        try:
            newest[_name(stored)] = _StoredHalf(half_of(stored), first_of(stored), real_place(stored))
        except BadBytes:
            continue  # its topic and queue are unknown
    passed = {queue_offset for stored in store.records(OP_TOPIC, 0) for queue_offset in op_queue_offsets(stored.body)}
    parked = {_name(stored): stored.physical_offset for stored in store.records(PARKED_TOPIC, 0)}
    left = [one for name, one in newest.items() if one.half.queue_offset not in passed and parked.get(name, -1) < one.half.offset]
    delivered = _delivered(store, left)
    return [one for one in left if one.half.offset not in delivered]


def _name(stored: Record) -> str:
    return record.bytes_to_properties(stored.properties).get("UNIQ_KEY") or str(stored.physical_offset)


def _delivered(store: Store, halves: Iterable[_StoredHalf]) -> set[int]:
    """Offsets of halves whose commit is in their own queue though no op record tells of it."""
    lowest: dict[tuple[str, int], int] = {}
    for one in halves:
        lowest[one.place] = min(one.half.offset, lowest.get(one.place, one.half.offset))
    found = set()
    for (topic, queue_id), offset in lowest.items():
        queue = store.queues.find(topic, queue_id)
        for stored in store.records(topic, queue_id, queue.first_at_or_behind(offset)) if queue else ():
            if stored.sys_flag & record.SYS_TRANSACTION == record.SYS_COMMIT:
                found.add(stored.prepared_transaction_offset)
    return found
