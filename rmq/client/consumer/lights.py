"""Reads a light queue: the messages that name it, at all brokers of their topic. A group has one reader, and no members."""

import asyncio
import logging
from types import TracebackType

from rmq.client.consumer.offsets import BrokerOffsets, Stored
from rmq.client.consumer.plan import PULL_BATCH, check_receive
from rmq.client.shared.connections import forget
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.reading import read_all
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import TaskSet, within
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Closed, Refusal, RmqError, Unreachable
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.net.commands import PULL_SUBSCRIPTION, PULL_SUSPEND, GetMaxOffset, GetMinOffset, OffsetAnswer, Pull, PullAnswer

_log = logging.getLogger("rmq.client")
_MOST_HELD = 1000  # messages that wait to be received
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0
_ANSWER_MARGIN_S = 15.0


class LightConsumer:
    """Get one from `Client.light_consumer`, and use it with `async with`."""

    def __init__(self, session: Session, group: str, name: str, topic: str, from_first: bool) -> None:
        self._session = session
        self._group, self._name, self._topic = group, name, topic
        self._from_first = from_first
        self._offsets = BrokerOffsets(group, session, zero_if_in_memory=False)
        self._found: asyncio.Queue[ReceivedMessage] = asyncio.Queue(_MOST_HELD)
        self._came = asyncio.Event()
        self._given: dict[MessageQueue, int] = {}  # where to go on behind what was received
        self._read: set[str] = set()  # names of brokers
        self._begun: list[asyncio.Event] = []  # of each broker: it said where to begin, or that it cannot now
        self._changes = asyncio.Event()  # of the route; each is told by one event, which is replaced
        self._tasks = TaskSet()
        self.closed = False

    async def __aenter__(self) -> "LightConsumer":
        await self._session.routes.get(self._topic)
        self._session.routes.on_change.append(self._changed)
        self._changed(self._topic)
        try:
            if not self._from_first:  # what is sent from now on is for it
                await asyncio.gather(*(begun.wait() for begun in self._begun))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends it. What was received since the last `commit` comes again."""
        self._session.connections.check_loop()
        if not self.closed:
            self.closed = True
            self._came.set()
            for begun in self._begun:
                begun.set()
            forget(self._session.routes.on_change, self._changed)
            await self._tasks.close()

    async def receive(self, max: int = 32, timeout: float = 5.0) -> list[ReceivedMessage]:
        """Up to `max` messages; none if none came within `timeout` seconds. Their `queue_offset` is that in the light queue.

        Raises InvalidArgument, Closed.
        """
        check_receive(max, timeout)
        self._session.connections.check_loop()
        self._check_open()
        messages: list[ReceivedMessage] = []
        clock = self._session.clock
        until_s = clock.monotonic() + timeout
        while self._found.empty():  # who is cancelled meanwhile has taken nothing: what it took would be lost, and committed
            self._came.clear()
            try:
                await within(clock, until_s - clock.monotonic(), self._came.wait())
            except TimeoutError:
                return []
            self._check_open()
        while len(messages) < max and not self._found.empty():
            messages.append(self._found.get_nowait())
        self._given.update((message.queue, message.queue_offset + 1) for message in messages)
        return messages

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("this consumer is closed, or its client: make a new one")

    async def commit(self) -> None:
        """All that was received is done: the group goes on behind it. Raises RmqError."""
        given, self._given = self._given, {}
        try:
            await self._offsets.save(given, sync=True)
        except BaseException:  # also who is cancelled commits it next time
            self._given = given | self._given
            raise

    def _changed(self, topic: str) -> None:
        """Another broker may have messages of the topic now."""
        if topic != self._topic:
            return
        route = self._session.routes.known(topic)
        for broker in route.brokers if route else ():
            if broker.name not in self._read:
                self._read.add(broker.name)
                queue, begun = MessageQueue(self._name, broker.name, 0), asyncio.Event()
                self._begun.append(begun)
                self._tasks.start(self._follow(queue, begun), f"read {self._name} at {broker.name}")
        self._changes.set()
        self._changes = asyncio.Event()

    async def _follow(self, queue: MessageQueue, begun: asyncio.Event) -> None:
        """Runs until cancelled. Every failure is tried again: reading changes nothing at the broker."""
        clock, offset, after, failures = self._session.clock, -1, -1, 0
        from_first, was_stored = self._from_first, False
        while True:
            try:
                if offset < 0:
                    offset, was_stored = await self._first(queue, from_first)
                    begun.set()
                elif failures and after < 0 and was_stored and await self._offsets.load(queue) == Stored(None):
                    offset, from_first = -1, True  # it went with the queue; where nothing was read, no pull tells that
                    self._go_back(queue, 0)
                    continue
                began_s, before = clock.monotonic(), offset
                offset, after = await self._pull(queue, offset, after)
                if offset < before:
                    self._go_back(queue, offset)
                failures = 0
                if offset == before and clock.monotonic() - began_s < _PAUSE_S:
                    await clock.sleep(_PAUSE_S)
            except Closed:  # the client is
                self.closed = True
                self._came.set()
                begun.set()
                return
            except RmqError as error:
                failures += 1
                begun.set()
                if after >= 0 and isinstance(error, Refusal) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                    offset, after, from_first = -1, -1, True  # it was deleted, and perhaps another one of its name made
                    self._go_back(queue, 0)
                _log.log(logging.INFO if failures < 3 else logging.WARNING, "%s is not read for now: %s", queue, error)
                if error.refresh_routes:
                    self._session.routes.refresh_behind(self._topic)
                await clock.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(failures - 1, 10)))
                await self._until_listed(queue.broker_name)

    async def _until_listed(self, broker_name: str) -> None:
        """Nobody asks a broker that left the route; it goes on where it was when it is back. Without a route it is asked."""
        while (route := self._session.routes.known(self._topic)) and broker_name not in {one.name for one in route.brokers}:
            _log.info("%s left the route of %s", broker_name, self._topic)
            await self._changes.wait()

    def _go_back(self, queue: MessageQueue, offset: int) -> None:
        """What was read from there on is gone, and other messages come in its place: it is not received, nor committed."""
        if given := min(self._given.pop(queue, 0), offset):
            self._given[queue] = given
        for message in [self._found.get_nowait() for _ in range(self._found.qsize())]:
            if message.queue != queue or message.queue_offset < offset:
                self._found.put_nowait(message)

    async def _first(self, queue: MessageQueue, from_first: bool) -> tuple[int, bool]:
        """Where to begin, and whether the group had an offset there. Raises RmqError."""
        stored, sure, _ = await self._offsets.load(queue)
        if not sure:  # the next question may reach the leader already, and what it tells holds only for a group without an offset
            raise Unreachable(f"broker group {queue.broker_name} has no leader that knows the group's offset")
        if stored is not None:
            return stored, True
        question = GetMinOffset(queue.topic, 0) if from_first else GetMaxOffset(queue.topic, 0)
        answer = await self._session.leaders.request(queue.broker_name, question, self._session.settings.request_timeout_s)
        assert isinstance(answer, OffsetAnswer)
        return answer.offset, False

    async def _pull(self, queue: MessageQueue, offset: int, after: int) -> tuple[int, int]:
        """Where to go on, and where in the log the message before that stood, as `after` of the one before `offset` (-1: that did
        not come here): a log that lost it sends back. Raises RmqError."""
        suspend_s, flag = self._session.settings.suspend_s, PULL_SUSPEND | PULL_SUBSCRIPTION
        request = Pull(
            self._group,
            queue.topic,
            0,
            offset,
            PULL_BATCH,
            sys_flag=flag,
            suspend_timeout_millis=int(suspend_s * 1000),
            subscription="*",
            after=after,
        )
        answer = await self._session.leaders.request(queue.broker_name, request, suspend_s + _ANSWER_MARGIN_S)
        assert isinstance(answer, PullAnswer)
        reached = offset
        if answer.status == ResponseCode.SUCCESS:
            for stored in read_all(answer.messages):
                message = ReceivedMessage(stored, queue)
                message.queue_offset = record.queue_offset_in(queue.topic, stored)
                if not offset <= message.queue_offset < answer.next_begin_offset:
                    raise BadBytes(f"message {message.queue_offset} of {queue.topic} came to a pull from {offset} on")
                await self._found.put(message)
                self._came.set()
                reached, after = message.queue_offset + 1, stored.physical_offset
        return answer.next_begin_offset, after if reached == answer.next_begin_offset else -1
