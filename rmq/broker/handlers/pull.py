"""Pulling: which records a group gets from where it asks, or how long it waits.

Order of checks and the table of findings: broker-semantics of RocketMQ [PullMessageProcessor, DefaultMessageStore].
Bodies are raw log bytes that nobody re-encodes. Bytes that are not in the page cache are read in a thread.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from rmq.broker.ahead import Ahead, reader_of
from rmq.broker.coldreads import ColdReads
from rmq.broker.longpoll import PULL_BYTES, Held, LongPolls
from rmq.broker.stats import BrokerStats
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery import filters
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetKey, OffsetTable
from rmq.delivery.shares import Owner
from rmq.errors import Refusal, RmqError, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.consumequeue import MAX_SCANNED, ConsumeQueue, Found
from rmq.log.queues import ConsumeQueues
from rmq.model import PERM_READ
from rmq.net.commands import PULL_SUBSCRIPTION, PULL_SUSPEND, Pull, PullAnswer
from rmq.net.server import LATER, Call, Connection, Later
from rmq.routing.topics import TopicTable

PULL_NOTHING, PULL_RETRY, PULL_MOVED = map(
    int, (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
)
LEADER = 0  # where to pull next, as a broker id
FOUND, EMPTY, RESET = "FOUND", "NO_MESSAGE_IN_QUEUE", "OFFSET_RESET"  # remarks are the store's findings [GetMessageStatus]
MAX_SUSPEND_S = 60.0  # clients ask for 15 or 20; a peer that vanished without a word must not be kept longer


class PullSettings(NamedTuple):
    """What a pull is checked against. `check_group` raises Refusal for a group that may not consume.

    The limits are those of one answer [maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory].
    `suggest(end, cold)`: the broker id that a reader who has read up to `end` should ask next; `cold`: this node had to
    wait for its disk. `leave_to_leader(connection, only)` raises NotLeading where what is missing here may be at the
    leader; `only`: also while nobody leads.
    """

    topics: TopicTable
    registry: ConsumerRegistry
    check_group: Callable[[str], None]
    max_messages: int
    max_bytes: int
    cold: ColdReads
    ahead: Ahead
    offsets: OffsetTable
    suggest: Callable[[int, bool], int] | None = None
    leave_to_leader: Callable[[Connection, bool], None] | None = None


class Wanted(NamedTuple):
    """A checked pull: what to read, and for whom."""

    request: Pull
    queue: ConsumeQueue
    codes: frozenset[int] | None


class PullHandler:
    """`pulled(request, call)` is told of each good pull: who pulled a queue last, and the offset it may carry."""

    def __init__(
        self,
        settings: PullSettings,
        log: CommitLog,
        queues: ConsumeQueues,
        polls: LongPolls,
        pulled: Callable[[Pull, Call], None],
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._log = log
        self._queues = queues
        self._polls = polls
        self._pulled = pulled
        self._stats = stats
        self._clock = clock

    def pull(self, request: Pull, call: Call) -> Later | Awaitable[Later]:
        wanted, ahead = self._wanted(request, call), self._settings.ahead
        try:
            if ahead.starts and (back := ahead.send_back(request, reader_of(call))) is not None:
                moved = PullAnswer(back, wanted.queue.min, wanted.queue.max, b"", PULL_MOVED)
                return self._nothing(call, moved, RESET)
            self._pulled(request, call)
            return self._read(wanted, call, may_wait=bool(request.sys_flag & PULL_SUSPEND))
        except (StoreError, OSError) as error:
            raise _unreadable(request, error) from error

    def _check(self, request: Pull) -> ConsumeQueue:
        self._settings.check_group(request.consumer_group)
        topic = request.topic
        config = self._settings.topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist")
        if not config.perm & PERM_READ:
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {topic} may not be read (perm {config.perm})")
        if not 0 <= request.queue_id < config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {request.queue_id} of {topic}: it has queues 0 to {config.read_queue_nums - 1}",
            )
        return self._queues.look(topic, request.queue_id)

    def _wanted_codes(self, request: Pull) -> frozenset[int] | None:
        if request.sys_flag & PULL_SUBSCRIPTION:
            return _expression_codes(request.subscription, request.expression_type)
        known = self._settings.registry.subscription(request.consumer_group, request.topic)
        if known is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"group {request.consumer_group} did not subscribe to {request.topic}"
            )
        if known.version < request.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the heartbeat with this subscription is still on its way")
        return _expression_codes(known.expression, known.expression_type)

    def _read(self, wanted: Wanted, call: Call, may_wait: bool) -> Later | Awaitable[Later]:
        request, queue = wanted.request, wanted.queue
        offset, low, high = request.queue_offset, queue.min, queue.max
        if self._settings.offsets.resets and (to := self._reset(request, call)) is not None:
            return self._nothing(call, PullAnswer(to, low, high, b"", PULL_MOVED), RESET)
        if low <= offset < high:
            if not queue.is_at_hand(offset, self._settings.max_messages if wanted.codes is None else MAX_SCANNED):
                return self._read_cold(wanted, call)
            found = self._find(wanted, self._settings.max_messages, self._settings.max_bytes)
            messages = self._log.gather(found.spans)
            return self._read_cold(wanted, call) if messages is None else self._answer_found(call, queue, found, messages)
        if offset == high:
            if may_wait:
                return self._hold(wanted, call)
            return self._nothing(call, PullAnswer(offset, low, high, b"", PULL_NOTHING), "OFFSET_OVERFLOW_ONE" if high else EMPTY)
        if offset > high:
            self._leave(call, only=True)  # who was sent back would read again what it has finished
        moved = PullAnswer(high if offset > high else low, low, high, b"", PULL_MOVED)
        return self._nothing(call, moved, _why_moved(offset, low, high))

    def _reset(self, request: Pull, call: Call) -> int | None:
        """Where an administrator has set the group to."""
        key = OffsetKey(request.consumer_group, request.topic, request.queue_id)
        return self._settings.offsets.take_reset(key, request.queue_offset, reader_of(call))

    def _nothing(self, call: Call, answer: PullAnswer, why: str) -> Later:
        self._stats.missed.total += 1
        call.answer(answer, why)
        return LATER

    def _find(self, wanted: Wanted, max_messages: int, max_bytes: int) -> Found:
        """In any thread. Of a damaged log only what lies before the damage. Raises StoreError when that is nothing."""
        request, queue = wanted.request, wanted.queue
        count = max(1, min(request.max_msg_nums, max_messages))
        found = queue.find(request.queue_offset, count, max_bytes, wanted.codes)
        if self._log.damages:
            good = self._log.damages.count_good(found.spans)
            if good == 0 and found.spans:
                self._log.damages.check(*found.spans[0])
            if good < len(found.spans):
                return queue.find(request.queue_offset, good, max_bytes, wanted.codes)
        return found

    def _answer_found(self, call: Call, queue: ConsumeQueue, found: Found, messages: bytes, cold: bool = False) -> Later:
        if not found.spans:
            answer = PullAnswer(found.next_offset, queue.min, queue.max, b"", PULL_RETRY)
            return self._nothing(call, answer, "NO_MATCHED_MESSAGE")
        self._stats.found.total += 1
        self._stats.transferred.total += len(found.spans)
        suggest = self._settings.suggest
        where = LEADER if suggest is None else suggest(found.spans[-1][0] + found.spans[-1][1], cold)
        call.answer(PullAnswer(found.next_offset, queue.min, queue.max, messages, 0, where), FOUND)
        return LATER

    async def _read_cold(self, wanted: Wanted, call: Call) -> Later:
        """As RocketMQ does, less at once, so that one who lags far behind does not take the disk from all others."""
        cold = self._settings.cold
        try:
            read = partial(self._find_cold, wanted, cold.max_messages, cold.max_bytes)
            found, messages = await cold.run(wanted.request.consumer_group, read)
        except (StoreError, OSError) as error:
            if wanted.request.queue_offset < wanted.queue.min:  # retention was faster
                result = self._read(wanted, call, may_wait=False)
                return result if result is LATER else await result
            raise _unreadable(wanted.request, error) from error
        return self._answer_found(call, wanted.queue, found, messages, cold=True)

    def _find_cold(self, wanted: Wanted, max_messages: int, max_bytes: int) -> tuple[Found, bytes]:
        found = self._find(wanted, max_messages, max_bytes)
        try:
            return found, self._log.gather_cold(found.spans)
        except StoreError:
            found = self._find(wanted, max_messages, max_bytes)  # damage, now that it is known, ends it
            return found, self._log.gather_cold(found.spans)

    def _hold(self, wanted: Wanted, call: Call) -> Later:
        """Raises Refusal for one too many: "nothing" at once would only be asked again, at once."""
        request, connection = wanted.request, call.connection
        deadline = self._clock.monotonic() + min(request.suspend_timeout_millis / 1000, MAX_SUSPEND_S)
        held = Held(
            request.consumer_group,
            deadline,
            wanted.codes,
            partial(self._again, request, call),
            lambda: not connection.closed,
            Owner(connection.id, connection.peer[0]),
            call.size + PULL_BYTES,
        )
        if why := self._polls.hold(request.topic, request.queue_id, held):
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"too many pulls wait for messages: {why} bytes; ask again later")
        return LATER

    def _again(self, request: Pull, call: Call) -> None:
        """A woken pull is checked anew and may not wait again; what it finds now is its answer.

        What goes wrong here is this pull's trouble, not that of the message that woke it.
        """
        try:
            result = self._read(self._wanted(request, call), call, may_wait=False)
        except Refusal as refusal:
            call.refuse(refusal)
        except (RmqError, OSError) as error:
            call.refuse(_unreadable(request, error))
        else:
            if result is not LATER:
                call.answer_with(result)

    def _wanted(self, request: Pull, call: Call) -> Wanted:
        try:
            return Wanted(request, self._check(request), self._wanted_codes(request))
        except Refusal:
            self._leave(call)
            raise

    def _leave(self, call: Call, only: bool = False) -> None:
        if self._settings.leave_to_leader is not None:
            self._settings.leave_to_leader(call.connection, only)


def _unreadable(request: Pull, error: RmqError | OSError) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"queue {request.queue_id} of {request.topic} cannot be read: {error}")


def _why_moved(offset: int, low: int, high: int) -> str:
    if not high:
        return EMPTY
    return "OFFSET_OVERFLOW_BADLY" if offset > high else "OFFSET_TOO_SMALL"


def _expression_codes(expression: str, expression_type: str) -> frozenset[int] | None:
    filters.check_type(expression_type)
    return filters.codes_of(expression)
