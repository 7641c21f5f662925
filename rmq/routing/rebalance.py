"""Which member of a group reads which queue. Every member computes it alone, from the same lists, with the same result (C8)."""

from collections.abc import Callable, Mapping, Sequence

from rmq.model import MessageQueue

Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]
"""(queues, client ids of the members, my client id) -> my queues. The order of the lists does not matter."""


def average(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
    """Blocks of neighbours, the first members one queue more [AllocateMessageQueueAveragely]. Nothing if I am no member."""
    place, count = _place(members, me)
    if place < 0:
        return []
    share, more = divmod(len(queues), count)
    start = place * share + min(place, more)
    return sorted(queues)[start : start + share + (place < more)]


def average_by_circle(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
    """Dealt out one by one [AllocateMessageQueueAveragelyByCircle]. Nothing if I am no member."""
    place, count = _place(members, me)
    return [] if place < 0 else sorted(queues)[place::count]


STRATEGIES: Mapping[str, Strategy] = {"AVG": average, "AVG_BY_CIRCLE": average_by_circle}
"""By RocketMQ's names."""


def _place(members: Sequence[str], me: str) -> tuple[int, int]:
    """My position in the sorted list of members (-1: not in it), and how many they are."""
    names = sorted(set(members))
    return (names.index(me) if me in names else -1), len(names)
