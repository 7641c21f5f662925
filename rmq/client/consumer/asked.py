"""Answers what tools ask a consumer through its brokers: its state, its offsets, and to handle one message now
[ClientRemotingProcessor]."""

import asyncio
import inspect
import io
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, Final

from rmq import __version__
from rmq.client.consumer.assignment import Assignment
from rmq.client.consumer.patience import is_being_cancelled
from rmq.client.consumer.plan import Plan
from rmq.client.consumer.retries import RetryLater
from rmq.client.consumer.window import Window
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.session import Session
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.net.commands import reports
from rmq.net.commands.questions import ClientReport, ConsumeDirectly, GetHeldOffsets, GetRunningInfo
from rmq.net.commands.reports import Handled, HeldQueue, RunningInfo

Handler = Callable[[ReceivedMessage], object]
_MOST_AT_ONCE: Final = 16  # messages from tools that may be handled at the same time
_MOST_TASKS: Final = 500  # tasks whose stacks are reported
_MOST_LETTERS: Final = 1 << 16  # of why a handler failed: a longer answer than brokers take would end the connection
_MIB: Final = 1 << 20


class Asked:
    """What one consumer answers with. `handler`: its handler, and how many may run at a time; None while nothing runs."""

    def __init__(self, session: Session, plan: Plan, assignment: Assignment) -> None:
        self._session = session
        self._plan = plan
        self._assignment = assignment
        self._started_ms = 0
        self._handling = 0
        self.handler: Handler | None = None
        self.concurrency = 1

    def start(self) -> None:
        """From now on answers the questions to the group."""
        self._started_ms = self._session.clock.wall_ms()
        self._session.connections.on_question[self._plan.group] = {
            GetRunningInfo: self.running,
            GetHeldOffsets: self.held_offsets,
            ConsumeDirectly: self.consume,
        }

    def stop(self) -> None:
        self._session.connections.on_question.pop(self._plan.group, None)

    def held_offsets(self, request: GetHeldOffsets) -> ClientReport:
        windows = self._assignment.windows()
        offsets = {each.queue: each.committable for each in windows if each.queue.topic == request.topic}
        return ClientReport(_json().write_held_offsets(offsets))

    def running(self, request: GetRunningInfo) -> ClientReport:
        clock, plan = self._session.clock, self._plan
        now = clock.monotonic()
        properties = {
            reports.CONSUME_TYPE: "CONSUME_PASSIVELY",
            reports.ORDERED: str(plan.ordered).lower(),
            reports.THREADS: str(self.concurrency),
            reports.STARTED_MS: str(self._started_ms),
            reports.NOW_MS: str(clock.wall_ms()),
            reports.NAMESERVERS: ";".join(self._session.nameservers.addresses),
            reports.VERSION: f"rmq {__version__}",
            "messageModel": plan.heartbeat().message_model,
            "consumeFromWhere": plan.heartbeat().consume_from_where,
            "pullThresholdForQueue": str(plan.max_messages),
            "maxReconsumeTimes": str(plan.max_retries),
        }
        info = RunningInfo(
            properties,
            list(plan.topics.values()),
            {queue: self._held(queue, window, now) for queue, window in self._assignment.held().items()},
            {topic: rates.report(now) for topic, rates in self._assignment.rates.items()},
            stacks() if request.jstack_enable else "",
        )
        return ClientReport(_json().write_running(info))

    def _held(self, queue: MessageQueue, window: Window | None, now: float) -> HeldQueue:
        locked_s = self._assignment.locked_at(queue)
        if window is None:
            return HeldQueue()
        first, last = window.ends
        return HeldQueue(
            window.committable,
            first,
            last,
            window.count,
            window.bytes_held // _MIB,
            locked_s is not None,
            self._wall_ms(locked_s, now),
            window.dropped,
            self._wall_ms(window.pulled_s, now),
            self._wall_ms(window.handled_s, now),
        )

    def _wall_ms(self, at_s: float | None, now: float) -> int:
        """Unix ms of a monotonic moment; 0 for never."""
        return 0 if at_s is None else self._session.clock.wall_ms() - int((now - at_s) * 1000)

    async def consume(self, request: ConsumeDirectly) -> ClientReport:
        """Hands the message to the handler, besides its other messages. Raises Refusal."""
        handler = self.handler
        if handler is None:
            about = f"no handler of {self._plan.group} runs here: this member takes its messages one by one"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)
        if self._handling >= _MOST_AT_ONCE:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"{self._handling} such messages are being handled: try again later")
        message = _message_of(request)
        began_s = self._session.clock.monotonic()
        self._handling += 1
        try:
            result, remark = await self._tried(handler, message)
        finally:
            self._handling -= 1
        spent_ms = int((self._session.clock.monotonic() - began_s) * 1000)
        return ClientReport(_json().write_handled(Handled(result, remark[:_MOST_LETTERS], spent_ms, self._plan.ordered)))

    async def _tried(self, handler: Handler, message: ReceivedMessage) -> tuple[str, str]:
        """RocketMQ's word for the outcome, and the reason [CMResult]."""
        try:
            result = handler(message)
            if inspect.isawaitable(result):
                await _within(result, self._plan.handler_s)
        except RetryLater as later:
            return "CR_LATER", str(later)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            return "CR_THROW_EXCEPTION", "".join(traceback.format_exception_only(error)).strip()
        return "CR_SUCCESS", ""


async def _within(work: Awaitable[Any], seconds: float | None) -> None:
    async with asyncio.timeout(seconds):
        await work


def _message_of(request: ConsumeDirectly) -> ReceivedMessage:
    """Raises Refusal."""
    try:
        stored = record.decode(request.message)
    except BadBytes as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{request.msg_id} cannot be read: {error}") from None
    if not record.body_is_right(stored):
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{request.msg_id} is damaged")
    return ReceivedMessage(stored, MessageQueue(stored.topic, request.broker_name, stored.queue_id))


def stacks() -> str:
    """The stacks of all threads, and of this thread's tasks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(number, number)}\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    ]
    for task in list(asyncio.all_tasks())[:_MOST_TASKS]:
        written = io.StringIO()
        task.print_stack(file=written)
        parts.append(f"task {task.get_name()}\n{written.getvalue()}")
    return "\n".join(parts)


def _json() -> ModuleType:
    """The module that writes what RocketMQ's tools read, imported at the first question."""
    from rmq.net.remoting import reports as json

    return json
