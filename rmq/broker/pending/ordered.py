"""Ordered pops: a queue is handed out again once all its messages that were handed out are acknowledged, or visible again.

Every change is one state record that is committed before it is answered, so a new leader knows what is handed out.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rmq.broker.pending.popreader import GroupQueue, QueueReader, Read, Taken, Wish
from rmq.broker.shared.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.delivery.orders import OrderRow, OrderTable, handed_out, name_of
from rmq.delivery.popping import NORMAL, Part
from rmq.errors import OUTCOME_UNKNOWN, Refusal


class Begun(NamedTuple):
    """Messages that `finish` hands out; until then nobody else has the queue."""

    place: GroupQueue
    read: Read

    @property
    def first(self) -> int:
        """The first message. What stands before it is gone, or nothing for the group."""
        return self.read.queue_offsets[0]


class OrderedPopReader:
    """Those in `told` hear of each change: the queue is closed to the group until that time (ms), or (0) open: the next pop may
    have it."""

    def __init__(self, reader: QueueReader, table: OrderTable) -> None:
        self.reader = reader
        self.table = table
        self.told: list[Callable[[GroupQueue, int], None]] = []
        self._busy: set[GroupQueue] = set()

    def may_have(self, place: GroupQueue, attempt: str, now_ms: int) -> bool:
        """Whether `take` is worth a try. Not while a change is written: behind the last acknowledgement the group's offset is
        still that of a message that is done."""
        name = name_of(*place)
        row = self.table.at(name, now_ms)
        closed = self.table.is_changing(name) or (row is not None and row.is_closed(attempt, now_ms))
        return place not in self._busy and not closed and self.reader.has_more(*place)

    def is_of(self, place: GroupQueue, attempt: str) -> bool:
        """Whether that attempt was the last one to have messages of it."""
        row = self.table.decided(name_of(*place))
        return row is not None and row.attempt == attempt

    def given_to(self, group: str, attempt: str) -> list[GroupQueue]:
        """The queues of which that attempt has messages, or may have."""
        named = (name.split("@") for name in self.table.of_attempt(attempt))
        return [(group, topic, int(queue_id)) for topic, of, queue_id in named if of == group]

    def check_decided(self, places: Iterable[GroupQueue], attempt: str) -> None:
        """Raises Refusal while nobody knows whether the attempt was given messages of one of them: it is to ask again, and not to
        be given others, behind which these would wait until their time is over."""
        if any(self.table.is_changing(name_of(*place)) and self.is_of(place, attempt) for place in places):
            about = f"{OUTCOME_UNKNOWN}: what this attempt was given is not committed yet; ask again"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)

    def opens_ms(self, place: GroupQueue, now_ms: int) -> int:
        """When the queue is open to the group, if nothing is acknowledged until then; 0 if nothing is handed out."""
        row = self.table.at(name_of(*place), now_ms)
        return row.opens_ms() if row else 0

    def tries(self, group: str, topic: str, queue_id: int) -> dict[int, int]:
        """How often each of the messages handed out last had been handed out before."""
        row = self.table.decided(name_of(group, topic, queue_id))
        return dict(row.tries) if row else {}

    async def take(self, wish: Wish, attempt: str, topic: str, queue_id: int, count: int) -> Taken | None:
        """Up to `count` messages; None: nothing there, or the queue is closed. Raises Refusal, StoreError, OSError."""
        begun = await self.begin(wish, attempt, topic, queue_id, count)
        taken = await self.finish([begun], wish, attempt) if begun else []
        return taken[0] if taken else None

    async def begin(self, wish: Wish, attempt: str, topic: str, queue_id: int, count: int) -> Begun | None:
        """What `take` would hand out; `finish` or `give_up` must follow. Raises as `take`."""
        place = (wish.group, topic, queue_id)
        if not self.may_have(place, attempt, wish.pop_time):
            return None
        self._busy.add(place)
        begun = None
        try:
            await self.reader.settle(wish, topic, queue_id)
            read = await self.reader.read(wish.group, topic, queue_id, count, wish.wanted)
            if read.queue_offsets:
                begun = Begun(place, read) if self.reader.is_still_at(place, read) else None
            elif not self.table.is_changing(name_of(*place)):  # else an acknowledgement moves the group just now
                self.reader.passed(place, read)
        finally:
            if begun is None:
                self._busy.discard(place)
        return begun

    def give_up(self, some: Sequence[Begun]) -> None:
        """They are not handed out."""
        self._busy.difference_update(one.place for one in some)

    async def finish(self, some: Sequence[Begun], wish: Wish, attempt: str) -> list[Taken]:
        """Hands them out, all by one record; those that a tool set to another place meanwhile are left out. Raises Refusal."""
        try:
            there = [one for one in some if self.reader.is_still_at(one.place, one.read) and self.reader.overtake(one.place)]
            rows = [(one.place, self._row_of(one, wish, attempt)) for one in there]
            if rows:
                await self._change(rows, [(one.place, one.first) for one in there if not self.reader.is_at(one.place, one.first)])
        finally:
            self.give_up(some)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        parts = [(one, Part(NORMAL, one.place[2], one.first, one.read.queue_offsets)) for one in there]
        return [Taken(one.place[1], part, one.read.messages, done) for one, part in parts]

    def _row_of(self, one: Begun, wish: Wish, attempt: str) -> OrderRow:
        before = self.table.decided(name_of(*one.place))
        return handed_out(before, attempt, wish.pop_time, wish.invisible_ms, one.read.queue_offsets)

    async def ack(self, place: GroupQueue, queue_offset: int, pop_time: int, now_ms: int) -> bool:
        """Acknowledges one message. False, and does nothing, for a message that a later pop has handed out again, or that was
        handed out before the group was set to another place. Raises Refusal."""
        row = self._row(place, queue_offset, pop_time)
        if row is None or self.reader.is_moving(place):
            return False
        row = row._replace(done=row.done | 1 << row.queue_offsets.index(queue_offset))
        known = self.reader.reached(*place)
        moves = row.queue_offsets[0] <= known < row.next() or not known
        if moves:
            self.reader.overtake(place)  # a pop that wants something else may have passed what was handed out
        await self._change([(place, row)], [(place, row.next())] if moves else [])
        if not row.is_closed("", now_ms):
            self._tell(place, 0)
        return True

    async def change_visible(self, place: GroupQueue, queue_offset: int, pop_time: int, visible_ms: int) -> None:
        """Sets when that message is visible again. Raises Refusal, also when another pop has it by now."""
        row = self._row(place, queue_offset, pop_time)
        if row is None or self.reader.is_moving(place) or row.done >> row.queue_offsets.index(queue_offset) & 1:
            raise Refusal(ResponseCode.NO_MESSAGE, "this receipt has ended: its message was acknowledged or handed out again")
        await self._change([(place, row._replace(visible={**row.visible, queue_offset: visible_ms}))], [])

    def _row(self, place: GroupQueue, queue_offset: int, pop_time: int) -> OrderRow | None:
        row = self.table.decided(name_of(*place))
        if row is None or row.pop_time != pop_time or not self.reader.has_group(place[0]):
            return None
        if queue_offset not in row.queue_offsets:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message {queue_offset} is none of those that this pop handed out")
        return row

    async def _change(self, rows: Sequence[tuple[GroupQueue, OrderRow]], offsets: Sequence[tuple[GroupQueue, int]]) -> None:
        """`offsets`: where the group is now."""
        lines: list[Line] = [("orderInfo", name_of(*place), list(row)) for place, row in rows]
        lines += [("offset", place, offset) for place, offset in offsets]
        lines += [("reset", place, None) for place, _ in rows if self.reader.was_moved(place)]  # it pops from the new offset
        for place, row in rows:
            self.table.stage(name_of(*place), row)
        with undoing(lambda: self._unstage(rows)):
            await self.reader.commit(lines)
        for place, row in rows:
            if opens_ms := row.opens_ms():
                self._tell(place, opens_ms)

    def _tell(self, place: GroupQueue, opens_ms: int) -> None:
        for told in self.told:
            told(place, opens_ms)

    def _unstage(self, rows: Sequence[tuple[GroupQueue, OrderRow]]) -> None:
        for place, _ in rows:
            self.table.unstage(name_of(*place))
