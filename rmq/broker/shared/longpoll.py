"""Pulls that found nothing wait here: a matching committed message wakes them, or they get "nothing" at their deadline.

[PullRequestHoldService]. Pure bookkeeping: the pull handler gives an `again`, to be called once: when a message came, at
the deadline, or when what the pull was checked against has changed. A sweep by the broker's timers drives the deadlines.
"""

from collections.abc import Callable, Container, Iterable
from typing import Final, NamedTuple

from rmq.delivery.shares import Owner, Share, Shares
from rmq.model import LITE_PREFIX
from rmq.names import lite_family

HELD_BYTES: Final = Share(of_connection=8 << 20, of_address=32 << 20, in_all=128 << 20)
"""Bytes that waiting requests may take: their frames, and what keeping them costs beside."""
PULL_BYTES: Final = 512  # keeping one


class HeldPull(NamedTuple):
    """One waiting pull. `codes`: tag codes it wants (None: any). `again(True)`: a message came, and it may wait on if that is
    none it wants; `again(False)`: it is to be answered. `alive`: False once its connection is gone. `size`: what it
    costs, in bytes."""

    group: str
    deadline: float
    codes: frozenset[int] | None
    again: Callable[[bool], None]
    alive: Callable[[], bool]
    owner: Owner
    size: int


Bell = Callable[[str, int, Iterable[int] | None], None]
"""Called with topic, queue and tag codes of committed messages; None: they may have any tag."""


class LongPolls:
    def __init__(self) -> None:
        self._held: dict[str, dict[int, list[HeldPull]]] = {}  # by topic and queue
        self._count = 0
        self.shares = Shares(HELD_BYTES)  # of all requests that wait, pops too
        self._bells: dict[str, Bell] = {}
        self._families: dict[str, Bell] = {}  # by how the light queues of a topic's lite topics begin
        self._ends: list[Callable[[], None]] = []
        self._changes: list[Callable[[str], None]] = []

    def __len__(self) -> int:
        return self._count + len(self._bells) + len(self._families)

    def watch(self, topic: str, bell: Bell) -> None:
        """All messages of that topic ring `bell`, until `unwatch`: for those who wait for any queue of it."""
        self._bells[topic] = bell

    def watch_lites(self, topic: str, bell: Bell | None) -> None:
        """The same for the messages of all lite topics of that topic, with the light queue's name; None: no more."""
        if bell is None:
            self._families.pop(lite_family(topic), None)
        else:
            self._families[lite_family(topic)] = bell

    def at_end(self, ends: Callable[[], None]) -> None:
        """`wake_all` calls it too."""
        self._ends.append(ends)

    def at_change(self, changed: Callable[[str], None]) -> None:
        """`topic_changed` calls it too."""
        self._changes.append(changed)

    def unwatch(self, topic: str) -> None:
        del self._bells[topic]

    def hold(self, topic: str, queue_id: int, held: HeldPull) -> str:
        """Why the pull cannot wait: its peer, or all peers together, have too many waiting pulls. "" if it waits now."""
        if why := self.shares.refused(held.owner, held.size):
            return why
        self.shares.take(held.owner, held.size)
        self._held.setdefault(topic, {}).setdefault(queue_id, []).append(held)
        self._count += 1
        return ""

    def wake(self, topic: str, queue_id: int, tags_codes: Iterable[int] | None) -> None:
        """Messages with these tag codes (None: nobody knows which) were committed in this queue."""
        if self._bells and (bell := self._bells.get(topic)) is not None:
            bell(topic, queue_id, tags_codes)
        if (
            self._families
            and topic.startswith(LITE_PREFIX)
            and (bell := self._families.get(topic[: topic.rfind("$") + 1])) is not None
        ):
            bell(topic, queue_id, tags_codes)
        if queue_id not in self._held.get(topic, ()):
            return
        codes = None if tags_codes is None else set(tags_codes)
        self._part(topic, queue_id, lambda held: codes is None or held.codes is None or not codes.isdisjoint(held.codes), True)

    def sweep(self, now: float) -> None:
        """Answer those whose deadline has passed, forget those whose connection is gone."""
        self._everywhere(lambda held: held.deadline <= now or not held.alive())

    def topic_changed(self, topic: str) -> None:
        """Pulls that wait for this topic are checked again: the topic may be deleted, or closed to readers."""
        for queue_id in list(self._held.get(topic, ())):
            self._part(topic, queue_id, lambda held: True)
        for changed in self._changes:
            changed(topic)

    def groups_changed(self, groups: Container[str]) -> None:
        """Pulls of these groups are checked again: they may want other tags now (C14), or may not consume any more."""
        self._everywhere(lambda held: held.group in groups)

    def wake_all(self) -> None:
        """Answer everybody with what there is now (the broker stops, or leads no more)."""
        for ends in self._ends:
            ends()
        self._everywhere(lambda held: True)

    def _everywhere(self, is_due: Callable[[HeldPull], bool]) -> None:
        for topic, places in list(self._held.items()):
            for queue_id in list(places):
                self._part(topic, queue_id, is_due)

    def _part(self, topic: str, queue_id: int, is_due: Callable[[HeldPull], bool], may_wait: bool = False) -> None:
        """Pulls that are due are woken, the others wait on."""
        places = self._held.get(topic, {})
        due: list[HeldPull] = []
        kept: list[HeldPull] = []
        for held in places.pop(queue_id, ()):
            (due if is_due(held) else kept).append(held)
        if kept:
            places[queue_id] = kept
        elif not places:
            self._held.pop(topic, None)
        self._count -= len(due)
        for held in due:
            self.shares.give(held.owner, held.size)
            if held.alive():
                held.again(may_wait)
