"""Which queues this member of a group owns, and how they change hands. The consumer handles the messages.

Every member computes the same split from the same sorted list of members (C8). A queue that goes to another member is
let go at once: nothing more of it is handed out, what is finished is committed. A queue that comes from another member
is begun a moment later (`hand_over_s`), when its former owner has committed; so nothing is handled twice when nobody
fails, unless a handler takes longer than that moment. An ordered consumer begins a queue once it has locked it, and keeps
the lock until its last handler of that queue has ended.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import NamedTuple

from rmq.background import cancel
from rmq.client.consumer.inbox import Inbox
from rmq.client.consumer.locks import QueueLocks
from rmq.client.consumer.offsets import OffsetStore
from rmq.client.consumer.plan import Plan
from rmq.client.consumer.pulling import Puller
from rmq.client.consumer.rates import Rates
from rmq.client.consumer.unreadable import Unreadable
from rmq.client.consumer.window import Window
from rmq.client.shared.connections import forget
from rmq.client.shared.routes import get_all
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import TaskSet, within
from rmq.errors import Refusal, RmqError, Unreachable
from rmq.model import RETRY_PREFIX, MessageQueue, Route
from rmq.net.commands import ConsumerList, GetConsumerList, NotifyConsumerIdsChanged, Pull, Request
from rmq.routing.choose import readable_queues
from rmq.routing.rebalance import average

_log = logging.getLogger("rmq.client")
_UNBALANCED_PAUSE_S = 1.0  # a route or list of members could not be had [RebalanceService.minInterval]


class _Owned(NamedTuple):
    puller: Puller
    task: "asyncio.Task[None]"


class Assignment:
    """The queues of one consumer."""

    def __init__(self, session: Session, plan: Plan, offsets: OffsetStore, inbox: Inbox) -> None:
        self._session = session
        self._plan = plan
        self._offsets = offsets
        self._inbox = inbox
        self._locks = QueueLocks(session, plan.group) if plan.ordered else None
        self._owned: dict[MessageQueue, _Owned] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._tasks = TaskSet()
        self._due = asyncio.Event()
        self._was_balanced = False
        self._unreadable = Unreadable()
        self._ends = False
        self._leaders: dict[str, str] = {}
        self.rates = {topic: Rates(session.clock.monotonic()) for topic in plan.topics}

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._owned)

    def windows(self) -> list[Window]:
        """Windows of the owned queues that have begun."""
        return [owned.puller.window for owned in self._owned.values() if owned.puller.window is not None]

    def held(self) -> dict[MessageQueue, Window | None]:
        """The owned queues; None: it has not begun."""
        return {queue: owned.puller.window for queue, owned in self._owned.items()}

    def locked_at(self, queue: MessageQueue) -> float | None:
        """When an ordered consumer's lock of it was renewed last (monotonic s)."""
        return None if self._locks is None else self._locks.locked_at(queue)

    def start(self) -> None:
        """Waits for reasons to rebalance, and rebalances then."""
        self._session.connections.on_request.append(self._requested)
        self._session.connections.on_lost.append(self._lost)
        self._session.routes.on_change.append(self._route_changed)
        self._leaders = self._session.routes.brokers()
        self._tasks.start(self._keep_balanced(), f"rebalance {self._plan.group}")
        if self._locks is not None:
            self._tasks.start(self._locks.keep(self._lock_lost), f"locks {self._plan.group}")

    def _lock_lost(self, queue: MessageQueue) -> None:
        """A lock was lost, and others may have gone on with it: begins it anew from the group's offset, with a new lock."""
        _log.warning("%s: the lock was lost", queue)
        if queue in self._owned:
            self._let_go(queue)
            self._due.set()

    def _lost(self, address: str) -> None:
        """With the connection a broker forgets a member, and others take its queues. Nobody else takes what is locked, or has
        what is broadcast."""
        if self._locks is None and not self._plan.broadcast:
            routes = self._session.routes
            for window in self.windows():
                name = window.queue.broker_name
                window.doubted = window.doubted or address in (routes.leader_of(name), *routes.followers(name).values())

    def _requested(self, request: Request) -> None:
        if isinstance(request, NotifyConsumerIdsChanged) and request.consumer_group == self._plan.group:
            self._due.set()

    def _route_changed(self, topic: str) -> None:
        if topic in self._plan.topics:
            self._follow_leaders()
            self._due.set()

    def _follow_leaders(self) -> None:
        """A leader that died may have lost its last commits silently: they are sent again to the next one. Pulls that wait at a
        leader that hangs are ended."""
        leaders, self._leaders = self._leaders, self._leaders | self._session.routes.brokers()
        gone = {name: address for name, address in leaders.items() if self._leaders[name] != address}
        for name, address in gone.items():
            self._session.connections.give_up(address, Pull, f"{address} leads {name} no longer")
        for window in self.windows():
            if window.queue.broker_name in gone:
                window.committed = -1

    async def _keep_balanced(self) -> None:
        while True:
            self._due.clear()
            balanced = await self.rebalance()
            pause_s = self._session.settings.rebalance_s if balanced else _UNBALANCED_PAUSE_S
            try:
                await within(self._session.clock, pause_s, self._due.wait())
            except TimeoutError:
                continue

    async def rebalance(self) -> bool:
        """Take and let go queues; False if that could not be decided for some topic (it stays as it is)."""
        routes, silent, missing, balanced = self._session.routes, set[str](), list[str](), True
        for topic in self._plan.topics:
            if (route := routes.known(topic)) is None:
                missing.append(topic)
            else:
                balanced = await self._balance(topic, route, silent) and balanced
        if missing and not self._ends:  # together, behind the others: nameservers may stand still
            found = await get_all(routes, missing)
            for topic, told in zip(missing, found, strict=True):
                balanced = await self._balance(topic, told, silent) and balanced
        self._was_balanced = self._was_balanced or bool(self._owned)
        return balanced and not self._ends

    async def _balance(self, topic: str, route: Route | RmqError, silent: set[str]) -> bool:
        """Of one topic. An error: why its route is not known."""
        try:
            if isinstance(route, RmqError):
                raise route
            shared, wanted = await self._share(topic, route, silent)
        except RmqError as error:
            _log.debug("%s: queues of %s stay as they are: %s", self._plan.group, topic, error)
            return topic.startswith(RETRY_PREFIX)
        if not self._ends:  # else it was closed while it starts
            self._apply(topic, wanted, self._session.settings.hand_over_s if shared or self._was_balanced else 0.0)
        return True

    async def _share(self, topic: str, route: Route, silent: set[str]) -> tuple[bool, set[MessageQueue]]:
        """(whether others share the topic, my queues). `silent`: brokers that did not answer for another topic. Raises RmqError
        when the members cannot be told."""
        queues = readable_queues(route, topic)
        if not topic.startswith(RETRY_PREFIX):
            self._unreadable.look(topic, bool(queues))
        if self._plan.broadcast:
            return False, set(queues)
        members = await self._members(route, silent)
        return members != [self._session.client_id], set(average(queues, members, self._session.client_id))

    async def _members(self, route: Route, silent: set[str]) -> list[str]:
        """Ids of the group's members, from the first broker that lists me (by name, so that all ask the same one).

        If others are listed but I am not, they own my queues by now: returns their list, in which I have no share.
        """
        trouble: RmqError = RmqError("no broker lists the members of the group")
        others: list[str] = []
        for group in sorted(route.brokers, key=lambda each: each.name):
            if group.name in silent:  # each further question might wait as long
                continue
            try:
                timeout_s = self._session.settings.request_timeout_s
                answer, _ = await self._session.leaders.read(group.name, GetConsumerList(self._plan.group), timeout_s)
            except RmqError as error:
                trouble = error
                silent.add(group.name)
                continue
            if isinstance(answer, Refusal):
                trouble = answer
                continue
            assert isinstance(answer, ConsumerList)
            if self._session.client_id in answer.client_ids:
                return answer.client_ids
            others = others or answer.client_ids
            self._session.heartbeats.hurry()
        if others:
            return others
        raise trouble

    def _apply(self, topic: str, wanted: set[MessageQueue], wait_s: float) -> None:
        for queue, owned in list(self._owned.items()):
            if queue.topic == topic and (queue not in wanted or owned.task.done()):  # done: a bug ended it; begin anew
                self._let_go(queue)
        for queue in sorted(wanted - self._owned.keys()):
            puller = Puller(self._session, self._plan, queue, self._offsets, self._inbox, self._locks, self.rates[topic])
            task = self._tasks.start(self._pull(puller, self._leaving.get(queue), wait_s), f"pull {queue}")
            self._owned[queue] = _Owned(puller, task)

    async def _pull(self, puller: Puller, leaving: "asyncio.Task[None] | None", wait_s: float) -> None:
        if leaving is not None:
            await asyncio.wait({leaving})
        await puller.run(wait_s)

    def _let_go(self, queue: MessageQueue) -> None:
        owned = self._owned.pop(queue)
        if owned.puller.window is not None:
            owned.puller.window.dropped = True
            self._inbox.forget(owned.puller.window)
        leaving = self._tasks.start(self._leave(owned, self._leaving.get(queue)), f"leave {queue}")
        self._leaving[queue] = leaving
        leaving.add_done_callback(lambda _: self._left(queue, leaving))

    def _left(self, queue: MessageQueue, leaving: "asyncio.Task[None]") -> None:
        if self._leaving.get(queue) is leaving:
            del self._leaving[queue]

    async def _leave(self, owned: _Owned, before: "asyncio.Task[None] | None") -> None:
        """Commit what is finished at once, and what running handlers finish before the next owner begins.

        `before`: the queue was let go already, came back, and did not begin: its handlers may still run.
        """
        await cancel(owned.task)
        if before is not None:
            await asyncio.wait({before})
        window = owned.puller.window
        if window is not None:
            saved = window.committable
            await self._save_quietly([window])
            if (not window.handed or await self._handlers_ended(window)) and window.committable != saved:
                await self._save_quietly([window])
        if self._locks is not None:
            await self._locks.release([owned.puller.queue])

    async def _handlers_ended(self, window: Window) -> bool:
        if self._locks is not None:  # nobody else begins before
            await _until_none_is_handed(window)
            return True
        try:
            await within(self._session.clock, self._session.settings.hand_over_s, _until_none_is_handed(window))
        except TimeoutError:
            _log.info("%s went to another member while %d messages were in work", window.queue, window.handed)
            return False
        return True

    async def save(self, windows: Iterable[Window], *, sync: bool, unchanged: bool) -> None:
        """Commits how far these queues are finished; `unchanged`: also those without news. With `sync` it is an error that there
        was no leader yet to tell it. Raises RmqError."""
        windows = list(windows)
        sure = [window for window in windows if window.sure]
        offsets = {each.queue: each.committable for each in sure if unchanged or each.committable != each.committed}
        trouble = await self._leave_out_passed(offsets)
        if offsets:
            await self._offsets.save(offsets, sync, {each.queue: each.last for each in sure})
        for window in self.windows():
            window.committed = offsets.get(window.queue, window.committed)
        for each in windows:
            if sync and not (each.sure or each.dropped) and each.committable > each.began:
                raise Unreachable(f"{each.queue} is read from a follower: no leader was there yet to take the group's offset")
        if trouble is not None:
            raise trouble

    async def _leave_out_passed(self, offsets: dict[MessageQueue, int]) -> BaseException | None:
        """Of queues whose lock is lost: another member may have locked them meanwhile, and be further. Those of which that cannot
        be told are left out, too; returns why."""
        lost = [queue for queue in offsets if self._locks is not None and not self._locks.holds(queue)]
        trouble = None
        for queue, told in zip(lost, await asyncio.gather(*map(self._offsets.load, lost), return_exceptions=True), strict=True):
            if isinstance(told, BaseException):
                trouble = told
                del offsets[queue]
            elif told.offset is not None and told.offset > offsets[queue]:
                del offsets[queue]
        return trouble

    async def _save_quietly(self, windows: list[Window]) -> None:
        try:
            await self.save(windows, sync=True, unchanged=True)
        except RmqError as error:
            about = "offsets of %s (%d queues) were not committed, some messages will come again: %s"
            _log.warning(about, self._plan.group, len(windows), error)

    async def stop_pulling(self) -> None:
        """Stops pulling; pulled messages may still be finished. Queues on their way to other members get there first."""
        self._ends = True
        forget(self._session.connections.on_request, self._requested)
        forget(self._session.connections.on_lost, self._lost)
        forget(self._session.routes.on_change, self._route_changed)
        if self._leaving:
            await asyncio.wait(set(self._leaving.values()))
        await self._tasks.close()

    async def finish(self) -> None:
        """Commits all queues, and owns none any more."""
        await self._save_quietly(self.windows())
        if self._locks is not None:
            await self._locks.release(self._owned)
        self._owned.clear()


async def _until_none_is_handed(window: Window) -> None:
    while window.handed:
        await window.until_changed()
