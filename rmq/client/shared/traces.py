"""Writes RocketMQ's message trace: notes what happens to messages, and sends the notes later, many in one message
[AsyncTraceDispatcher]. No send and no handler waits for it. If there is no room for notes, or no broker takes them, they are
dropped, and the log says so.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from rmq.background import cancel
from rmq.client.shared.ids import UniqueIds
from rmq.client.shared.message import KEYS, Message, ReceivedMessage, SendResult, SendStatus
from rmq.client.shared.observers import Handling, Observer, Sending, TransactionEnd
from rmq.client.shared.tasks import within
from rmq.client.shared.traceformat import (
    REGION,
    EndTransaction,
    MessageKind,
    Outcome,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    encode,
    words,
)
from rmq.clock import Clock
from rmq.errors import Closed, InvalidArgument, RmqError
from rmq.log.records import record

_log = logging.getLogger("rmq.client")
TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"  # RocketMQ's traces come from groups whose names begin so
MAX_WAITING: Final = 20_000  # notes
BATCH: Final = 100  # notes of one message, and how many are sent at once rather than later
MAX_BODY_BYTES, MAX_KEY_BYTES = 128_000, 16_000  # of one message; what is sent has at most 32 KiB of properties
FLUSH_S: Final = 1.0
LAST_S: Final = 3.0  # how long a client that closes tries to send what is left

Send = Callable[[Message], Awaitable[object]]


class MessageTrace(Observer):
    """`topic`: where notes go; what is sent and consumed there is not noted. `leader(broker name)`: its address.
    `traced(address)`: whether that broker wants traces of its messages."""

    def __init__(
        self, topic: str, clock: Clock, ids: UniqueIds, leader: Callable[[str], str], traced: Callable[[str], bool]
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._ids = ids
        self._leader = leader
        self.is_traced = traced
        self._waiting: deque[Trace] = deque()
        self._some, self._many = asyncio.Event(), asyncio.Event()
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.dropped = 0

    # --- what happens -------------------------------------------------------------------------------------------------

    def sending(self, group: str, messages: Sequence[Message], half: bool) -> Sending:
        if messages and messages[0].topic == self._topic:
            return Sending(messages)
        return _NotedSending(self, group, messages, half)

    def handling(self, group: str, message: ReceivedMessage, pushed: bool) -> Handling:
        if message.topic == self._topic or message.properties.get("TRACE_ON") == "false":
            return Handling()
        if not self.is_traced(self.address(message.queue.broker_name)):
            return Handling()
        return _NotedHandling(self, group, message)

    def transaction_ended(self, end: TransactionEnd) -> None:
        group, message, broker_name, state, from_check = end
        about = (group, message.topic, message.message_id, message.tags, " ".join(message.keys), self.address(broker_name))
        self.note(EndTransaction(self.wall_ms(), REGION, *about, MessageKind.COMMITTED, message.message_id, state, from_check))

    def recalled(self, group: str, topic: str, message_id: str, done: bool) -> None:
        self.note(Recall(self.wall_ms(), REGION, group, topic, message_id, done))

    def note(self, trace: Trace) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._drop(1, f"more than {MAX_WAITING} wait to be sent")
            return
        self._waiting.append(trace)
        self._some.set()
        if len(self._waiting) >= BATCH:
            self._many.set()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def next_id(self) -> str:
        return self._ids.next()

    def address(self, broker_name: str) -> str:
        """The address of the broker's leader; "" if it is not known any more."""
        try:
            return self._leader(broker_name)
        except RmqError:
            return ""

    # --- sending ------------------------------------------------------------------------------------------------------

    def start(self, send: Send) -> None:
        self._task = asyncio.create_task(self._keep_sending(send), name="send message traces")

    async def close(self) -> None:
        """Sends what is left, as long as that does not take too long."""
        if self._task is None:
            return
        self._closing = True
        self._some.set()
        self._many.set()
        try:
            await within(self._clock, LAST_S, asyncio.wait({self._task}))
        except TimeoutError:
            await cancel(self._task)
            self._drop(len(self._waiting), "no broker took them in time")

    async def _keep_sending(self, send: Send) -> None:
        while not self._closing:
            await self._some.wait()
            with contextlib.suppress(TimeoutError):  # few came: they are sent now
                await within(self._clock, FLUSH_S, self._many.wait())
            await self._send_all(send)
        await self._send_all(send)

    async def _send_all(self, send: Send) -> None:
        while self._waiting:
            message, count = self._cut()
            try:
                await send(message)
            except RmqError as error:
                self._drop(count, str(error))
            else:
                self._trouble = ""
        self._some.clear()
        self._many.clear()

    def _cut(self) -> tuple[Message, int]:
        """Takes the oldest notes: a message with them, and how many they are."""
        body, size, count = list[bytes](), 0, 0
        keys: dict[str, None] = {}
        key_bytes = 0
        while self._waiting and count < BATCH:
            text, named = encode(self._waiting[0]).encode(), dict.fromkeys(words(self._waiting[0]))
            more = sum(len(word.encode()) + 1 for word in named if word not in keys)
            if count and (size + len(text) > MAX_BODY_BYTES or key_bytes + more > MAX_KEY_BYTES):
                break
            if more > MAX_KEY_BYTES:
                named, more = dict.fromkeys(words(self._waiting[0])[:1]), 0  # found by its id only
            self._waiting.popleft()
            body.append(text)
            keys |= named
            size, key_bytes, count = size + len(text), key_bytes + more, count + 1
        return Message(self._topic, b"".join(body), keys=[*keys]), count

    def _drop(self, count: int, why: str) -> None:
        """Logs one line when notes begin to be lost, not one for each."""
        if not self._trouble:
            _log.warning("message traces are lost: %s. Brokers keep them where traceTopicEnable is set (trace_topic)", why)
        self._trouble = why
        self.dropped += count


