"""Filling one owned queue's window: find the start, then pull for ever by long polling. Hands nothing to handlers itself."""

import logging
from functools import partial

from rmq.client.consumer.inbox import Inbox
from rmq.client.consumer.locks import QueueLocks
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.plan import FIRST, LAST, PULL_BATCH, Plan
from rmq.client.consumer.rates import Rates
from rmq.client.consumer.window import Window
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.reading import Pulled, PullReader
from rmq.client.shared.session import Session
from rmq.client.shared.source import Source
from rmq.codes import ResponseCode
from rmq.delivery import filters
from rmq.errors import BadBytes, Refusal, RmqError, Unknown, Unreachable
from rmq.model import RETRY_PREFIX, MessageQueue
from rmq.net.commands import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    GetMaxOffset,
    GetMinOffset,
    OffsetAnswer,
    Pull,
    PullAnswer,
    Request,
    SearchOffset,
)
from rmq.net.commands.offsets import NEVER_ANY

_log = logging.getLogger("rmq.client")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0  # after a failed pull [pullTimeDelayMillsWhenException]
_LONGEST_ELECTION_PAUSE_S = 0.5  # while the group has no leader
_FOLLOWER_SUSPEND_S = 1.0  # how long a follower may hold a pull: then it is time to look for the leader again
_FOLLOWER_MARGIN_S = 3.0  # nothing watches whether a follower hangs: the leader is asked again
_INSTANT_S, _INSTANT_ANSWERS = 0.1, 10  # so soon, and so often in a row: whoever answers so does not hold pulls
_ANSWER_MARGIN_S = 15.0  # a broker's own checks may hold a pull a little longer than it was asked to


