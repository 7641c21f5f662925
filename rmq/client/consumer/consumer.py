"""Consuming: pushed to a handler, iterated, or pulled; committing; leaving in order. `assignment` manages the queues."""

import asyncio
import inspect
import logging
from collections.abc import Iterable
from types import TracebackType

from rmq.background import cancel
from rmq.client.consumer.asked import Asked, Handler
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.handling import Handling
from rmq.client.consumer.inbox import Delivery, Inbox
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.plan import Plan, check_receive
from rmq.client.consumer.replies import Answerer, Replies
from rmq.client.consumer.retries import DEAD, Retries, checked_level
from rmq.client.consumer.watching import Watch
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.routes import get_all
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import TaskSet, within
from rmq.client.shared.traceformat import Outcome
from rmq.errors import Closed, InvalidArgument, Refusal, RmqError
from rmq.model import RETRY_PREFIX, MessageQueue

_log = logging.getLogger("rmq.client")


class Consumer:
    """A member of a consumer group; `async with` starts it and leaves the group in order. Get one from `Client.consumer`.

    Each message is delivered at least once to the group (broadcast: to each member). Offsets of finished messages are
    committed every 5 s, when a queue goes to another member and at the end, never past one that is not finished.
    """

    def __init__(self, session: Session, plan: Plan, offsets: OffsetStore) -> None:
        self._session = session
        self._plan = plan
        self._offsets = offsets
        self._inbox = Inbox()
        self._assignment = Assignment(session, plan, offsets, self._inbox)
        self._retries = Retries(session, plan)
        self._asked = Asked(session, plan, self._assignment)
        self._watch = Watch(session.observer, plan.group)
        self._handling = Handling(session, plan, self._inbox, self._assignment.rates, self._watch, self._retries)
        self._tasks = TaskSet()  # commit loop
        self._workers = TaskSet()
        self._received: list[Delivery] = []  # handed out by iteration and receive(), not yet finished
        self._started = False
        self._leaving: asyncio.Task[None] | None = None
        self._leaver: asyncio.Task[object] | None = None  # who asked for it

    @property
    def closed(self) -> bool:
        return self._inbox.closed and not self._started

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member owns at present."""
        return self._assignment.queues

    @property
    def held(self) -> int:
        """How many messages this member has fetched and not finished."""
        return sum(window.count for window in self._assignment.windows())

    async def __aenter__(self) -> "Consumer":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group. Raises Unreachable when no nameserver answers, InvalidArgument for a group already in use here,
        BadBytes or StoreError for a broadcast member's file of offsets that cannot be read, Closed if it is closed meanwhile."""
        if self._started:
            return
        if self._inbox.closed:
            raise Closed("this consumer is closed: make a new one")
        if self._session.heartbeats.knows_consumer(self._plan.group):
            about = f"group {self._plan.group} has a consumer in this client: use another Client for the next member"
            raise InvalidArgument(about)
        self._session.heartbeats.remember(self._plan.heartbeat())
        self._started = True
        self._asked.start()
        try:
            await self._offsets.open()
            await self._find_topics()
            await self._session.heartbeats.say_soon()
            await self._assignment.rebalance()
            self._check_started()  # or it was closed meanwhile
        except BaseException:
            await self.close()
            raise
        self._assignment.start()
        self._tasks.start(self._keep_committing(), f"commit {self._plan.group}")

    async def _find_topics(self) -> None:
        found = await get_all(self._session.routes, self._plan.topics)
        for topic, told in zip(self._plan.topics, found, strict=True):
            if isinstance(told, RmqError) and not isinstance(told, Refusal):
                raise told
            if isinstance(told, Refusal) and not topic.startswith(RETRY_PREFIX):
                _log.warning("%s is consumed as soon as it exists: %s", topic, told)

    def reply(self, answerer: Answerer) -> Handler:
        """A handler for `run`: the bytes that `answerer` returns (async or plain) go back to who asked by `Client.request`.

        Also as `@consumer.reply`. It is not told whether they arrived: who asked waits only so long.
        """
        _check_runs(answerer)
        return Replies(self._session, self._plan.group).replying(answerer)

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Hand every message to `handler`, `concurrency` at a time, until `stop` or `close` is called or this is cancelled.

        `handler` is an async function, or a plain one that is quick. When it returns the message is finished. When it raises
        (`RetryLater` says when), or takes too long, the message is given back: the group gets it again later, and in the end
        it is a dead letter. While no broker takes it back it is handed out again here after 1 s, then longer, up to 30 s; in
        order and of a broadcast always so, and its queue waits. It is never skipped. Cancelled, `run` lets running handlers
        end.
        """
        if concurrency < 1:
            raise InvalidArgument(f"concurrency {concurrency}: at least one handler must run")
        _check_runs(handler)
        self._check_usable()
        stop = asyncio.Event()
        self._asked.handler, self._asked.concurrency = handler, concurrency
        workers = [self._workers.start(self._handling.work(handler, stop), f"handler {n}") for n in range(concurrency)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            stop.set()
            self._asked.handler = None
            self._inbox.wake()
            await self._drain(workers, asyncio.current_task())
        for worker in done:
            if not worker.cancelled():  # else its handler did not end in time
                worker.result()

    async def _drain(self, workers: "Iterable[asyncio.Task[None]]", but: "asyncio.Task[object] | None") -> None:
        """Wait for handlers that run, and cancel those that take too long. `but`: who waits for it, perhaps in a handler."""
        busy = {worker for worker in workers if not worker.done()} - {but}
        if not busy:
            return
        try:
            await within(self._session.clock, self._session.settings.drain_timeout_s, asyncio.wait(busy))
        except TimeoutError:
            about = "%d handlers of %s did not end in time: cancelled, their messages come again"
            _log.warning(about, len(busy), self._plan.group)
            await cancel(*busy)

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message; asking for it finishes the ones before (`auto_commit`). Ends when the consumer is stopped, or
        closed."""
        self._session.connections.check_loop()
        if self._inbox.closed and not self._started:
            raise StopAsyncIteration
        self._ask_for_more()
        delivery = await self._inbox.take(_NEVER)
        if delivery is None:
            raise StopAsyncIteration
        return self._hand_out(delivery)

    async def receive(self, max: int = 32, timeout: float = 5.0) -> list[ReceivedMessage]:
        """Up to `max` messages, `[]` if none comes within `timeout` seconds.

        Asking for more finishes the ones before, as iterating does. Raises InvalidArgument, Closed.
        """
        check_receive(max, timeout)
        self._check_usable()
        self._ask_for_more()
        deadline = self._session.clock.monotonic() + timeout
        await asyncio.sleep(0)  # others get a turn, even if there is always something ready
        while True:
            messages = self._hand_out_ready(max)
            left_s = deadline - self._session.clock.monotonic()
            if messages or left_s <= 0 or self._inbox.closed:
                return messages
            try:
                await within(self._session.clock, left_s, self._inbox.until_arrived())
            except TimeoutError:
                continue

    def _hand_out_ready(self, limit: int) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        while len(messages) < limit and (delivery := self._inbox.take_now()) is not None:
            messages.append(self._hand_out(delivery))
        return messages

    def _hand_out(self, delivery: Delivery) -> ReceivedMessage:
        self._received.append(delivery)
        self._watch.handed(delivery.message)
        return delivery.message

    def _ask_for_more(self) -> None:
        self._check_started()
        if self._plan.auto_commit:
            self._finish_received()

    def _finish_received(self) -> None:
        for delivery in self._received:
            self._assignment.rates[delivery.window.queue.topic].handled += 1
            self._handling.finish(delivery)
            self._watch.done(delivery.message)
        self._received.clear()

    async def retry_later(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """A message that iteration or `receive` gave out last could not be handled: the group gets it again later, and here it
        is finished. `delay_level` as of `RetryLater`. Raises InvalidArgument; RmqError if no broker takes it."""
        self._check_started()
        if self._plan.broadcast or (self._plan.ordered and delay_level != DEAD):
            raise InvalidArgument("in order, or of a broadcast, nothing comes again later: handle it now")
        delivery = next((each for each in self._received if each.message is message), None)
        if delivery is None:
            raise InvalidArgument(f"{message!r} is finished already, or was handed to a handler, which may raise RetryLater")
        self._received.remove(delivery)
        try:
            await self._retries.give_back(message, checked_level(delay_level))
        except BaseException:
            self._received.append(delivery)
            raise
        self._handling.finish(delivery)
        self._watch.done(message, Outcome.FAILED)

    def _check_usable(self) -> None:
        """Raises Closed, and InvalidArgument in another loop or thread."""
        self._session.connections.check_loop()
        self._check_started()

    def _check_started(self) -> None:
        if not self._started:
            raise Closed("this consumer is not started, or closed: use `async with client.consumer(...)`")

    async def commit(self, *, sync: bool = True) -> None:
        """All that iteration and `receive` gave out is finished: commit it. With `sync` it is durable on return.

        Raises RmqError if a broker does not take it; nothing is lost then, commit again.
        """
        self._check_usable()
        self._finish_received()
        await self._assignment.save(self._assignment.windows(), sync=sync, unchanged=sync)

    async def _keep_committing(self) -> None:
        while True:
            await self._session.clock.sleep(self._session.settings.commit_s)
            for rates in self._assignment.rates.values():
                rates.sample(self._session.clock.monotonic())
            try:
                await self._assignment.save(self._assignment.windows(), sync=False, unchanged=False)
            except RmqError as error:
                _log.info("offsets of %s are committed later: %s", self._plan.group, error)

    def stop(self) -> None:
        """Hand out nothing more: `run` returns when its handlers have ended, iteration ends. A handler may call this, also one of
        signals, and any thread."""
        self._session.connections.have_done(self._inbox.close)

    async def close(self) -> None:
        """Let running handlers end, commit what is finished, leave the group. Nothing lost, nothing twice (C17).

        A message that iteration or `receive` gave out last counts as not finished unless `commit` was called.
        """
        self._session.connections.check_loop()
        asking = asyncio.current_task()
        self.begin_leaving(asking)
        if not self.waits_for(asking):
            await self.left()

    def begin_leaving(self, asking: "asyncio.Task[object] | None") -> None:
        """As `close`, and waits for nothing. `asking`: who will wait, perhaps in a handler."""
        self._inbox.close()
        if self._started:
            self._started, self._leaver = False, asking
            self._leaving = asyncio.create_task(self._leave(asking), name=f"leave {self._plan.group}")

    def waits_for(self, task: "asyncio.Task[object] | None") -> bool:
        """Whether it leaves as soon as that handler has ended, which therefore cannot wait for it."""
        return self._leaving is not None and task is not self._leaver and task in self._workers.running()

    async def left(self) -> None:
        """Returns when the leaving that was begun, if any, is done."""
        if self._leaving is not None:
            await asyncio.shield(self._leaving)

    async def _leave(self, asking: "asyncio.Task[object] | None") -> None:
        """To its end, though `asking`, who waits for it, is cancelled: who neither pulls nor leaves keeps his queues."""
        try:
            self._asked.stop()
            await self._drain(self._workers.running(), asking)
            for delivery in self._received:
                delivery.window.hold(delivery.message)
            await self._tasks.close()
            await self._handling.close()
            await self._assignment.stop_pulling()
            await self._assignment.finish()
        finally:
            await self._session.heartbeats.drop_consumer(self._plan.group)


def _check_runs(handler: Handler) -> None:
    """Raises InvalidArgument if it cannot be called, or a call makes a generator of either kind, and runs nothing of it."""
    if not callable(handler):
        raise InvalidArgument(f"handler {handler!r}: give a function; each message would count as failed")
    called = handler, type(handler).__call__  # of an object that is called
    if any(inspect.isasyncgenfunction(each) or (inspect.isgeneratorfunction(each) and not _awaits(each)) for each in called):
        raise InvalidArgument(f"{handler!r} has a `yield`: nothing of it would run, and each message would count as handled")


def _awaits(generator: object) -> bool:
    """Whether `types.coroutine` made it one that is awaited."""
    return bool(getattr(getattr(generator, "__code__", None), "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE)


_NEVER = asyncio.Event()