class _NotedSending(Sending):
    def __init__(self, trace: MessageTrace, group: str, messages: Sequence[Message], half: bool) -> None:
        super().__init__(messages)
        self._trace = trace
        self._group = group
        self._half = half
        self._wall_ms, self._began = trace.wall_ms(), trace.monotonic()

    def ended(self, results: Sequence[SendResult], error: BaseException | None) -> None:
        if error is None and not results:
            return  # sent one way: the outcome is not known
        if isinstance(error, InvalidArgument | Closed):
            return  # nothing was tried
        cost_ms = int((self._trace.monotonic() - self._began) * 1000)
        stored = {result.message_id: result for result in results}
        for message in self.messages:
            result = stored.get(message.message_id)
            address = self._trace.address(result.queue.broker_name) if result is not None else ""
            if self._trace.is_traced(address):
                self._trace.note(self._pub(message, result, address, cost_ms))

    def _pub(self, message: Message, result: SendResult | None, address: str, cost_ms: int) -> Pub:
        kind = MessageKind.DELAYED if message.waits else MessageKind.HALF if self._half else MessageKind.NORMAL
        return Pub(
            self._wall_ms,
            REGION,
            self._group,
            message.topic,
            message.message_id,
            message.tags,
            " ".join(message.keys),
            address,
            len(message.body),
            cost_ms,
            kind,
            _offset_id(address, result) if result is not None else "",
            result is not None and result.status == SendStatus.SEND_OK,
        )


class _NotedHandling(Handling):
    def __init__(self, trace: MessageTrace, group: str, message: ReceivedMessage) -> None:
        self._trace = trace
        self._group = group
        self._message_id = message.message_id
        self._keys = message.properties.get(KEYS, "")
        self._request_id = trace.next_id()
        self._began = trace.monotonic()
        region = message.properties.get("MSG_REGION") or REGION
        about = (group, self._request_id, self._message_id, message.reconsume_times, self._keys)
        trace.note(SubBefore(trace.wall_ms(), region, *about))

    def ended(self, outcome: Outcome) -> None:
        trace = self._trace
        cost_ms = int((trace.monotonic() - self._began) * 1000)
        done = outcome is Outcome.SUCCESS
        about = (self._request_id, self._message_id, cost_ms, done, self._keys, outcome)
        trace.note(SubAfter(*about, trace.wall_ms(), self._group))


def _offset_id(address: str, result: SendResult) -> str:
    """As RocketMQ's brokers say it; "" for a broker that is known by a name, whose address the id would need."""
    host, _, port = address.rpartition(":")
    try:
        return record.message_id(record.host_bytes(host.strip("[]"), int(port)), result.physical_offset)
    except (InvalidArgument, ValueError, OverflowError):
        return ""
