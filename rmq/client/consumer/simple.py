"""Consuming without queues of one's own: ask for messages, acknowledge each; messages without acknowledgement come back (POP)."""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from math import inf
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rmq.client.consumer.plan import Expression, check_receive
from rmq.client.consumer.unreadable import Unreadable
from rmq.client.consumer.watching import Watch
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.reading import read_all
from rmq.client.shared.routes import get_all
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import TaskSet
from rmq.codes import ResponseCode
from rmq.delivery import filters
from rmq.delivery.filters import Exact
from rmq.delivery.popping import MAX_MESSAGES, Handle, stored_in
from rmq.errors import BadBytes, Closed, InvalidArgument, Refusal, RmqError, Unknown, no_topic
from rmq.model import MessageQueue, Route
from rmq.net.commands.pop import (
    Ack,
    ChangeInvisibleTime,
    InvisibleTimeAnswer,
    Notification,
    NotificationAnswer,
    Pop,
    PopAnswer,
)

_log = logging.getLogger("rmq.client")
ANY = -1  # queue: whichever has something
MAX_INVISIBLE_S = 3 * 24 * 3600
ANSWER_MARGIN_S = 10.0  # a broker looks at its waiting pops every second
_LONGEST_WAIT_S = 3600.0  # of one request: numbers on the wire have an end, and whoever waits may not
_PAUSE_S = 0.2  # before a broker that does not answer is asked again
_SILENT_S = 5.0  # so long a broker that stood still is not asked, if there are others
_MISSING_S = 1.0  # so long a broker may wait for messages while a topic is missing: then that is looked for again
Target = tuple[str, str]  # topic, broker name


class PoppedMessage(ReceivedMessage):
    """A message with its receipt, by which it is acknowledged. `lies_in`: its topic, or where it came back."""

    __slots__ = ("lies_in", "receipt")

    def __init__(self, stored: Any, queue: MessageQueue, lies_in: str, receipt: Handle) -> None:
        super().__init__(stored, queue)
        self.lies_in = lies_in
        self.receipt = receipt


Popped = TypeVar("Popped", bound=PoppedMessage)


class PoppingConsumer(ABC, Generic[Popped]):
    """What simple and lite consumers share: receiving and acknowledging."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._watch = Watch(session.observer, group)
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the consumer. Messages that were received and not acknowledged come back when their time is over."""
        self._session.connections.check_loop()
        self.closed = True

    async def receive(
        self, max_messages: int = MAX_MESSAGES, *, invisible_seconds: float = 60.0, wait_seconds: float = 15.0
    ) -> list[Popped]:
        """Up to `max_messages` (1 to 32), as soon as there are any; `[]` if there are none for `wait_seconds`.

        Nobody else of the group gets them for `invisible_seconds`. A topic that does not exist is waited for, too; the others
        are served meanwhile. Raises InvalidArgument, Closed, and at the end what the last broker said if none of them could be
        asked, or Refusal (TOPIC_NOT_EXIST) if there is none of the topics.
        """
        check_receive(max_messages, wait_seconds)
        if max_messages > MAX_MESSAGES:
            raise InvalidArgument(f"max_messages {max_messages}: give 1 to {MAX_MESSAGES}")
        hidden_ms, clock = _milliseconds(invisible_seconds), self._session.clock
        deadline = clock.monotonic() + wait_seconds
        pause_s = _PAUSE_S
        while True:
            self._check_open()
            asked_s = clock.monotonic()
            left_s = min(max(deadline - asked_s, 0.0), _LONGEST_WAIT_S)
            found, trouble = await self._look(max_messages, hidden_ms, left_s)
            if found or (left_s == 0.0 and trouble is None):
                for message in found:
                    self._watch.handed(message)
                return found
            if trouble is not None:
                if left_s == 0.0 or not (trouble.passing or isinstance(trouble, Unknown) or _lacks_topic(trouble)):
                    raise trouble
                await clock.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _MISSING_S) if _lacks_topic(trouble) else _PAUSE_S
            elif clock.monotonic() - asked_s < _PAUSE_S:  # a broker that does not wait for messages is not asked without a pause
                await clock.sleep(min(_PAUSE_S, left_s))

    async def __aiter__(self) -> AsyncIterator[Popped]:
        """Message by message; asking for the next one acknowledges the one before. Ends when this, or its client, is closed."""
        while not self.closed:
            try:
                found = await self.receive(1)
            except Closed:
                return
            for message in found:
                yield message
                await self.ack(message)

    async def ack(self, message: PoppedMessage) -> None:
        """The message is done; when this returns, it does not come back. Repeating is no error.

        Raises Refusal (NO_MESSAGE) when it is gone altogether, and what a broker said that could not be asked in time.
        """
        _, broker_name, queue_id = message.queue
        request = Ack(self._group, message.lies_in, queue_id, message.receipt.text(), message.queue_offset)
        timeout_s = self._session.settings.request_timeout_s
        await self._session.leaders.persist(broker_name, request, timeout_s, within_s=3 * timeout_s, harmless=True)
        self._watch.done(message)

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """The message comes back that many seconds from now (0: at once) unless it is acknowledged, with the same object.

        Raises Refusal (NO_MESSAGE) when its time is over: it has come back, or was acknowledged.
        """
        _, broker_name, queue_id = message.queue
        request = ChangeInvisibleTime(
            self._group, message.lies_in, queue_id, message.receipt.text(), message.queue_offset, _milliseconds(seconds)
        )
        answer = await self._session.leaders.persist(broker_name, request, self._session.settings.request_timeout_s)
        assert isinstance(answer, InvisibleTimeAnswer)
        message.receipt = renewed(message.receipt, message.queue_offset, answer)

    @abstractmethod
    async def _look(self, count: int, hidden_ms: int, wait_s: float) -> tuple[list[Popped], RmqError | None]:
        """Messages, after a wait of at most that length; and the reason if no broker could be asked."""

    def _check_open(self) -> None:
        """Raises Closed, and InvalidArgument in another loop or thread."""
        self._session.connections.check_loop()
        if self.closed:
            raise Closed("this consumer is closed: make a new one")

    def _timeout_s(self, poll_s: float) -> float:
        """Of a pop that waits at the broker for so long."""
        return self._session.settings.request_timeout_s + (poll_s + ANSWER_MARGIN_S if poll_s else 0.0)


