"""Pops that found nothing wait here [PopLongPollingService]. A message wakes one pop of each group, since only one gets it.

A pop waits for its topic and for the topic where its messages come back. A woken pop looks again, and wakes the next one
when it leaves something.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from rmq.broker.shared.longpoll import LongPolls
from rmq.delivery.shares import Owner

MAX_OF_QUEUE = 1024  # [popPollingSize]
POP_BYTES = 4096  # keeping one that waits: it has a task of its own

GroupQueue = tuple[str, str, int]
"""Group, topic, queue asked for (-1: any)."""


class Waiter(NamedTuple):
    """`codes`: tag codes it wants, None: any. `ordered`: it may also wait for the end of an invisible time. `owner`, `size`:
    who pays for it, and what it costs in bytes."""

    codes: frozenset[int] | None
    deadline: float
    ordered: bool
    alive: Callable[[], bool]
    woken: "asyncio.Future[bool]"
    owner: Owner
    size: int


class PopWaits:
    def __init__(self, polls: LongPolls) -> None:
        self._polls = polls
        polls.at_end(self.wake_all)
        polls.at_change(self._changed)
        self._waiting: dict[GroupQueue, dict[asyncio.Future[bool], Waiter]] = {}  # in the order in which they came
        self._watchers: dict[str, set[GroupQueue]] = {}  # by the topic whose messages wake them
        self._watched: dict[GroupQueue, tuple[str, ...]] = {}

    def count(self, place: GroupQueue) -> int:
        """How many pops wait there."""
        return len(self._waiting.get(place, ()))

    def hold(
        self,
        place: GroupQueue,
        topics: Collection[str],
        codes: frozenset[int] | None,
        deadline: float,
        alive: Callable[[], bool],
        owner: Owner,
        size: int,
        ordered: bool = False,
    ) -> "asyncio.Future[bool] | None":
        """The future's result: True: look again; False: the time is over. None instead of a future: too many wait already."""
        waiting, shares = self._waiting.get(place), self._polls.shares
        if shares.refused(owner, size) or (waiting is not None and len(waiting) >= MAX_OF_QUEUE):
            return None
        shares.take(owner, size)
        if waiting is None:
            waiting = self._waiting[place] = {}
            self._watch(place, topics)
        waiter = Waiter(codes, deadline, ordered, alive, asyncio.get_running_loop().create_future(), owner, size)
        waiting[waiter.woken] = waiter
        return waiter.woken

    def _watch(self, place: GroupQueue, topics: Collection[str]) -> None:
        self._watched[place] = tuple(dict.fromkeys(topics))
        for topic in self._watched[place]:
            if topic not in self._watchers:
                self._watchers[topic] = set()
                self._polls.watch(topic, self._rung)
            self._watchers[topic].add(place)

    def _unwatch(self, place: GroupQueue) -> None:
        for topic in self._watched.pop(place):
            self._watchers[topic].discard(place)
            if not self._watchers[topic]:
                del self._watchers[topic]
                self._polls.unwatch(topic)

    def _rung(self, topic: str, queue_id: int, codes: Iterable[int] | None) -> None:
        """Messages with these tag codes (None: nobody knows which) were committed there."""
        found = None if codes is None else set(codes)
        for place in list(self._watchers.get(topic, ())):
            if topic != place[1]:  # they come back whatever their tag
                self._wake_one(place, lambda waiter: True)
            elif place[2] in (-1, queue_id):
                self._wake_one(place, lambda waiter: found is None or waiter.codes is None or not found.isdisjoint(waiter.codes))

    def _changed(self, topic: str) -> None:
        """The topic may be deleted, or closed to readers: all pops that wait for it look again."""
        for place in [place for place in self._watchers.get(topic, ()) if place[1] == topic]:
            for waiter in list(self._waiting.get(place, {}).values()):
                self._leave(place, waiter, look=True)

    def group_changed(self, group: str) -> None:
        """The group was changed, or set to another place: all its pops that wait look again."""
        for place in [place for place in self._waiting if place[0] == group]:
            for waiter in list(self._waiting.get(place, {}).values()):
                self._leave(place, waiter, look=True)

    def freed(self, group: str, topic: str, queue_id: int) -> None:
        """The queue may have something now: one pop that waits for it looks again."""
        for place in list(self._watchers.get(topic, ())):
            if place[0] == group and (place[1] != topic or place[2] in (-1, queue_id)):
                self._wake_one(place, lambda waiter: True)

    def wake(self, place: GroupQueue) -> bool:
        """One pop that waits there looks again; False: none waits."""
        before = self.count(place)
        self._wake_one(place, lambda waiter: waiter.alive())
        return self.count(place) < before

    def wake_all_at(self, place: GroupQueue) -> None:
        """All pops that wait there look again."""
        for waiter in list(self._waiting.get(place, {}).values()):
            self._leave(place, waiter, look=True)

    def sweep(self, now: float) -> None:
        """Called every second: ends pops whose time is over or whose client is gone; may wake one for an ordered queue."""
        for place, waiting in list(self._waiting.items()):
            over = [one for one in waiting.values() if one.deadline <= now or not one.alive() or one.woken.done()]
            self._end(over, place)
            self._wake_one(place, lambda waiter: waiter.ordered)

    def wake_all(self) -> None:
        """The broker stops, or leads no more: all pops end."""
        for place, waiting in list(self._waiting.items()):
            self._end(list(waiting.values()), place)

    def _wake_one(self, place: GroupQueue, fits: Callable[[Waiter], bool]) -> None:
        """Wakes the first pop that fits, in the order in which they came."""
        waiting = self._waiting.get(place, {})
        chosen = next((waiter for waiter in waiting.values() if fits(waiter) and not waiter.woken.done()), None)
        if chosen is not None:
            self._leave(place, chosen, look=True)

    def _end(self, chosen: Iterable[Waiter], place: GroupQueue) -> None:
        for waiter in chosen:
            self._leave(place, waiter, look=False)

    def _leave(self, place: GroupQueue, waiter: Waiter, look: bool) -> None:
        waiting = self._waiting[place]
        del waiting[waiter.woken]
        self._polls.shares.give(waiter.owner, waiter.size)
        if not waiting:
            del self._waiting[place]
            self._unwatch(place)
        if not waiter.woken.done():
            waiter.woken.set_result(look)
