"""Pulls that found nothing and wait: woken by a matching committed message, or answered "nothing" at their deadline.

[PullRequestHoldService]. Pure bookkeeping: the pull handler gives a `retry` to call when a message came and a `give_up`
for the deadline; a sweep by the broker's timers drives the deadlines.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

MAX_HELD = 100_000


class Held(NamedTuple):
    """One waiting pull. `codes`: tag codes it wants (None: any). `alive`: False once its connection is gone."""

    deadline: float
    codes: frozenset[int] | None
    retry: Callable[[], None]
    give_up: Callable[[], None]
    alive: Callable[[], bool]


class LongPolls:
    def __init__(self) -> None:
        self._held: dict[tuple[str, int], list[Held]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, topic: str, queue_id: int, held: Held) -> bool:
        """False when too many wait already: answer at once instead."""
        if self._count >= MAX_HELD:
            return False
        self._held.setdefault((topic, queue_id), []).append(held)
        self._count += 1
        return True

    def wake(self, topic: str, queue_id: int, tags_codes: Iterable[int]) -> None:
        """Messages with these tag codes were committed in this queue."""
        waiting = self._held.pop((topic, queue_id), None)
        if waiting is None:
            return
        codes = set(tags_codes)
        woken = [held for held in waiting if held.codes is None or not codes.isdisjoint(held.codes)]
        self._keep(topic, queue_id, [held for held in waiting if held not in woken], len(woken))
        for held in woken:
            held.retry()

    def sweep(self, now: float) -> None:
        """Answer those whose deadline has passed, forget those whose connection is gone."""
        for topic, queue_id in list(self._held):
            waiting = self._held.pop((topic, queue_id))
            alive = [held for held in waiting if held.alive()]
            overdue = [held for held in alive if held.deadline <= now]
            kept = [held for held in alive if held.deadline > now]
            self._keep(topic, queue_id, kept, len(waiting) - len(kept))
            for held in overdue:
                held.give_up()

    def wake_all(self) -> None:
        """Answer everybody with what there is now (the broker stops, a topic went away)."""
        everybody = [held for waiting in self._held.values() for held in waiting]
        self._held.clear()
        self._count = 0
        for held in everybody:
            held.give_up()

    def _keep(self, topic: str, queue_id: int, kept: list[Held], gone: int) -> None:
        self._count -= gone
        if kept:
            self._held.setdefault((topic, queue_id), []).extend(kept)