class SimpleConsumer(PoppingConsumer[PoppedMessage]):
    """Takes messages when it asks. Get one from `Client.simple_consumer`; `async with` ends it.

    Each message is hidden from the rest of the group for a time, and comes back after that unless it was acknowledged: at
    least once, from any number of consumers on any number of queues, in no order. It is no member of the group: nothing is
    divided among members, and nothing has to be given back at the end.
    """

    def __init__(self, session: Session, group: str, wanted: Mapping[str, tuple[Expression, Exact]], from_first: bool) -> None:
        super().__init__(session, group)
        self._wanted = wanted
        self._init_mode = 0 if from_first else 1
        self._turn = random.randrange(1000)
        self._missing: dict[str, float] = {}  # topics that did not exist at that time (monotonic s)
        self._unreadable = Unreadable()
        self._unanswered: dict[str, float] = {}  # those for which no nameserver answered, at that time
        self._silent: dict[str, float] = {}  # brokers that stood still when they were asked last, at that time

    async def _targets(self) -> list[Target]:
        """Brokers that have one of the topics, beginning with another one each time. Raises RmqError if none is known, and one
        could not be asked for."""
        routes = self._session.routes
        trouble = await self._look_for([topic for topic in self._wanted if routes.known(topic) is None])
        found: list[Target] = []
        for topic in self._wanted:
            if routes.known(topic) is not None:
                self._missing.pop(topic, None)
                readable = await routes.readable(topic)
                self._unreadable.look(topic, bool(readable))
                found += [(topic, broker_name) for broker_name in readable]
        if trouble is not None and (not found or not trouble.passing):
            raise trouble
        self._turn += 1
        first = self._turn % len(found) if found else 0
        return found[first:] + found[:first]

    async def _look_for(self, topics: list[str]) -> RmqError | None:
        """Asks nameservers for topics that are not known: for all at once, and where that was in vain not each time, as messages
        of the others wait meanwhile. Returns why one could not be asked for."""
        now = self._session.clock.monotonic()
        if len(topics) < len(self._wanted):
            topics = [topic for topic in topics if now - self._unanswered.get(topic, -inf) > _SILENT_S]
        topics = [topic for topic in topics if now - self._missing.get(topic, -inf) >= _PAUSE_S]  # now and then only
        told = await get_all(self._session.routes, topics)
        troubles = [self._trouble(topic, found, now) for topic, found in zip(topics, told, strict=True)]
        return next((error for error in troubles if error is not None), None)

    def _trouble(self, topic: str, told: Route | RmqError, asked_s: float) -> RmqError | None:
        """Why it could not be asked for, if so. A topic that does not exist is noted."""
        self._unanswered.pop(topic, None)
        if isinstance(told, Route):
            return None
        if not _lacks_topic(told):
            self._unanswered[topic] = self._session.clock.monotonic()
            return told
        if topic not in self._missing:
            _log.warning("%s is consumed as soon as it exists: %s", topic, told)
        self._missing[topic] = asked_s
        return None

    async def _look(self, count: int, hidden_ms: int, wait_s: float) -> tuple[list[PoppedMessage], RmqError | None]:
        trouble: RmqError | None = None
        reached = False
        try:
            targets = await self._targets()
        except RmqError as error:
            return [], error
        if self._missing:
            wait_s = min(wait_s, _MISSING_S)
            if not targets:
                return [], no_topic(", ".join(self._missing))
        began_s = self._session.clock.monotonic()
        for target in self._in_turn(targets):
            if self._silent.get(target[1], -inf) >= began_s:  # one of its topics has waited for it
                continue
            poll_s, asked_s = wait_s if len(targets) == 1 else 0.0, self._session.clock.monotonic()
            self._silent.pop(target[1], None)
            try:
                found = await self._pop(target, count, hidden_ms, poll_s)
            except RmqError as error:
                trouble, now = error, self._session.clock.monotonic()
                if now - asked_s > self._session.settings.request_timeout_s / 2:
                    self._silent[target[1]] = now
                if error.refresh_routes:
                    self._session.routes.refresh_behind(target[0])
                continue
            reached = True
            if found:
                return found, None
        if reached and wait_s and len(targets) > 1:
            await self._until_something(targets, wait_s)
        return [], None if reached else trouble

    def _in_turn(self, targets: list[Target]) -> list[Target]:
        """A broker that stands still takes the whole time of a request, and messages of the others wait meanwhile: it comes last,
        and not each time."""
        now = self._session.clock.monotonic()
        last = [target for target in targets if target[1] in self._silent]
        first = [target for target in targets if target[1] not in self._silent]
        return first + [target for target in last if not first or now - self._silent[target[1]] > _SILENT_S]

    async def _pop(self, target: Target, count: int, hidden_ms: int, poll_s: float) -> list[PoppedMessage]:
        topic, broker_name = target
        (expression, expression_type), exact = self._wanted[topic]
        request = Pop(
            self._group, topic, ANY, count, hidden_ms, int(poll_s * 1000), self._session.clock.wall_ms(), self._init_mode,
            expression_type, expression,
        )  # fmt: skip
        answer = await self._session.leaders.request(broker_name, request, self._timeout_s(poll_s))
        assert isinstance(answer, PopAnswer)
        wanted = []
        for message in popped_in(answer, self._group, topic, broker_name):
            if filters.matches(exact, message.properties):
                wanted.append(message)
            else:  # the broker compares hashes of tags only (C14)
                try:
                    await self.ack(message)
                except RmqError as error:  # it is left out again then; the others are wanted now
                    _log.info("%s, which the filter leaves out, comes again: %s", message, error)
        return wanted

    async def _until_something(self, targets: list[Target], wait_s: float) -> None:
        """Waits until one of these brokers has something. Asks without taking, or messages of two brokers would have to wait."""
        tasks = TaskSet()
        questions = {tasks.start(self._notified(target, wait_s), f"notify {target}") for target in targets}
        try:
            await asyncio.wait(questions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await tasks.close()

    async def _notified(self, target: Target, wait_s: float) -> None:
        topic, broker_name = target
        (expression, expression_type), _ = self._wanted[topic]
        request = Notification(
            self._group, topic, ANY, int(wait_s * 1000), self._session.clock.wall_ms(), exp_type=expression_type, exp=expression
        )
        try:
            answer = await self._session.leaders.request(broker_name, request, wait_s + ANSWER_MARGIN_S)
            if isinstance(answer, NotificationAnswer) and (answer.has_msg or not answer.polling_full):
                return
        except RmqError as error:
            _log.info("%s is not asked for %s for now: %s", broker_name, topic, error)
        await self._session.clock.sleep(min(_PAUSE_S * 5, wait_s))


def _lacks_topic(error: RmqError) -> bool:
    return isinstance(error, Refusal) and error.code == ResponseCode.TOPIC_NOT_EXIST


def _milliseconds(seconds: float) -> int:
    if not 0 <= seconds <= MAX_INVISIBLE_S:
        raise InvalidArgument(f"{seconds} seconds: messages are hidden for 0 to {MAX_INVISIBLE_S}")
    return max(1, int(seconds * 1000))


def renewed(receipt: Handle, queue_offset: int, answer: InvisibleTimeAnswer) -> Handle:
    """The receipt of a message whose time was changed, by which it is acknowledged from now on."""
    return receipt._replace(
        start=queue_offset, pop_time=answer.pop_time, invisible_ms=answer.invisible_time, revive_queue=answer.revive_qid
    )


def popped_in(answer: PopAnswer, group: str, topic: str, broker_name: str) -> list[PoppedMessage]:
    """The messages, each with its receipt from the lists of the answer. Raises BadBytes."""
    if answer.status:
        return []
    try:
        starts = {(flag, queue): int(start) for flag, queue, start in map(str.split, answer.start_offset_info.split(";"))}
        places = [
            (flag, int(queue), starts[flag, queue], int(queue_offset))
            for flag, queue, queue_offsets in map(str.split, answer.msg_offset_info.split(";"))
            for queue_offset in queue_offsets.split(",")
        ]
        found = []
        for stored, (flag, queue_id, start, queue_offset) in zip(read_all(answer.messages), places, strict=True):
            receipt = Handle(
                start, answer.pop_time, answer.invisible_time, answer.revive_qid, flag, broker_name, queue_id, queue_offset
            )
            lies_in = stored_in(flag, group, topic)
            found.append(PoppedMessage(stored, MessageQueue(topic, broker_name, queue_id), lies_in, receipt))
    except (ValueError, KeyError) as error:
        raise BadBytes(f"the answer of {broker_name} to a pop does not tell the receipts of its messages: {error!r}") from error
    return found
