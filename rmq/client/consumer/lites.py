"""Consuming lite topics: sub-topics of a topic of type LITE, of which each client has a set of its own, in order in each."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from types import TracebackType
from typing import NamedTuple, Self

from rmq import names
from rmq.client.consumer.simple import PoppedMessage, PoppingConsumer
from rmq.client.consumer.unreadable import Unreadable
from rmq.client.shared.connections import forget
from rmq.client.shared.message import checked_lite
from rmq.client.shared.reading import read_all
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import TaskSet, within
from rmq.codes import ResponseCode
from rmq.delivery.popping import NORMAL, Handle
from rmq.errors import BadBytes, Closed, InvalidArgument, Refusal, RmqError
from rmq.log.records import record
from rmq.log.records.properties import LIGHT_NAMES
from rmq.model import MessageQueue
from rmq.net.commands import Request
from rmq.net.commands.lites import (
    COMPLETE_ADD,
    COMPLETE_REMOVE,
    PARTIAL_ADD,
    PARTIAL_REMOVE,
    DeclareLites,
    LiteChange,
    LitePopAnswer,
    LiteTaken,
    PopLite,
)

_log = logging.getLogger("rmq.client")
_DECLARE_S = 60.0  # brokers forget who does not declare for three minutes
_MOMENT_S = 1.0
_PAUSE_S = 0.1  # between tries while no broker can be told
_MOST_NAMES = 1000  # in one request


class Answered(NamedTuple):
    """What a broker answered. `until_s`: so long nobody else gets them, also while this machine sleeps (`Clock.since_boot`)."""

    until_s: float
    messages: "list[LiteMessage]"


class LiteMessage(PoppedMessage):
    """`queue_offset`: that in its lite topic."""

    __slots__ = ()

    @property
    def lite_topic(self) -> str:
        return names.lite_parts(self.lies_in)[1]


class LiteConsumer(PoppingConsumer[LiteMessage]):
    """Takes messages of its lite topics when it asks. Get one from `Client.lite_consumer`, and use it with `async with`.

    `receive`, `ack`, `change_invisible` and `async for` are as of `SimpleConsumer`, except that each lite topic gives the next
    messages only when these are acknowledged, or these again when their time is over.
    """

    def __init__(self, session: Session, group: str, topic: str, lites: Iterable[str]) -> None:
        super().__init__(session, group)
        self._topic = topic
        self._client_id = f"{session.client_id}#{secrets.token_hex(4)}"  # of this consumer alone
        self._wanted_lites = dict.fromkeys(_checked(topic, lites))
        self._declared: set[str] = set()  # brokers that know the whole set
        self._unanswered: dict[str, str] = {}  # by broker: an attempt that may have been given messages; it gets them again
        self._asking: dict[str, asyncio.Task[Answered | RmqError]] = {}  # by broker; an answer waits for the next `receive`
        self._tasks = TaskSet()

    @property
    def lite_topics(self) -> list[str]:
        """Those that it has now. One that another client of an exclusive group took is no more among them."""
        return list(self._wanted_lites)

    async def __aenter__(self) -> Self:
        self._session.connections.on_request.append(self._requested)
        try:
            await self._everywhere(self._declare_all)
            Unreadable().look(self._topic, bool(await self._session.routes.readable(self._topic)))
        except BaseException:
            await self.close()
            raise
        self._tasks.start(self._keep_declared(), f"lite topics of {self._group}")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the consumer. Messages that were received and not acknowledged come back when their time is over."""
        self._session.connections.check_loop()
        if self.closed:
            return
        self.closed = True
        forget(self._session.connections.on_request, self._requested)
        await self._tasks.close()
        await asyncio.gather(*map(self._take_leave, self._declared))

    async def _take_leave(self, broker: str) -> None:
        try:
            await self._ask(broker, self._change(COMPLETE_REMOVE, []))
        except RmqError as error:
            _log.info("%s keeps the lite topics of a consumer that is closed for a while: %s", broker, error)

    async def add(self, *lites: str) -> None:
        """It wants these lite topics, too. Raises InvalidArgument, Closed, RmqError (as LITE_SUBSCRIPTION_QUOTA_EXCEEDED)."""
        self._check_open()
        new = [lite for lite in _checked(self._topic, lites) if lite not in self._wanted_lites]
        self._wanted_lites.update(dict.fromkeys(new))  # a declaration of the whole set may overtake this one
        try:
            await self._tell(PARTIAL_ADD, new)
        except BaseException:
            for lite in new:
                self._wanted_lites.pop(lite, None)
            raise

    async def remove(self, *lites: str) -> None:
        """It wants these no more. What it has of them may still be acknowledged. Raises InvalidArgument, Closed, RmqError."""
        self._check_open()
        old = [lite for lite in _checked(self._topic, lites) if lite in self._wanted_lites]
        for lite in old:
            del self._wanted_lites[lite]
        await self._tell(PARTIAL_REMOVE, old)

    # --- what brokers know

    async def _tell(self, action: str, lites: list[str]) -> None:
        async def one(broker: str) -> None:
            for first in range(0, len(lites), _MOST_NAMES):
                await self._ask(broker, self._change(action, lites[first : first + _MOST_NAMES]))

        if lites:
            try:
                await self._everywhere(one)
            except BaseException:  # some may have taken it
                if not self.closed:
                    self._tasks.start(self._declare_again(), f"lite topics of {self._group} as before")
                raise

    async def _declare_again(self) -> bool:
        """False: the client is closed."""
        try:
            await self._everywhere(self._declare_all)
        except Closed:
            return False
        except RmqError as error:
            _log.info("lite topics of %s are not declared for now: %s", self._group, error)
        return True

    async def _everywhere(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Who is not told hears of the whole set before it is asked for messages. Raises as `tell_brokers`."""
        within_s = self._session.settings.request_timeout_s
        for broker, error in (await tell_brokers(self._session, self._topic, tell, within_s)).items():
            self._declared.discard(broker)
            _log.info("%s does not hear for now which lite topics %s wants: %s", broker, self._group, error)

    async def _declare_all(self, broker: str) -> None:
        """The whole set; again if it was changed meanwhile: that may have come to the broker first."""
        self._declared.add(broker)  # before: another change may fail meanwhile
        told = None
        try:
            while told != self.lite_topics and broker in self._declared:
                told = self.lite_topics
                await self._ask(broker, self._change(COMPLETE_ADD, told))
        except BaseException:
            self._declared.discard(broker)
            raise

    def _change(self, action: str, lites: list[str]) -> DeclareLites:
        return DeclareLites([LiteChange(action, self._client_id, self._group, self._topic, lites)])

    async def _ask(self, broker: str, request: Request) -> None:
        await self._session.leaders.request(broker, request, self._session.settings.request_timeout_s)

    async def _keep_declared(self) -> None:
        """Runs until cancelled, or the client is closed: brokers forget clients that they do not hear of."""
        await self._session.clock.sleep(_DECLARE_S)
        while await self._declare_again():
            await self._session.clock.sleep(_DECLARE_S)

    def _requested(self, request: Request) -> None:
        if isinstance(request, LiteTaken) and (request.consumer_group, request.client_id) == (self._group, self._client_id):
            self._wanted_lites.pop(request.lite_topic, None)

    # --- asking

    async def _look(self, count: int, hidden_ms: int, wait_s: float) -> tuple[list[LiteMessage], RmqError | None]:
        """All brokers of the topic are asked at once; what comes from a second one, or late, waits for the next time."""
        trouble: RmqError | None = None
        reached = False
        try:
            for broker in await self._session.routes.readable(self._topic):
                if broker not in self._asking:
                    work = self._tried(broker, count, hidden_ms, wait_s)
                    self._asking[broker] = self._tasks.start(work, f"pop lite topics at {broker}")
        except RmqError as error:
            return [], error
        while self._asking and (done := await self._answered(reached)):
            self._check_open()  # who closes it cancels these
            for broker in [broker for broker, task in self._asking.items() if task in done]:
                found = self._asking.pop(broker).result()
                if isinstance(found, RmqError):
                    trouble = found
                elif found.messages and found.until_s > self._session.clock.since_boot():
                    return found.messages, None
                else:
                    reached = True
        return [], None if reached else trouble

    async def _answered(self, reached: bool) -> "set[asyncio.Task[Answered | RmqError]]":
        """The next ones that have. `reached`: others had nothing, so these get a moment only: one may stand still."""
        answering = asyncio.wait(self._asking.values(), return_when=asyncio.FIRST_COMPLETED)
        try:
            done, _ = await within(self._session.clock, _MOMENT_S if reached else inf, answering)
        except TimeoutError:
            return set()
        return done

    async def _tried(self, broker: str, count: int, hidden_ms: int, wait_s: float) -> Answered | RmqError:
        """The messages, or why there are none."""
        try:
            return await self._found(broker, count, hidden_ms, wait_s)
        except RmqError as error:
            return error

    async def _found(self, broker: str, count: int, hidden_ms: int, wait_s: float) -> Answered:
        if broker not in self._declared:
            await self._declare_all(broker)
        clock = self._session.clock
        attempt_id = self._unanswered.pop(broker, "") or secrets.token_hex(8)
        request = PopLite(
            self._client_id,
            self._group,
            self._topic,
            count,
            hidden_ms,
            int(wait_s * 1000),
            clock.wall_ms(),
            attempt_id,
            declared=True,
        )
        try:
            answer = await pop_lites(self._session, broker, request, self._timeout_s(wait_s), lambda: self._declare_all(broker))
        except RmqError as error:
            if error.may_pass:
                self._unanswered[broker] = attempt_id
            raise
        until_s = clock.since_boot() + hidden_ms / 1000
        return Answered(until_s, popped_lites(answer, self._topic, broker))


async def tell_brokers(
    session: Session, topic: str, tell: Callable[[str], Awaitable[None]], within_s: float
) -> dict[str, BaseException]:
    """Tells each broker of the topic. Those that cannot be told for now hold up no other: returns them, and why. While none can,
    as in an election, all are told again until `within_s` are over: that does no harm. Raises RmqError if one refuses, or none
    could be told."""
    clock = session.clock
    deadline = clock.monotonic() + within_s
    brokers = await session.routes.readable(topic)
    while True:
        told = await asyncio.gather(*map(tell, brokers), return_exceptions=True)
        failed = {broker: error for broker, error in zip(brokers, told, strict=True) if error is not None}
        for error in failed.values():
            passes = isinstance(error, RmqError) and error.may_pass
            if not passes or (len(failed) == len(brokers) and clock.monotonic() + _PAUSE_S > deadline):
                raise error
        if len(failed) < len(brokers) or not brokers:
            return failed
        await clock.sleep(_PAUSE_S)


async def pop_lites(
    session: Session, broker: str, request: PopLite, timeout_s: float, declare: Callable[[], Awaitable[None]]
) -> LitePopAnswer:
    """`declare()`: tells the broker what the client wants, where that has not heard of it: it leads anew, or was not told for
    long. Raises as `Leaders.request`."""
    try:
        answer = await session.leaders.request(broker, request, timeout_s)
    except Refusal as refusal:
        if refusal.code != ResponseCode.SUBSCRIPTION_NOT_EXIST:
            raise
        await declare()
        answer = await session.leaders.request(broker, request, timeout_s)
    assert isinstance(answer, LitePopAnswer)
    return answer


def popped_lites(answer: LitePopAnswer, topic: str, broker: str) -> list[LiteMessage]:
    """The messages of an answer, each with its receipt. Raises BadBytes."""
    return [_message(stored, answer, topic, broker) for stored in read_all(answer.messages)]


def _message(stored: record.Record, answer: LitePopAnswer, topic: str, broker: str) -> LiteMessage:
    said = record.bytes_to_properties(stored.properties)
    queues = said.get(LIGHT_NAMES, "").split(",")
    queue = next((name for name in queues if name.startswith(names.lite_family(topic))), "")
    if not queue:
        raise BadBytes(f"{broker} gave a message of no lite topic of {topic}")
    offset = record.queue_offset_in(queue, stored)
    receipt = Handle(offset, answer.pop_time, answer.invisible_time, answer.revive_qid, NORMAL, broker, 0, offset)
    message = LiteMessage(stored, MessageQueue(queue, broker, 0), queue, receipt)
    message.queue_offset = offset
    return message


def _checked(topic: str, lites: Iterable[str]) -> list[str]:
    if isinstance(lites, str):
        raise InvalidArgument('the lite topics are a text: give a list, as ["room-1"]')
    return [checked_lite(topic, lite) for lite in lites]