class Puller:
    """The one task that pulls a queue. `window` is None until the group's offset in the queue is known. `locks`: of an
    ordered consumer."""

    def __init__(
        self,
        session: Session,
        plan: Plan,
        queue: MessageQueue,
        offsets: OffsetStore,
        inbox: Inbox,
        locks: QueueLocks | None,
        rates: Rates,
    ) -> None:
        self._session = session
        self._plan = plan
        self._offsets = offsets
        self._inbox = inbox
        self._locks = locks
        self._rates = rates
        self.queue = queue
        self.window: Window | None = None
        self._source = Source()
        self._reader = PullReader(queue)
        self._failures = 0
        self._idle = 0  # answers in a row that came at once and brought nothing
        self._outlived = False  # the topic was deleted while we had the queue
        self._proof = (-1, -1)  # of the group's offset: as `Window.last`, and the leader was not asked yet whether it has it
        self._void = -1  # what we committed last of the deleted one, perhaps into the next

    async def run(self, wait_s: float) -> None:
        """First leave a former owner `wait_s` to finish, or wait for the lock. Runs until cancelled."""
        if self._locks is not None:
            await self._locks.acquire(self.queue)
        elif wait_s:
            await self._session.clock.sleep(wait_s)
        while True:
            while (window := self.window) is None:
                await self._guarded_start()
            while window.is_full(self._plan.max_messages, self._plan.max_bytes):
                await window.until_changed()
            await self._guarded_pull(window)

    async def _guarded_start(self) -> None:
        try:
            stored, sure, last = await self._offsets.load(self.queue)
            stored = None if stored == self._void else stored
            start, from_leader = (stored, True) if stored is not None else await self._first_offset()
            self.window = self._begin(start, -1 if stored is None else stored)
            if stored is not None:
                self.window.last = self._proof = last
            self.window.sure = sure and from_leader
            self._failures = 0
        except RmqError as error:
            await self._pause(error)

    def _begin(self, offset: int, committed: int = -1) -> Window:
        locked = None if self._locks is None else partial(self._locks.holds, self.queue)
        return Window(self.queue, offset, committed, locked)

    async def _guarded_pull(self, window: Window) -> None:
        try:
            await self._pull(window)
            self._failures = 0
        except RmqError as error:
            await self._pause(error)

    async def _first_offset(self) -> tuple[int, bool]:
        """Where a group without an offset begins (broker-side table of `consumeFromWhere`), and whether the leader says so. A
        topic that was made again under our eyes is new as a whole."""
        topic, queue_id = self.queue.topic, self.queue.queue_id
        start = FIRST if self._outlived or topic.startswith(RETRY_PREFIX) else self._plan.start
        if start == FIRST:
            return await self._ask_offset(GetMinOffset(topic, queue_id))
        if start == LAST:
            return await self._ask_offset(GetMaxOffset(topic, queue_id))
        assert isinstance(start, int)
        return await self._ask_offset(SearchOffset(topic, queue_id, start))

    async def _ask_offset(self, request: Request) -> tuple[int, bool]:
        session = self._session
        answer, by_follower = await session.leaders.read(self.queue.broker_name, request, session.settings.request_timeout_s)
        if isinstance(answer, Refusal):
            raise answer
        assert isinstance(answer, OffsetAnswer)
        if isinstance(request, GetMinOffset) and answer.offset == NEVER_ANY:
            return 0, not by_follower
        if answer.offset < 0:
            raise BadBytes(f"{self.queue.broker_name} says that queue {self.queue.queue_id} begins at {answer.offset}")
        return answer.offset, not by_follower

    async def _pull(self, window: Window) -> None:
        session, name = self._session, self.queue.broker_name
        leader = session.routes.leader_of(name)
        reachable = session.connections.is_open(leader)
        asked_s = session.clock.monotonic()
        address, by_follower = self._source.choose(leader, reachable, session.routes.followers(name), asked_s)
        try:
            if not (by_follower or (window.sure and not window.doubted) or await self._confirm(window)):
                return
            if not (by_follower or self._proof[1] < 0 or await self._proven(window)):
                return
            answer = await (self._pull_follower(window, address) if by_follower else self._pull_leader(window))
            pulled = self._reader.read(answer, window.next_offset)
        except RmqError as error:
            self._source.failed(by_follower, leader, session.clock.monotonic())
            if not by_follower and isinstance(error, Refusal) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                await self._forget(window)
            raise
        self._source.answered(by_follower, answer.suggest_which_broker_id)
        await self._take(window, answer, pulled)
        took_s = self._count(window, len(pulled.messages), asked_s)
        await self._keep_pace(bool(pulled.messages), took_s)

    def _count(self, window: Window, messages: int, asked_s: float) -> float:
        """Notes a pull; how many seconds it took."""
        window.pulled_s = now = self._session.clock.monotonic()
        self._rates.pulls += 1
        self._rates.pulled += messages
        self._rates.pull_ms += (now - asked_s) * 1000
        return now - asked_s

    async def _keep_pace(self, progress: bool, took_s: float) -> None:
        """A broker that answers "nothing" at once, again and again, instead of holding the pull, is asked less and less often."""
        self._idle = 0 if progress or took_s >= _INSTANT_S else self._idle + 1
        if self._idle > _INSTANT_ANSWERS:
            pause_s = _FIRST_PAUSE_S * 2 ** min(self._idle - _INSTANT_ANSWERS - 1, 10)
            await self._session.clock.sleep(min(_LONGEST_PAUSE_S, pause_s))

    async def _confirm(self, window: Window) -> bool:
        """A follower said where to begin, or the connection was lost; now there may be a leader to ask. If the follower lacked
        the group's offset, this reader began too early, and where another member went on meanwhile it is behind: then it begins
        anew, and returns False. Raises RmqError if there is no leader."""
        stored, sure, _ = await self._offsets.load(self.queue)
        if not sure:
            raise Unreachable(f"broker group {self.queue.broker_name} has no leader that knows the group's offset")
        if window.sure and stored != self._void and stored is not None and stored > window.committable:
            _log.info("%s: another member of the group went on meanwhile, to %d", self.queue, stored)
            await self._restart_at(window, stored, stored)
            return False
        if not window.sure and stored is not None and stored < window.began:
            _log.warning("%s: the leader knows a lower offset than the follower that told where to begin: %d", self.queue, stored)
            await self._restart_at(window, stored, stored)
            return False
        window.sure, window.doubted = True, False
        return True

    async def _proven(self, window: Window) -> bool:
        """Whether the queue has the message still that was pulled last before this began. The first pull says so by itself where
        that is the one before it."""
        (last, after), name, session = self._proof, self.queue.broker_name, self._session
        if last + 1 != window.next_offset:
            request = self._request(window, 0.0, False)._replace(queue_offset=last + 1, after=after, max_msg_nums=1)
            request = request._replace(sys_flag=PULL_SUBSCRIPTION)
            answer = await session.leaders.request(name, request, session.settings.request_timeout_s)
            assert isinstance(answer, PullAnswer)
            lost = answer.status == ResponseCode.PULL_OFFSET_MOVED and answer.min_offset <= last + 1  # else it has expired
            if lost and answer.next_begin_offset < window.next_offset:
                self._proof = (-1, -1)
                await self._take(window, answer, self._reader.read(answer, last + 1))
                return False
        self._proof = (-1, -1)
        return True

    async def _pull_leader(self, window: Window) -> PullAnswer:
        suspend_s = self._session.settings.suspend_s
        request = self._request(window, suspend_s, self._plan.auto_commit and not self._plan.broadcast)
        answer = await self._session.leaders.request(self.queue.broker_name, request, suspend_s + _ANSWER_MARGIN_S)
        assert isinstance(answer, PullAnswer)
        return answer

    async def _pull_follower(self, window: Window, address: str) -> PullAnswer:
        """A follower may lack, or have deleted, messages that the leader has: its answers move no offset, and commit none."""
        suspend_s = min(_FOLLOWER_SUSPEND_S, self._session.settings.suspend_s)
        request = self._request(window, suspend_s, False)
        answer = await self._session.connections.request(address, request, suspend_s + _FOLLOWER_MARGIN_S)
        assert isinstance(answer, PullAnswer)
        if answer.status == ResponseCode.PULL_OFFSET_MOVED or answer.next_begin_offset < window.next_offset:
            raise Unreachable(f"the follower {address} does not reach to {window.next_offset}")
        return answer

    def _request(self, window: Window, suspend_s: float, may_commit: bool) -> Pull:
        subscription = self._plan.topics[self.queue.topic]
        commits = may_commit and window.committable > 0 and (self._locks is None or self._locks.holds(self.queue))
        return Pull(
            self._plan.group,
            self.queue.topic,
            self.queue.queue_id,
            window.next_offset,
            PULL_BATCH,
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION | (PULL_COMMIT_OFFSET if commits else 0),
            commit_offset=window.committable if commits else 0,
            suspend_timeout_millis=int(suspend_s * 1000),
            subscription=subscription.expression,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            after=window.after,
        )

    async def _take(self, window: Window, answer: PullAnswer, pulled: Pulled) -> None:
        if answer.status == ResponseCode.PULL_OFFSET_MOVED:
            if answer.min_offset <= window.next_offset <= answer.max_offset:  # it has the offset, and yet sends us elsewhere
                about = "%s: goes on at %d instead of %d: the group was set there, or the broker lost messages"
                _log.warning(about, self.queue, answer.next_begin_offset, window.next_offset)
                await self._restart_at(window, answer.next_begin_offset)
            else:
                await self._correct(window, answer.next_begin_offset)
        elif pulled.messages:
            last = pulled.messages[-1].stored
            window.add(self._wanted(pulled.messages), pulled.next_offset)
            window.last = (last.queue_offset, last.physical_offset)
            self._inbox.offer(window)
        else:
            window.next_offset = pulled.next_offset

    def _wanted(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The broker compares hashes of tags; here the tags themselves are compared (C14), and SQL92 expressions once more."""
        exact = self._plan.wanted[self.queue.topic]
        return messages if exact is None else [each for each in messages if filters.matches(exact, each.properties)]

    async def _correct(self, window: Window, offset: int) -> None:
        """The queue does not have the offset that we asked for. Forward: go on there. Back: the topic was made again, or the log
        lost messages: go on where the group stands, which went with the topic."""
        _log.warning("%s: offset %d is not in the queue any more, going on at %d at most", self.queue, window.next_offset, offset)
        if offset >= window.next_offset:
            window.next_offset = offset
            return
        self._offsets.forget(self.queue)
        stored, *_ = await self._offsets.load(self.queue)
        start = stored if stored is not None else (await self._first_offset())[0]
        await self._restart_at(window, min(start, offset))

    async def _forget(self, window: Window) -> None:
        """The topic was deleted, and the group's offsets and locks with it: begins anew, at the first message of the next topic
        of that name, which another member may have locked by then."""
        if window.next_offset:
            _log.warning("%s: the topic was deleted; what was not handled ends, and the next of its name is consumed", self.queue)
        self._outlived, self._void, self._proof = True, window.committed, (-1, -1)
        self._offsets.forget(self.queue)
        await self._drop(window)
        self.window = None
        if self._locks is not None:
            await self._locks.acquire(self.queue)

    async def _restart_at(self, window: Window, offset: int, committed: int = -1) -> None:
        await self._drop(window)
        self.window = self._begin(offset, committed)

    async def _drop(self, window: Window) -> None:
        """Hands out and commits nothing more of it; in order, what was handed out ends first."""
        window.dropped, window.sure = True, False
        self._inbox.forget(window)
        while self._locks is not None and window.handed:
            await window.until_changed()

    async def _pause(self, error: RmqError) -> None:
        """Pulling changes nothing at the broker, so every failure is tried again, less and less often."""
        self._failures += 1
        passing = error.retryable or isinstance(error, Unknown) or self._failures < 3
        _log.log(logging.INFO if passing else logging.WARNING, "%s is not pulled for now: %s", self.queue, error)
        fewer_queues = isinstance(error, Refusal) and error.code == ResponseCode.INVALID_PARAMETER  # than the route says
        if error.refresh_routes or fewer_queues:
            self._session.routes.refresh_behind(self.queue.topic)
        longest_s = _LONGEST_ELECTION_PAUSE_S if error.passing else _LONGEST_PAUSE_S
        pause_s = min(longest_s, _FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10))
        await self._session.clock.sleep(max(pause_s, error.wait_ms / 1000 if isinstance(error, Refusal) else 0.0))
