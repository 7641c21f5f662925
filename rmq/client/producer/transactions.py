"""Messages that are delivered only if a local transaction succeeded [TransactionMQProducer].

The message is stored hidden (a *half*), then the local work is done, then the broker is told the outcome. If anything breaks in
between, the broker asks some producer of the group later, and `check` must know the outcome.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from rmq.client.producer.producer import Producer, Selector
from rmq.client.shared.connections import forget
from rmq.client.shared.message import Message, ReceivedMessage, SendResult
from rmq.client.shared.observers import TransactionEnd
from rmq.client.shared.session import Session, checked_topic
from rmq.client.shared.tasks import TaskSet
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError, Unknown
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.net.commands import Request
from rmq.net.commands.transactions import COMMIT, ROLLBACK, UNKNOWN, CheckTransactionState, EndTransaction

_log = logging.getLogger("rmq.client")
_END_S = 10.0  # so long the producer tries to report an outcome; an election takes less
_TRY_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5
_CHECKS_AT_ONCE = 16
MAX_CHECKS = 1_000  # checks that wait for their turn, and checks that run


class Decision(IntEnum):
    """The outcome of the local transaction. UNKNOWN: the broker will ask (again)."""

    COMMIT = COMMIT
    ROLLBACK = ROLLBACK
    UNKNOWN = UNKNOWN


_STATES = {Decision.COMMIT: "COMMIT_MESSAGE", Decision.ROLLBACK: "ROLLBACK_MESSAGE", Decision.UNKNOWN: "UNKNOW"}
"""[LocalTransactionState]"""


class TransactionResult(NamedTuple):
    """`sent`: the half. COMMIT and ROLLBACK are in force: the broker has confirmed them."""

    sent: SendResult
    decision: Decision


Execute = Callable[[SendResult], Decision | Awaitable[Decision]]
Check = Callable[[ReceivedMessage], Decision | Awaitable[Decision]]


class TransactionProducer(Producer):
    """A producer that can send in transactions. Get one from `Client.transaction_producer`; its errors are a Producer's."""

    def __init__(self, session: Session, group: str, check: Check, topics: Iterable[str] | str = ()) -> None:
        known = [checked_topic(topic) for topic in ((topics,) if isinstance(topics, str) else topics)]
        super().__init__(session, group)
        self._check = check
        self._tasks = TaskSet()
        self._room = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._at_work: set[str] = set()  # message ids whose local transaction runs here
        session.connections.on_request.append(self._asked)
        for topic in known:
            self._tasks.start(self._learn(topic), f"route of {topic}")

    async def close(self) -> None:
        """No more sends and answers; the brokers are told."""
        self._session.connections.check_loop()
        forget(self._session.connections.on_request, self._asked)
        await self._tasks.close()
        await super().close()

    async def send_in_transaction(
        self,
        message: Message,
        execute: Execute,
        *,
        key: str | None = None,
        queue: MessageQueue | Selector | None = None,
        timeout: float = 3.0,
        immunity: int = 0,
    ) -> TransactionResult:
        """Store the half, call `execute` with its place, tell the broker what it said, and wait until that is in force.

        `immunity`: seconds in which the broker does not ask (it may have a longer time of its own: 6 s by default); when they
        are over only `check` decides. If `execute` raises, the error comes through and the broker will ask; so it will where
        `execute` returns no Decision, which is an InvalidArgument. Raises Unknown also when the broker could not be told: it
        will ask `check`, which must give the same answer.
        """
        more = {"TRAN_MSG": "true", "PGROUP": self._group}
        if immunity:
            more["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(immunity)
        message = message if message.message_id else message._replace(message_id=self._session.ids.next())
        message_id = message.message_id
        self._at_work.add(message_id)
        try:
            sent = await self.send_with(message, more, key=key, queue=queue, timeout=timeout, half=True)
            decision = await _decided(execute(sent), "execute")
            name = sent.queue.broker_name
            if decision != Decision.UNKNOWN:
                place = (sent.queue_offset, sent.physical_offset)
                await self._end(
                    name, EndTransaction(self._group, *place, decision, message_id, False, message_id, sent.queue.topic)
                )
            self._tell(message, name, decision, from_check=False)
            return TransactionResult(sent, decision)
        finally:
            self._at_work.discard(message_id)

    async def _end(self, broker_name: str, request: EndTransaction) -> None:
        """Reports the outcome. Repeating does no harm: the broker gives the same answer."""
        clock = self._session.clock
        deadline, pause_s = clock.monotonic() + _END_S, _FIRST_PAUSE_S
        while True:
            try:
                await self._session.leaders.request(broker_name, request, _TRY_S)
                return
            except RmqError as error:
                if not (error.retryable or isinstance(error, Unknown)):
                    raise
                if clock.monotonic() + pause_s > deadline:
                    about = f"the half is stored, but {broker_name} does not take its outcome; it will ask: {error}"
                    raise Unknown(about) from error
            await clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    # --- being asked --------------------------------------------------------------------------------------------------

    def _asked(self, question: Request) -> None:
        if not isinstance(question, CheckTransactionState):
            return
        try:
            stored = record.decode(question.message)
        except BadBytes as error:
            _log.error("%s asks after a transaction that cannot be read: %s", question.bname, error)
            return
        message = ReceivedMessage(stored, MessageQueue(stored.topic, question.bname, stored.queue_id))
        if not record.body_is_right(stored) or len(self._tasks.running()) >= MAX_CHECKS:
            _log.warning("%s asks after %s, damaged or one of too many: it will ask again", question.bname, message)
            return
        if message.properties.get("PGROUP") == self._group and message.message_id not in self._at_work:
            self._tasks.start(self._answer(question, message), f"check of {message.message_id}")

    async def _answer(self, question: CheckTransactionState, message: ReceivedMessage) -> None:
        async with self._room:
            decision = await _decided(self._check(message), "check")
            half = Message(message.topic, b"", message.tags, message.keys, message_id=message.message_id)
            if decision == Decision.UNKNOWN:
                self._tell(half, question.bname, decision, from_check=True)
                return
            place = (question.tran_state_table_offset, question.commit_log_offset)
            answer = EndTransaction(self._group, *place, decision, question.msg_id, True, question.transaction_id, message.topic)
            try:
                await self._end(question.bname, answer)
                self._tell(half, question.bname, decision, from_check=True)
            except Refusal as refusal:
                _log.warning("the check of %s came too late: %s", message.message_id, refusal)
            except RmqError as error:
                _log.warning("the check of %s: %s", message.message_id, error)

    def _tell(self, half: Message, broker_name: str, decision: Decision, from_check: bool) -> None:
        if (observer := self._session.observer) is not None:
            observer.transaction_ended(TransactionEnd(self._group, half, broker_name, _STATES[decision], from_check))

    async def _learn(self, topic: str) -> None:
        """A producer that was stopped in the middle of a transaction is asked when it is back, though it sends nothing."""
        while True:
            try:
                await self._session.routes.get(topic)
                return
            except RmqError:
                await self._session.clock.sleep(1.0)


async def _decided(outcome: Decision | Awaitable[Decision], who: str) -> Decision:
    """Raises InvalidArgument for what is no decision."""
    said = await outcome if inspect.isawaitable(outcome) else outcome
    try:
        return Decision(said)
    except ValueError:
        about = f"`{who}` returned {said!r}: return Decision.COMMIT, ROLLBACK or UNKNOWN"
        raise InvalidArgument(f"{about}; the half stays open, and the broker will ask") from None
