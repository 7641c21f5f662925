"""Messages that a handler could not handle: they are given back to the broker, which delivers them to the group later."""

import logging

from rmq.client.consumer.inbox import Delivery
from rmq.client.consumer.plan import Plan
from rmq.client.shared.message import MOST_LEVEL, ReceivedMessage
from rmq.client.shared.session import Session
from rmq.delivery.retry import DROPPED, after_failure, counted, properties_of
from rmq.errors import InvalidArgument, RmqError
from rmq.log.records import record
from rmq.model import RETRY_PREFIX
from rmq.net.commands import Request, Send
from rmq.net.commands.retries import SendBack

_log = logging.getLogger("rmq.client")
DEAD, BY_TRIES = -1, 0
AFTER_TIMEOUT = 3  # level of what was at work for too long [ProcessQueue.cleanExpiredMsg]
_NO_LIMIT = 2**31 - 1


class RetryLater(Exception):
    """Raised by a handler that wants its message again later, without a stack in the log.

    `delay_level`: 1 to 18 (1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h), unless the broker has a list of its
    own (more means its last one); 0: the more often it failed the later; -1: never, it is a dead letter now. Raises
    InvalidArgument.
    """

    def __init__(self, delay_level: int = BY_TRIES) -> None:
        super().__init__(f"retry with delay level {checked_level(delay_level)}")
        self.delay_level = delay_level

    def __reduce__(self) -> tuple[type["RetryLater"], tuple[int]]:
        """It may come from another process (a ProcessPoolExecutor, which breaks if what was raised there cannot be read)."""
        return type(self), (self.delay_level,)


def tell(message: ReceivedMessage, failures: int, outcome: str, error: BaseException) -> None:
    """Logs that a handler failed; with its stack, unless it raised `RetryLater`."""
    meant = isinstance(error, RetryLater)
    level, place = (logging.INFO, None) if meant else (logging.ERROR, error)
    _log.log(level, "%r failed %d times, %s", message, failures, outcome, exc_info=place)


def checked_level(delay_level: int) -> int:
    """Raises InvalidArgument."""
    if not DEAD <= delay_level <= MOST_LEVEL:
        raise InvalidArgument(f"delay_level {delay_level}: give 1 or more, 0 (later each time) or -1 (a dead letter now)")
    return delay_level


class Retries:
    """Of one consumer."""

    def __init__(self, session: Session, plan: Plan) -> None:
        self._session = session
        self._plan = plan

    async def take(self, delivery: Delivery, error: BaseException, timed_out: bool) -> bool:
        """Whether the message is stored for another time, or as a dead letter, and so finished here (C10). If not, it is handed
        out again here: in a broadcast, in an ordered queue, or because no broker took it."""
        level = error.delay_level if isinstance(error, RetryLater) else AFTER_TIMEOUT if timed_out else BY_TRIES
        if self._plan.broadcast:
            return False
        if self._plan.ordered and level != DEAD:
            if not 0 <= self._plan.max_retries <= delivery.window.failures(delivery.message):
                return False
            level = DEAD
        try:
            await self.give_back(delivery.message, level)
        except RmqError as trouble:
            _log.warning("%r cannot be given back: %s", delivery.message, trouble)
            return False
        tell(delivery.message, delivery.message.reconsume_times + 1, "given back", error)
        return True

    async def give_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Returns when it is stored. Raises RmqError of the last broker that did not take it; it may be stored twice then."""
        stored, broker_name = message.stored, message.queue.broker_name
        request = SendBack(
            stored.physical_offset,
            self._plan.group,
            delay_level,
            message.message_id,
            message.topic,
            max_reconsume_times=self._plan.max_retries,
        )
        try:
            await self._ask(broker_name, request)
        except RmqError as error:
            _log.info("%r is sent to the retry topic, its broker did not take it back: %s", message, error)
            await self._send(message, delay_level, error)
        if self._session.routes.known(RETRY_PREFIX + self._plan.group) is None:  # made by our first heartbeat, or just now
            self._session.routes.refresh_behind(RETRY_PREFIX + self._plan.group)

    async def _send(self, message: ReceivedMessage, delay_level: int, trouble: RmqError) -> None:
        """Without its own broker: sends a copy to any broker of the retry topic [DefaultMQPushConsumerImpl.sendMessageBack].

        `trouble`: why its broker failed; if nobody leads there, only other brokers are asked.
        """
        most = 0 if delay_level == DEAD else self._plan.max_retries
        tries = counted(message.reconsume_times)
        topic = RETRY_PREFIX + self._plan.group
        send = Send(
            self._plan.group,
            topic,
            -1,
            self._copy(message, topic, tries, delay_level),
            tries,
            default_topic_queue_nums=1,
            max_reconsume_times=most,
        )
        own = message.queue.broker_name
        for broker_name in [*((own,) if not trouble.passing else ()), *await self._others(topic, own)]:
            try:
                await self._ask(broker_name, send)
                return
            except RmqError as error:
                trouble = error
        raise trouble

    async def _ask(self, broker_name: str, request: Request) -> None:
        """Waits for an election as long as a request may take. Raises RmqError."""
        await self._session.leaders.persist(broker_name, request, self._session.settings.request_timeout_s)

    def _copy(self, message: ReceivedMessage, topic: str, tries: int, delay_level: int) -> bytes:
        stored = message.stored
        raw = record.strip_reserved(stored.properties)
        known = {name: value for name, value in record.bytes_to_properties(raw).items() if name not in DROPPED}
        level = max(0, delay_level) or after_failure("", tries - 1, BY_TRIES, _NO_LIMIT).delay_level
        known |= properties_of(known, message.queue.topic, message.offset_message_id, level)
        return record.draft_again(stored, topic, record.properties_to_bytes(known), tries)

    async def _others(self, topic: str, own: str) -> list[str]:
        """Other broker groups that have the topic."""
        try:
            route = await self._session.routes.get(topic)
        except RmqError:
            return []
        return [group.name for group in route.brokers if group.name != own]
