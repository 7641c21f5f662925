"""Carries what is to be stored to a broker: the first try, how often to try again, where, and when to give up."""

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rmq.client.producer.queues import TopicQueues
from rmq.client.shared.leaders import Failed
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import within
from rmq.codes import ResponseCode
from rmq.errors import OTHER_LOOP, Refusal, RmqError, Unknown, Unreachable
from rmq.model import MessageQueue
from rmq.net.commands import Answer, Send, SendAnswer
from rmq.routing.choose import FAILED_MS

RETRIES = 2  # [retryTimesWhenSendFailed]
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5  # between tries
_, _DEFAULT_TOPIC, _DEFAULT_QUEUES, *_ = Send._field_defaults.values()
_new = tuple.__new__  # makes a named tuple in a third of the time


class Outgoing(NamedTuple):
    """One request: what is sent, how its queue is chosen, until when (monotonic s) it may be tried.

    `ordered`: its queue is chosen among all, not only among those that can take it now: messages of a key stay together.
    """

    topic: str
    records: bytes
    choose: Callable[[Sequence[MessageQueue], str], MessageQueue]
    deadline: float
    ordered: bool = False
    retry_unknown: bool = False
    batch: bool = False


_Asked = tuple[MessageQueue, str, "Future[Answer]"]
"""The first try: its queue, the address that was asked, and the answer to come."""


@dataclass(slots=True)
class _Tries:
    """What has been tried of one request."""

    count: int = 0
    refusals: int = 0  # refusals that may be gone at the next try
    unknown: Unknown | None = None  # a try that may have stored it
    avoid: str = ""  # broker group of the last failure
    moved: bool = False  # other queues were looked for


class Storing:
    """Of one producer."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._queues = TopicQueues(session)

    def forget_topics(self) -> None:
        self._queues = TopicQueues(self._session)

    async def post(self, outgoing: Outgoing) -> None:
        """Hands it over to a connection, once, and waits for no answer. Raises Refusal, Unreachable, Closed."""
        queue = outgoing.choose(await self._queues.find(outgoing.topic, outgoing.ordered, outgoing.deadline), "")
        address = self._session.routes.leader(queue.broker_name)
        await self._session.connections.post(address, self._request(outgoing, queue))

    async def store(self, outgoing: Outgoing) -> tuple[MessageQueue, SendAnswer]:
        """Nearly always one try on an open connection is all: that one costs a future, and what more it takes is `_deliver`'s."""
        asked = self._ask(outgoing)
        if asked is None:
            return await self._deliver(outgoing)
        queue, address, answer = asked
        try:
            return queue, await answer  # type: ignore[return-value] # it answers a send
        except RmqError as error:
            failed = Failed(address, error)
        except RuntimeError:  # asyncio's: another thread's loop, which came while this one was about to write
            raise Unknown(f"{OTHER_LOOP}; the message may or may not be stored") from None
        return await self._deliver(outgoing, queue, failed)

    def _ask(self, outgoing: Outgoing) -> _Asked | None:
        """The first try, if it can be made at once."""
        session = self._session
        topic, _, choose, deadline, ordered, _, _ = outgoing
        try:
            queues = self._queues.known(topic, ordered)
            if queues is None:
                return None
            queue = choose(queues, "")
            address = session.routes.leader_of(queue.broker_name)
            channel = session.connections.ready(address)
            if channel is None:  # or nobody leads
                return None
            return queue, address, channel.ask(self._request(outgoing, queue), deadline)
        except (Refusal, Unreachable):
            return None  # `_deliver` meets it again, and waits for better

    async def _deliver(
        self, outgoing: Outgoing, queue: MessageQueue | None = None, failed: Failed | None = None
    ) -> tuple[MessageQueue, SendAnswer]:
        """Tries until it is stored, or no further try is of use. `failed`: the first one, of `queue`."""
        tries = _Tries()
        while True:
            try:
                if queue is None:
                    queues = await self._queues.find(outgoing.topic, outgoing.ordered, outgoing.deadline)
                    queue = outgoing.choose(queues, tries.avoid)
                return queue, await self._try(outgoing, queue, failed)
            except RmqError as error:
                tries.count += 1
                tries.unknown = error if isinstance(error, Unknown) else tries.unknown
                if queue is not None and await self._is_gone(queue, error, outgoing, tries):
                    queue = failed = None
                    continue
                if not self._may_try_again(error, outgoing, tries):
                    raise tries.unknown or error  # noqa: B904 (the same, or what must not be forgotten)
                tries.avoid = queue.broker_name if queue else ""
                await self._recover(error, outgoing, tries)
                if self._session.clock.monotonic() >= outgoing.deadline:
                    raise tries.unknown or error  # noqa: B904 (no last try without time, which could only hide why, or end as unknown)
            queue = failed = None

    async def _try(self, outgoing: Outgoing, queue: MessageQueue, failed: Failed | None) -> SendAnswer:
        left_s = max(0.001, outgoing.deadline - self._session.clock.monotonic())
        answer = await self._session.leaders.request(queue.broker_name, self._request(outgoing, queue), left_s, failed)
        assert isinstance(answer, SendAnswer)
        return answer

    def _request(self, outgoing: Outgoing, queue: MessageQueue) -> Send:
        topic, records, _, _, _, _, batch = outgoing
        return _new(Send, (self._group, topic, queue.queue_id, records, 0, _DEFAULT_TOPIC, _DEFAULT_QUEUES, batch, -1, False))

    async def _is_gone(self, queue: MessageQueue, error: RmqError, outgoing: Outgoing, tries: _Tries) -> bool:
        """Whether the topic, as nameservers tell it now, lacks a queue that its broker refused: it has fewer than before, and
        another one is to be chosen, once."""
        left_s = outgoing.deadline - self._session.clock.monotonic()
        if tries.moved or left_s <= 0 or not (isinstance(error, Refusal) and error.code == ResponseCode.INVALID_PARAMETER):
            return False
        tries.moved = True
        await self._refresh(outgoing.topic, left_s)
        try:
            return queue not in (self._queues.known(outgoing.topic, True) or ())
        except (Refusal, Unreachable):
            return False

    def _may_try_again(self, error: RmqError, outgoing: Outgoing, tries: _Tries) -> bool:
        if self._session.clock.monotonic() >= outgoing.deadline:
            return False
        if isinstance(error, Unknown):
            return outgoing.retry_unknown
        if isinstance(error, Refusal) and error.wait_ms:
            return False  # it was waited for, as long as there was time
        tries.refusals += not error.passing
        return error.passing or (error.retryable and tries.refusals <= RETRIES)

    async def _recover(self, error: RmqError, outgoing: Outgoing, tries: _Tries) -> None:
        """Tries another broker at once, the same one after a pause; asks for a new route where that may help."""
        clock = self._session.clock
        if tries.avoid and error.may_pass:
            self._session.isolation.report(tries.avoid, FAILED_MS, clock.monotonic())
        if tries.count > 1 or not self._queues.elsewhere(outgoing.topic, tries.avoid):
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (tries.count - 1))
            await clock.sleep(max(0.0, min(pause_s, outgoing.deadline - clock.monotonic())))
        if error.refresh_routes and self._session.routes.known(outgoing.topic) is not None:
            await self._refresh(outgoing.topic, max(0.001, outgoing.deadline - clock.monotonic()))

    async def _refresh(self, topic: str, timeout_s: float) -> None:
        try:
            await within(self._session.clock, timeout_s, self._session.routes.refresh(topic))
        except (RmqError, TimeoutError):
            return  # the known route stays (N3); if it is wrong the next try shows it
