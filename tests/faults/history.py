"""What a group's clients saw, and whether the rules allow it (C1-C5, R1, R2). Tests try it on bad histories (G3)."""

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.faults.checker import Ack, Stored, problems as stored_problems

ACKED, UNKNOWN, REFUSED = "acked", "unknown", "refused"


class Attempt(NamedTuple):
    """One call of a producer, from `began_s` to `ended_s` (monotonic). `offset`: where it was stored, if acknowledged;
    `trouble`: what was said, if not."""

    queue_id: int
    body: bytes
    began_s: float
    ended_s: float
    outcome: str
    offset: int = -1
    trouble: str = ""


class Delivery(NamedTuple):
    """A message that a consumer got."""

    queue_id: int
    offset: int
    body: bytes
    at_s: float


class Lead(NamedTuple):
    """A node was seen leading."""

    epoch: int
    node: str


class History(NamedTuple):
    """`delivered`: to a consumer group, all its members together as it came, one list for each group. `read`: by readers of any
    node. `queues`: what each queue holds at the end. `patience_s`: what was handed out longer ago never comes again."""

    attempts: Sequence[Attempt]
    delivered: Sequence[Sequence[Delivery]]
    read: Iterable[Delivery]
    queues: Mapping[int, Sequence[Stored]]
    leads: Iterable[Lead]
    patience_s: float = 60.0


def problems(history: History) -> list[str]:
    """Returns what is wrong, in words; empty if nothing is."""
    acks = [Ack(a.queue_id, a.offset, a.body) for a in history.attempts if a.outcome == ACKED]
    unknown = [a.body for a in history.attempts if a.outcome == UNKNOWN]
    found = stored_problems(acks, unknown, history.queues)
    found += _out_of_order(history.attempts)
    found += _undelivered(acks, history.delivered)
    found += _changed(history)
    for deliveries in history.delivered:
        found += _badly_delivered(deliveries, history.patience_s)
    return found + _two_leaders(history.leads)


def _out_of_order(attempts: Sequence[Attempt]) -> list[str]:
    """C4: if a send was acknowledged before another one to the same queue began, it lies before that one."""
    found = []
    acked: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.outcome == ACKED:
            acked[attempt.queue_id].append(attempt)
    for queue_id, sends in acked.items():
        sends.sort(key=lambda attempt: attempt.ended_s)
        highest, ends = -1, []
        for attempt in sends:
            highest = max(highest, attempt.offset)
            ends.append((attempt.ended_s, highest))
        for attempt in sends:
            before = bisect.bisect_left(ends, (attempt.began_s, -1)) - 1
            if before >= 0 and ends[before][1] >= attempt.offset:
                found.append(f"order: queue {queue_id} offset {attempt.offset} was sent after {ends[before][1]} was acknowledged")
    return found


def _undelivered(acks: Iterable[Ack], delivered: Sequence[Sequence[Delivery]]) -> list[str]:
    """C1: the group got every acknowledged message."""
    if not delivered:
        return []
    came = {each.body for deliveries in delivered for each in deliveries}
    return [f"undelivered: queue {a.queue_id} offset {a.queue_offset}" for a in acks if a.body not in came]


def _changed(history: History) -> list[str]:
    """C3: every reader finds the same message at an offset, at any time."""
    found = []
    at = {(queue_id, each.queue_offset): each.body for queue_id, stored in history.queues.items() for each in stored}
    for each in (*(one for deliveries in history.delivered for one in deliveries), *history.read):
        if at.setdefault((each.queue_id, each.offset), each.body) != each.body:
            found.append(f"changed: queue {each.queue_id} offset {each.offset} was {each.body[:40]!r} at {each.at_s:.1f} s")
    return found


def _badly_delivered(deliveries: Sequence[Delivery], patience_s: float) -> list[str]:
    """C4: offsets rise by one. C5: a message that comes again was handed out a short while before."""
    found = []
    first: dict[tuple[int, int], float] = {}
    highest: dict[int, int] = {}
    for each in deliveries:
        place = (each.queue_id, each.offset)
        expected = highest.get(each.queue_id, each.offset - 1) + 1
        if each.offset > expected:
            found.append(f"skipped: queue {each.queue_id} came to {each.offset} where {expected} belongs")
        elif each.offset < expected and each.at_s - first.get(place, float("-inf")) > patience_s:
            found.append(f"again: queue {each.queue_id} offset {each.offset}, long after it was handed out")
        first.setdefault(place, each.at_s)
        highest[each.queue_id] = max(expected - 1, each.offset)
    return found


def repeats(deliveries: Sequence[Delivery]) -> int:
    """Returns how many messages came more than once."""
    return len(deliveries) - len({(each.queue_id, each.offset) for each in deliveries})


def _two_leaders(leads: Iterable[Lead]) -> list[str]:
    """R1."""
    found = []
    of: dict[int, str] = {}
    for lead in leads:
        if of.setdefault(lead.epoch, lead.node) != lead.node:
            found.append(f"two leaders: {lead.node} and {of[lead.epoch]} in epoch {lead.epoch}")
    return found


def unequal(logs: Mapping[str, bytes]) -> list[str]:
    """R2, R4: compares the committed bytes of the nodes, between the same two offsets."""
    (first, bytes_), *others = logs.items()
    return [f"logs differ: {first} and {name}" for name, other in others if other != bytes_]
