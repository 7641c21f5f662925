"""Pulling: which records a group gets from the offset that it asks for, or how long it waits.

Order of checks and the table of findings: broker-semantics of RocketMQ [PullMessageProcessor, DefaultMessageStore].
Bodies are raw log bytes that nobody re-encodes. Bytes that are not in the page cache are read in a thread.
"""

from collections.abc import Awaitable
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.longpoll import PULL_BYTES, HeldPull, LongPolls
from rmq.broker.shared.ports import Reader, Reading
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery import filters
from rmq.delivery.filters import Selection
from rmq.delivery.members import ConsumerRegistry
from rmq.delivery.offsets import OffsetKey
from rmq.delivery.shares import Owner
from rmq.errors import Refusal, RmqError, StoreError, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.net.codec.frames import Received
from rmq.net.commands import PULL_SUBSCRIPTION, PULL_SUSPEND, CheckClient, Pull, PullAnswer
from rmq.net.transport.answering import FoundAnswers
from rmq.net.transport.server import LATER, Call, Connection, Later

PULL_NOTHING, PULL_RETRY, PULL_MOVED = map(
    int, (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
)
FOUND, EMPTY, RESET = "FOUND", "NO_MESSAGE_IN_QUEUE", "OFFSET_RESET"  # remarks are the store's findings [GetMessageStatus]
MAX_SUSPEND_S = 60.0  # clients ask for 15 or 20; a peer that vanished silently must not be kept longer
FOLLOWER_SUSPEND_MS = 1_000  # longer pulls wait at leaders only
MAX_REMEMBERED: Final = 10_000  # checked pulls
MAX_REMEMBERED_TEXT: Final = 256  # characters of their subscriptions
_CHECKED = ("consumer_group", "topic", "queue_id", "sys_flag", "subscription", "sub_version", "expression_type",
            "request_source")  # fmt: skip
_named = itemgetter(*map(Pull._fields.index, _CHECKED))  # what the checks of a pull look at
_new = tuple.__new__  # a NamedTuple in half the time


Known = tuple[ConsumeQueue, Selection, OffsetKey, bool, int]  # a checked pull without the request


class Readers(Protocol):
    """What other features know of readers."""

    @property
    def unsettled(self) -> bool:
        """Whether `sent_back` or `set_to` may say something to any reader; else `set_to` does only where it `follows`."""

    def follows(self, request: Pull) -> bool:
        """Whether each pull of this group, from this source, is noted by `set_to`. See `ConsumerRegistry.changes`."""

    def sent_back(self, request: Pull, call: Call) -> int | None:
        """Offset from which this reader must begin again, as the log lost what it read; None: it goes on. Raises StoreError."""

    def set_to(self, request: Pull, call: Call) -> int | None:
        """The offset to which an administrator has set the group; None: there was no reset."""

    def pulled(self, request: Pull, place: OffsetKey, call: Call) -> None:
        """Notes a good pull: who pulled a queue last, and the offset that the pull may carry."""

    def handed_out(self, place: OffsetKey, end: int) -> None:
        """Notes that the answer to a pull has messages up to `end`."""


class Guide(Protocol):
    """Which other nodes may know better, or have the messages too. `follower_reads`: readers may be sent there."""

    follower_reads: bool

    def keeps_offsets(self, call: Call) -> bool:
        """Whether this node keeps offsets, as only the leader does. A follower notes that the client reads here."""

    def suggest(self, end: int, cold: bool) -> int:
        """The broker id that a reader who has read up to `end` should ask next; `cold`: this node had to wait for its disk."""

    def leave_to_leader(self, connection: Connection, only: bool = False, anyone: bool = False) -> None:
        """Raises NotLeading where what is missing here may be at the leader; `only`: also while nobody leads; `anyone`: also for
        clients that follow hints."""


class CheckedPull(NamedTuple):
    """A checked pull: what to read, and for whom. `usual`: nothing needs to be asked for each such pull. `since`: where in the
    log the topic was deleted last (-1: never); what stood before that was of another topic of its name."""

    request: Pull
    queue: ConsumeQueue
    selection: Selection
    place: OffsetKey
    usual: bool
    since: int


class PullHandler:
    """`registry`: what the groups' heartbeats said.

    A reader's next pull names the same queue and subscription. What was checked for the last one holds until a topic, a group, a
    permission or a subscription changes (`Catalog.state`, `ConsumerRegistry.changes`), or the queue ends.
    """

    def __init__(
        self,
        reader: Reader,
        catalog: Catalog,
        registry: ConsumerRegistry,
        readers: Readers,
        guide: Guide,
        polls: LongPolls,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._catalog = catalog
        self._registry = registry
        self._known: dict[tuple[object, ...], Known] = {}
        self._known_state: object = None
        self._readers = readers
        self._guide = guide
        self._polls = polls
        self._clock = clock
        self._stats = reader.stats

    def take(self, connection: Connection, received: list[Received], first: int, _room: int) -> int:
        """See `Take`: answers the usual pulls that find messages at hand, as `pull` would, without a call for each step."""
        self._forget_changed()
        reader, guide, at = self._reader, self._guide, first
        if self._readers.unsettled or reader.log.damages.ranges:
            return first
        limits, answers, keeps_offsets = reader.limits, FoundAnswers(connection), None
        for request, call_id, oneway, context, size in received[first:] if first else received:
            if type(request) is not Pull or oneway or answers.room <= 0:
                break
            known = self._known.get(_named(request))
            if known is None:
                break
            queue, selection, place, usual, since = known
            offset = request.queue_offset
            if not usual or queue.ended or -1 < request.after < since or not queue.min <= offset < queue.max:
                break
            call = _new(Call, (connection, call_id, oneway, context, size))
            try:
                count = max(1, min(request.max_msg_nums, limits.max_messages))
                read = reader.read_now(queue, offset, count, limits.max_bytes, selection)
                if read is None or not read.found.spans:
                    break
                if keeps_offsets is None:  # the same for all that one read brought
                    keeps_offsets = guide.keeps_offsets(call)
                if keeps_offsets:
                    self._readers.pulled(request, place, call)
            except (StoreError, OSError, Refusal):  # `pull` says it
                break
            answers.add(call_id, context, self._found(known, call, read), FOUND)
            at += 1
        answers.write()
        return at

    def pull(self, request: Pull, call: Call) -> Later | Awaitable[Later]:
        self._forget_changed()
        known = self._known.get(_named(request))
        if known is not None and not known[0].ended:
            return self._pull(_new(CheckedPull, (request, *known)), call)
        wanted = self._wanted(request, call)
        if not self._reader.is_checked(wanted.selection):
            return self._check_and_pull(wanted, call)
        self._remember(wanted)
        return self._pull(wanted, call)

    def _forget_changed(self) -> None:
        state = self._catalog.state, self._registry.changes
        if state != self._known_state:
            self._known.clear()
            self._known_state = state

    def _remember(self, wanted: CheckedPull) -> None:
        """Where no message came yet, there may be no queue: then the one that comes is another than this."""
        request, queue = wanted.request, wanted.queue
        if queue.max and len(request.subscription) <= MAX_REMEMBERED_TEXT:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[_named(request)] = wanted[1:]

    async def _check_and_pull(self, wanted: CheckedPull, call: Call) -> Later:
        try:
            await self._reader.check(wanted.selection)
        except Refusal as refusal:
            if wanted.request.sys_flag & PULL_SUBSCRIPTION:
                raise
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"the subscription of its group is wrong: {refusal.remark}"
            ) from None
        result = self._pull(wanted, call)
        return result if result is LATER else await result

    def _pull(self, wanted: CheckedPull, call: Call) -> Later | Awaitable[Later]:
        request = wanted.request
        if -1 < request.after < wanted.since:  # as if it had asked in between: it begins anew
            self._leave(call)
            raise no_topic(request.topic, " any more as this reader knows it: it was deleted and made again")
        try:
            if (back := self._readers.sent_back(request, call)) is not None:
                moved = PullAnswer(back, wanted.queue.min, wanted.queue.max, b"", PULL_MOVED)
                return self._nothing(call, moved, RESET)
            if self._guide.keeps_offsets(call):
                self._readers.pulled(request, wanted.place, call)
            return self._read(wanted, call, may_wait=bool(request.sys_flag & PULL_SUSPEND))
        except (StoreError, OSError) as error:
            raise _unreadable(request, error) from error

    async def check(self, request: CheckClient, _call: Call) -> None:
        """Raises Refusal for a subscription with which no pull would be served."""
        wanted = request.subscription
        await self._reader.check(self._reader.selection(wanted.expression, wanted.expression_type))

    def _check(self, request: Pull) -> ConsumeQueue:
        group = self._catalog.check_group(request.consumer_group)
        if group is not None and not group.consume_broadcast_enable and self._registry.is_broadcast(group.name):
            about = f"the consumer group[{group.name}] can not consume by broadcast way: set its consumeBroadcastEnable"
            raise Refusal(ResponseCode.NO_PERMISSION, about)
        topic = request.topic
        config = self._catalog.readable_topic(request.consumer_group, topic)
        if not 0 <= request.queue_id < config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {request.queue_id} of {topic}: it has queues 0 to {config.read_queue_nums - 1}",
            )
        return self._reader.queues.look(topic, request.queue_id)

    def _selection(self, request: Pull) -> Selection:
        if request.sys_flag & PULL_SUBSCRIPTION:
            return self._reader.selection(request.subscription, request.expression_type)
        known = self._registry.subscription(request.consumer_group, request.topic)
        if known is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"group {request.consumer_group} did not subscribe to {request.topic}"
            )
        if known.version < request.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the heartbeat with this subscription is still on its way")
        return self._reader.selection(known.expression, known.expression_type)

    def _read(self, wanted: CheckedPull, call: Call, may_wait: bool, until: float = 0.0) -> Later | Awaitable[Later]:
        """`until`: a pull that was woken by a message it does not want waits on till then."""
        request, queue = wanted.request, wanted.queue
        offset, low, high = request.queue_offset, queue.min, queue.max
        if (to := self._readers.set_to(request, call)) is not None:
            return self._nothing(call, PullAnswer(to, low, high, b"", PULL_MOVED), RESET)
        if low <= offset < high:
            limits = self._reader.limits
            count = max(1, min(request.max_msg_nums, limits.max_messages))
            read = self._reader.read_now(queue, offset, count, limits.max_bytes, wanted.selection)
            return self._read_slowly(wanted, call, count, until) if read is None else self._answer_found(wanted, call, read)
        if offset == high:
            if may_wait:
                return self._hold(wanted, call)
            return self._nothing(call, PullAnswer(offset, low, high, b"", PULL_NOTHING), "OFFSET_OVERFLOW_ONE" if high else EMPTY)
        if offset > high:
            self._leave(call, only=True)  # a reader that was sent back would read again what it has finished
        moved = PullAnswer(high if offset > high else low, low, high, b"", PULL_MOVED)
        return self._nothing(call, moved, _why_moved(offset, high))

    def _nothing(self, call: Call, answer: PullAnswer, why: str) -> Later:
        self._stats.missed.total += 1
        call.answer(answer, why)
        return LATER

    def _answer_found(self, wanted: CheckedPull, call: Call, read: Reading) -> Later:
        found, queue = read.found, wanted.queue
        if not found.spans:
            self._readers.handed_out(wanted.place, found.next_offset)
            answer = PullAnswer(found.next_offset, queue.min, queue.max, b"", PULL_RETRY)
            return self._nothing(call, answer, "NO_MATCHED_MESSAGE")
        call.answer(self._found(wanted[1:], call, read), FOUND)
        return LATER

    def _found(self, known: Known, call: Call, read: Reading) -> PullAnswer:
        """The answer with messages, which are counted."""
        (next_offset, spans, examined), messages, cold = read
        queue, _, place, _, _ = known
        self._readers.handed_out(place, next_offset)
        self._stats.handed_out(call, queue.topic, place[0], examined if queue.holds_batches else len(spans), len(messages))
        where = self._guide.suggest(spans[-1][0] + spans[-1][1], cold) if self._guide.follower_reads else 0
        return _new(PullAnswer, (next_offset, queue.min, queue.max, messages, 0, where))

    async def _read_slowly(self, wanted: CheckedPull, call: Call, count: int, until: float) -> Later:
        request, queue, reader = wanted.request, wanted.queue, self._reader
        try:
            read = await reader.read(
                request.consumer_group, queue, request.queue_offset, count, reader.limits.max_bytes, wanted.selection
            )
        except (StoreError, OSError) as error:
            if request.queue_offset < queue.min:  # retention deleted it meanwhile
                result = self._read(wanted, call, may_wait=False)
                return result if result is LATER else await result
            raise _unreadable(request, error) from error
        found = read.found
        if not found.spans and found.next_offset >= queue.max and self._clock.monotonic() < until:
            return self._hold(wanted._replace(request=request._replace(queue_offset=found.next_offset)), call, until)
        return self._answer_found(wanted, call, read)

    def _hold(self, wanted: CheckedPull, call: Call, until: float = 0.0) -> Later:
        """Raises Refusal if too many wait: a client that gets "nothing" at once would ask again at once. And where a client waits
        for so long that it takes this node for the leader, which it is not any more: new messages may never come here."""
        request, connection = wanted.request, call.connection
        if request.suspend_timeout_millis > FOLLOWER_SUSPEND_MS and connection.follows_hints:
            self._guide.leave_to_leader(connection, only=True, anyone=True)
        limits, asked_s = self._reader.limits, request.suspend_timeout_millis / 1000
        hold_s = min(asked_s, MAX_SUSPEND_S) if limits.long_polling else limits.short_polling_s
        deadline = until or self._clock.monotonic() + hold_s
        held = HeldPull(
            request.consumer_group,
            deadline,
            filters.tag_codes(wanted.selection),
            partial(self._again, request, call, deadline),
            lambda: not connection.closed,
            Owner(connection.id, connection.peer[0]),
            call.size + PULL_BYTES,
        )
        if why := self._polls.hold(request.topic, request.queue_id, held):
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"too many pulls wait for messages: {why} bytes; ask again later")
        return LATER

    def _again(self, request: Pull, call: Call, deadline: float, may_wait: bool) -> None:
        """Checks a woken pull anew; it may not wait again, and is answered with what it finds now.

        An error here concerns this pull, not the message that woke it.
        """
        try:
            result = self._read(self._wanted(request, call), call, may_wait=False, until=deadline if may_wait else 0.0)
        except Refusal as refusal:
            call.refuse(refusal)
        except (RmqError, OSError) as error:
            call.refuse(_unreadable(request, error))
        else:
            if result is not LATER:
                call.answer_with(request, result)

    def _wanted(self, request: Pull, call: Call) -> CheckedPull:
        try:
            place = OffsetKey(request.consumer_group, request.topic, request.queue_id)
            queue, selection = self._check(request), self._selection(request)
            since = self._catalog.topics.ends.of(request.topic)
            return CheckedPull(request, queue, selection, place, not self._readers.follows(request), since)
        except Refusal:
            self._leave(call)
            raise

    def _leave(self, call: Call, only: bool = False) -> None:
        self._guide.leave_to_leader(call.connection, only)


def _unreadable(request: Pull, error: RmqError | OSError) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"queue {request.queue_id} of {request.topic} cannot be read: {error}")


def _why_moved(offset: int, high: int) -> str:
    if not high:
        return EMPTY
    return "OFFSET_OVERFLOW_BADLY" if offset > high else "OFFSET_TOO_SMALL"
