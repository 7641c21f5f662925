"""Acknowledgements of popped messages, and other times for them [AckMessageProcessor, ChangeInvisibleTimeProcessor].

An acknowledgement is answered when it is committed: what was acknowledged does not come back, whoever leads then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from rmq.broker.pending.ordered import OrderedPopReader
from rmq.broker.pending.receipts import NewReceipt, ReceiptWriter
from rmq.broker.shared.state import finish, is_unknown, resolve, undoing
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.due import STEP_MS
from rmq.delivery.popping import MAX_INVISIBLE_MS, ORDERED, parse_handle, receipt_in, stored_in
from rmq.delivery.receipts import ReceiptKey, ReceiptTable
from rmq.errors import Refusal, RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.model import LITE_PREFIX, TopicConfig
from rmq.net.codec.frames import Received
from rmq.net.commands.pop import Ack, AckedRange, BatchAck, ChangeInvisibleTime, InvisibleTimeAnswer
from rmq.net.transport.connection import CALL_BYTES
from rmq.net.transport.server import LATER, Call, Connection, Handler, Later

_KIND = Ack.__name__
_new = tuple.__new__  # a NamedTuple in half the time
_NOWHERE = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER)  # says `_queue_of`
PARTS_AT_ONCE = 32  # of a request: some ms
MAX_BITS_BYTES = 128  # no receipt spans more offsets: one look goes through 800 entries


class Bundle:
    """Queue offsets of messages that one record is to acknowledge, and who waits for it: `calls`, which hear nothing else, and
    others that share `over`. `again`: of those an earlier record, which is not committed yet, says the same."""

    __slots__ = ("again", "calls", "over", "queue_offsets", "revive_queue")

    def __init__(self, revive_queue: int) -> None:
        self.revive_queue = revive_queue
        self.queue_offsets: list[int] = []
        self.again: set[int] = set()
        self.calls: list[Call] = []
        self.over: asyncio.Future[None] | None = None


class AckHandler:
    """`known_topic(name)`: its settings. Raises Refusal if it does not exist. `check_in_touch()`: raises Refusal where another
    node may lead by now, and know more."""

    def __init__(
        self,
        table: ReceiptTable,
        known_topic: Callable[[str], TopicConfig],
        queues: ConsumeQueues,
        writer: ReceiptWriter,
        ordered: OrderedPopReader,
        check_in_touch: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._check_in_touch = check_in_touch
        self._table = table
        self._known_topic = known_topic
        self._queues = queues
        self._writer = writer
        self._ordered = ordered
        self._clock = clock
        self._bundles: dict[ReceiptKey, Bundle] = {}

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {Ack: self.ack, BatchAck: self.batch_ack, ChangeInvisibleTime: self.change}

    def take(self, connection: Connection, received: list[Received], first: int, room: int) -> int:
        """See `Take`: those of one receipt that come together, none of an ordered pop. What is wrong, or done, `ack` says."""
        group, topic, queue_id, extra_info, queue_offset = cast(Ack, received[first][0])
        try:
            queue = self._queue(topic, queue_id, queue_offset)
            start, pop_time, revive_queue = receipt_in(extra_info)
        except Refusal:
            return first
        same = extra_info[: extra_info.rindex(" ") + 1]  # their handles differ in the last word
        behind, lowest, end = len(same), queue.min, queue.max
        queue_offsets, calls, left = list[int](), list[Call](), room
        for request, call_id, oneway, context, size in received[first:] if first else received:
            if type(request) is not Ack or left < 0:
                break
            of_group, of_topic, of_queue, handle, queue_offset = request
            if of_queue != queue_id or of_topic != topic or of_group != group or not handle.startswith(same):
                break
            if not (handle[behind:].isdecimal() and lowest <= queue_offset < end):
                break
            size += CALL_BYTES
            left -= size
            queue_offsets.append(queue_offset)
            calls.append(_new(Call, (connection, call_id, oneway, context, size)))
        key = _new(ReceiptKey, (group, topic, queue_id, start, pop_time))
        bundle = None if revive_queue == ORDERED or not calls else self._bundled(key, queue_offsets)
        if bundle is None:
            return first
        bundle.calls += calls
        connection.under_way(len(calls), room - left)
        return first + len(calls)

    def ack(self, request: Ack, call: Call) -> Later | Awaitable[None] | None:
        """A repeated or late acknowledgement is no error: the client can do nothing about it. But only who surely leads may say
        so: a new leader may have handed out what nobody knows here."""
        group, topic, queue_id, extra_info, queue_offset = request
        self._queue(topic, queue_id, queue_offset)
        start, pop_time, revive_queue = receipt_in(extra_info)
        key = _new(ReceiptKey, (group, topic, queue_id, start, pop_time))
        if revive_queue == ORDERED:
            return self._ack(key, [queue_offset], revive_queue)
        bundle = self._bundled(key, [queue_offset])
        if bundle is None:
            self._check_in_touch()
            return None
        bundle.calls.append(call)
        return LATER

    async def batch_ack(self, request: BatchAck, _call: Call) -> None:
        if not request.acks:
            raise Refusal(ResponseCode.NO_MESSAGE, "no acknowledgement is in this request")
        for at in range(0, len(request.acks), PARTS_AT_ONCE):
            if at:
                await asyncio.sleep(0)  # a request may have ten thousand: all others have their turn
            await self._ack_parts(request.acks[at : at + PARTS_AT_ONCE])

    async def _ack_parts(self, parts: Iterable[AckedRange]) -> None:
        acks: list[tuple[ReceiptKey, list[int], int]] = []
        for part in parts:
            topic = stored_in(part.retry, part.consumer_group, part.topic)
            if queue_offsets := self._there(topic, part.queue_id, _queue_offsets(part)):
                key = ReceiptKey(part.consumer_group, topic, part.queue_id, part.start_offset, part.pop_time)
                acks.append((key, queue_offsets, part.revive_queue_id))
        await asyncio.gather(*(self._ack(*one) for one in acks))

    def _there(self, topic: str, queue_id: int, queue_offsets: Sequence[int]) -> list[int]:
        """Those of these messages that are there: of others nothing can be acknowledged, and what else is in the batch does not
        suffer for it [AckMessageProcessor.appendAck]."""
        try:
            queue = self._queue_of(topic, queue_id)
            there = [queue_offset for queue_offset in queue_offsets if queue.min <= queue_offset < queue.max]
        except Refusal as refusal:
            if refusal.code not in _NOWHERE:
                raise
            there = []
        if len(there) < len(queue_offsets):
            self._check_in_touch()
        return there

    async def _ack(self, key: ReceiptKey, queue_offsets: Sequence[int], revive_queue: int) -> None:
        if revive_queue == ORDERED:
            place = (key.group, key.topic, key.queue_id)
            for queue_offset in queue_offsets:
                if not await self._ordered.ack(place, queue_offset, key.pop_time, self._clock.wall_ms()):
                    self._check_in_touch()
            return
        if (bundle := self._bundled(key, queue_offsets)) is None:
            self._check_in_touch()
            return
        bundle.over = bundle.over or asyncio.get_running_loop().create_future()
        await asyncio.shield(bundle.over)

    def _bundled(self, key: ReceiptKey, queue_offsets: Sequence[int]) -> Bundle | None:
        """One record for all acknowledgements of a receipt that come in one turn of the loop: consumers send them in crowds. None
        if these messages are done. An end that is being written may come to nothing with this leader, so it is written again."""
        receipt = self._table.get(key)
        if receipt is None:
            return None
        staged, again = self._table.stage(key, queue_offsets), set[int]()
        if len(staged) != len(queue_offsets):
            again = self._table.coming(key, queue_offsets).difference(staged)
            if not staged and not again:
                return None
        bundle = self._bundles.get(key)
        if bundle is None:
            if not self._bundles:
                asyncio.get_running_loop().call_soon(self._write_bundles)
            bundle = self._bundles[key] = Bundle(receipt.revive[0])
        bundle.queue_offsets += staged
        bundle.again |= again
        return bundle

    def _write_bundles(self) -> None:
        bundles, self._bundles = self._bundles, {}
        for key, bundle in bundles.items():
            done = partial(self._written, key, bundle)
            queue_offsets = sorted(bundle.again.union(bundle.queue_offsets)) if bundle.again else bundle.queue_offsets
            try:
                unit = self._writer.acknowledge(bundle.revive_queue, key, queue_offsets, done)
            except Refusal as refusal:
                self._written(key, bundle, refusal)
            else:
                if bundle.calls:
                    unit.asked, unit.kind, unit.came = bundle.calls[0], _KIND, bundle.calls[0].connection.last_read

    def _written(self, key: ReceiptKey, bundle: Bundle, error: RmqError | None) -> None:
        if error is not None and not is_unknown(error):
            self._table.unstage(key, bundle.queue_offsets)
        if bundle.over is not None:
            resolve(bundle.over, error)
        finish(bundle.calls, error)

    async def change(self, request: ChangeInvisibleTime, _call: Call) -> InvisibleTimeAnswer:
        """A new receipt for that message, and the end of the old one: both or neither."""
        if not 0 <= request.invisible_time <= MAX_INVISIBLE_MS:
            about = f"invisible time {request.invisible_time} ms: 0 to {MAX_INVISIBLE_MS} are allowed"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        queue, queue_offset = self._queue(request.topic, request.queue_id, request.offset), request.offset
        handle, now_ms = parse_handle(request.extra_info), self._clock.wall_ms()
        group, topic, queue_id = place = (request.consumer_group, request.topic, request.queue_id)
        if handle.revive_queue == ORDERED:
            visible_ms = now_ms + request.invisible_time
            await self._ordered.change_visible(place, queue_offset, handle.pop_time, visible_ms)
            return InvisibleTimeAnswer(handle.pop_time, visible_ms - handle.pop_time, ORDERED)
        key = ReceiptKey(group, topic, queue_id, handle.start, handle.pop_time)
        receipt, pins = self._table.get(key), queue.entry(queue_offset).offset
        if receipt is None or not self._table.stage(key, [queue_offset]):
            raise Refusal(ResponseCode.NO_MESSAGE, "this receipt has ended: its message was acknowledged or has come back")
        ahead = key.pop_time > now_ms + STEP_MS  # of this clock, which was set back: the new time counts by it
        new = key._replace(start=queue_offset, pop_time=now_ms if ahead else max(now_ms, key.pop_time + 1))
        while self._table.get(new) is not None:
            new = new._replace(pop_time=new.pop_time + 1)
        renewed = NewReceipt(new, request.invisible_time, [queue_offset], None, pins)
        drafts = [self._writer.checkpoint_draft(renewed), self._writer.ack_draft(key, [queue_offset])]
        await asyncio.shield(asyncio.create_task(self._renew(key, queue_offset, receipt.revive[0], drafts, queue), name="renew"))
        return InvisibleTimeAnswer(new.pop_time, request.invisible_time, receipt.revive[0])

    async def _renew(
        self, key: ReceiptKey, queue_offset: int, revive_queue: int, drafts: Sequence[bytes], life: ConsumeQueue
    ) -> None:
        with undoing(lambda: self._table.unstage(key, [queue_offset])):
            await self._writer.write(revive_queue, drafts, life)

    def _queue_of(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Raises Refusal when no such queue is there."""
        config = self._known_topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            about = f"queue {queue_id} of {topic}: it has queues 0 to {config.read_queue_nums - 1}"
            lite = topic.startswith(LITE_PREFIX)
            raise Refusal(ResponseCode.INVALID_PARAMETER if lite else ResponseCode.MESSAGE_ILLEGAL, about)
        return self._queues.look(topic, queue_id)

    def _queue(self, topic: str, queue_id: int, queue_offset: int) -> ConsumeQueue:
        """Raises Refusal when no such message is there."""
        queue = self._queue_of(topic, queue_id)
        if not queue.min <= queue_offset < queue.max:
            raise Refusal(
                ResponseCode.NO_MESSAGE, f"message {queue_offset} is not in {topic}/{queue_id} ({queue.min} to {queue.max - 1})"
            )
        return queue


def _queue_offsets(part: AckedRange) -> list[int]:
    bits = int.from_bytes(part.bits[:MAX_BITS_BYTES], "little")
    return [part.start_offset + i for i in range(bits.bit_length()) if bits >> i & 1]
