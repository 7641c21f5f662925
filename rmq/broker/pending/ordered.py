"""Ordered pops: a queue is handed out again once all its messages that were handed out are acknowledged, or visible again.

Every change is one state record that is committed before it is answered, so a new leader knows what is handed out.
"""

import asyncio
from collections.abc import Callable

from rmq.broker.pending.popreader import GroupQueue, QueueReader, Taken, Wish
from rmq.broker.shared.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.delivery.filters import Selection
from rmq.delivery.orders import OrderRow, OrderTable, handed_out, name_of
from rmq.delivery.popping import NORMAL, Part
from rmq.errors import Refusal


class OrderedPopReader:
    """`freed(group, topic, queue)`: the next pop may have that queue."""

    def __init__(
        self,
        reader: QueueReader,
        table: OrderTable,
        freed: Callable[[str, str, int], None],
    ) -> None:
        self._reader = reader
        self._table = table
        self._freed = freed
        self._busy: set[GroupQueue] = set()

    def may_have(self, place: GroupQueue, wanted: Selection, attempt: str, now_ms: int) -> bool:
        """Whether `take` is worth a try."""
        row = self._table.decided(name_of(*place))
        closed = row is not None and row.is_closed(attempt, now_ms)
        return place not in self._busy and not closed and self._reader.has_more(*place, wanted)

    def tries(self, group: str, topic: str, queue_id: int) -> dict[int, int]:
        """How often each of the messages handed out last had been handed out before."""
        row = self._table.decided(name_of(group, topic, queue_id))
        return dict(row.tries) if row else {}

    async def take(self, wish: Wish, attempt: str, topic: str, queue_id: int, count: int) -> Taken | None:
        """Up to `count` messages; None: nothing there, or the queue is closed. Raises Refusal, StoreError, OSError."""
        place = (wish.group, topic, queue_id)
        if not self.may_have(place, wish.wanted, attempt, wish.pop_time):
            return None
        self._busy.add(place)
        try:
            await self._reader.settle(wish.group, topic, queue_id, wish.begin)
            read = await self._reader.read(wish.group, topic, queue_id, count, wish.wanted)
            if not read.queue_offsets:
                await self._reader.passed(place, read, wish.wanted)
                return None
            if not self._reader.is_still_at(place, read):
                return None
            before = self._table.decided(name_of(*place))
            row = handed_out(before, attempt, wish.pop_time, wish.invisible_ms, read.queue_offsets)
            await self._change(place, row, None)
        finally:
            self._busy.discard(place)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return Taken(topic, Part(NORMAL, queue_id, read.queue_offsets[0], read.queue_offsets), read.messages, done)

    async def ack(self, place: GroupQueue, queue_offset: int, pop_time: int, now_ms: int) -> None:
        """Acknowledges one message. Does nothing for a message that a later pop has handed out again, or that was handed out
        before the group was set to another place. Raises Refusal."""
        row = self._row(place, queue_offset, pop_time)
        if row is None or self._reader.is_moving(place):
            return
        row = row._replace(done=row.done | 1 << row.queue_offsets.index(queue_offset))
        known = self._reader.reached(*place)
        await self._change(place, row, row.next() if row.queue_offsets[0] <= known < row.next() or not known else None)
        if not row.is_closed("", now_ms):
            self._freed(*place)

    async def change_visible(self, place: GroupQueue, queue_offset: int, pop_time: int, visible_ms: int) -> None:
        """Sets when that message is visible again. Raises Refusal, also when another pop has it by now."""
        row = self._row(place, queue_offset, pop_time)
        if row is None or self._reader.is_moving(place) or row.done >> row.queue_offsets.index(queue_offset) & 1:
            raise Refusal(ResponseCode.NO_MESSAGE, "this receipt has ended: its message was acknowledged or handed out again")
        await self._change(place, row._replace(visible={**row.visible, queue_offset: visible_ms}), None)

    def _row(self, place: GroupQueue, queue_offset: int, pop_time: int) -> OrderRow | None:
        row = self._table.decided(name_of(*place))
        if row is None or row.pop_time != pop_time:
            return None
        if queue_offset not in row.queue_offsets:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message {queue_offset} is none of those that this pop handed out")
        return row

    async def _change(self, place: GroupQueue, row: OrderRow, offset: int | None) -> None:
        name = name_of(*place)
        lines: list[Line] = [("orderInfo", name, list(row))]
        if offset is not None:
            lines.append(("offset", place, offset))
        if self._reader.was_moved(place):
            lines.append(("reset", place, None))  # it pops from the new offset
        self._table.stage(name, row)
        with undoing(lambda: self._table.unstage(name)):
            await self._reader.commit(lines)
