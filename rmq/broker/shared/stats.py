"""Counts messages in and out: rates of the last 10, 60 and 600 seconds and totals, for clusterList and brokerStatus.

Sampled every 10 s from counters that exist anyway, so the hot path pays one addition per request.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping

from rmq.broker.shared.history import History
from rmq.net.transport.connection import Call

SAMPLE_S = 10
_TAKEN_S = 60
KEPT = 61  # ten minutes and the sample before


class Rate:
    """One counter over time."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[tuple[float, int]] = deque(maxlen=KEPT)

    def sample(self, now: float) -> None:
        self._samples.append((now, self.total))

    def per_second(self, seconds: int) -> float | None:
        """Average over the last `seconds`, None while there is no sample that old (RocketMQ leaves the number out, too)."""
        steps = seconds // SAMPLE_S
        if len(self._samples) <= steps:
            return None
        (then, before), (now, after) = self._samples[-1 - steps], self._samples[-1]
        return (after - before) / (now - then) if now > then else 0.0

    def text(self) -> str:
        """ "a b c " as RocketMQ's runtime info prints rates."""
        rates = [self.per_second(seconds) for seconds in (10, 60, 600)]
        return "".join(f"{rate:.2f} " for rate in (rates[0] or 0.0, *rates[1:]) if rate is not None)


class DayMarks:
    """What a counter stood at when today and yesterday began (local days), as RocketMQ's clusterList -m wants it."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._day: int | None = None
        self.today = 0
        self.yesterday = 0

    def sample(self, day: int) -> None:
        """`day`: a number that changes at midnight."""
        if day != self._day:
            self.yesterday, self.today = self.today, self._rate.total
            self._day = day


Reader = tuple[str, str]
"""Topic and group."""


class Taken:
    """How many messages each reader was handed, now and up to two minutes ago."""

    def __init__(self) -> None:
        self._old = self._middle = self._new = (0.0, dict[Reader, int]())

    def sample(self, now: float, counts: dict[Reader, int]) -> None:
        if not self._new[0]:
            self._old = self._middle = (now, counts)
        elif now - self._middle[0] >= _TAKEN_S:
            self._old, self._middle = self._middle, (now, counts)
        self._new = (now, counts)

    def per_second(self, reader: Reader) -> float:
        """Of the last one or two minutes; of less after a start."""
        (then, before), (now, after) = self._old, self._new
        more = after.get(reader, 0) - before.get(reader, 0)
        return max(0.0, more / (now - then)) if now > then else 0.0


MAX_READERS = 100_000  # groups times the topics that they read


class BrokerStats:
    """`topic_ends()`: topic -> sum of the next offsets of its queues, system topics left out; `log_end()`: bytes.

    Puts are not counted: what was put since the start follows from these ends.
    """

    def __init__(self, topic_ends: Callable[[], Mapping[str, int]], log_end: Callable[[], int]) -> None:
        self._topic_ends = topic_ends
        self._log_end = log_end
        self._known = topic_ends()
        self._log_begun = log_end()
        self.put = Rate()
        self.put_bytes = Rate()
        self.found = Rate()  # pull requests that found messages
        self.missed = Rate()
        self.transferred = Rate()  # messages handed out
        self.out: dict[Reader, list[int]] = {}  # messages and bytes handed out
        self._taken = Taken()
        self.charge: Callable[[Call, str, int, int], None] | None = None  # where there are quotas: topic, messages, bytes
        self.put_days = DayMarks(self.put)
        self.get_days = DayMarks(self.transferred)
        self._topics: dict[str, Rate] = {}
        self.history = History()

    def handed_out(self, call: Call, topic: str, group: str, count: int, size: int) -> None:
        """Counts one answer with messages."""
        if self.charge is not None:
            self.charge(call, topic, count, size)
        self.found.total += 1
        self.transferred.total += count
        row = self.out.get((topic, group))
        if row is None:
            if len(self.out) >= MAX_READERS:
                self.out.clear()  # counters begin at 0 again, as after a restart
            row = self.out[topic, group] = [0, 0]
        row[0] += count
        row[1] += size

    def refresh(self) -> Mapping[str, int]:
        """Brings `put` and `put_bytes` up to now. A topic that was deleted and made again began at 0."""
        ends = self._topic_ends()
        for topic, end in ends.items():
            before = self._known.get(topic, 0)
            self.put.total += end - before if end >= before else end
        self._known = ends
        self.put_bytes.total = self._log_end() - self._log_begun
        return ends

    def sample(self, now: float, day: int) -> None:
        ends = self.refresh()
        self.put_days.sample(day)
        self.get_days.sample(day)
        for rate in (self.put, self.put_bytes, self.found, self.missed, self.transferred):
            rate.sample(now)
        self._taken.sample(now, {reader: row[0] for reader, row in self.out.items()})
        self._topics = {topic: self._topics.get(topic) or Rate() for topic in ends}
        for topic, end in ends.items():
            self._topics[topic].total = end
            self._topics[topic].sample(now)

    def note(self, now: float, cluster: str, came_bytes: Mapping[str, int]) -> None:
        """For `history`, after `sample`. `came_bytes`: of each topic."""
        counts: dict[Hashable, int] = {
            ("BROKER_PUT_NUMS", cluster): self.put.total,
            ("BROKER_GET_NUMS", cluster): self.transferred.total,
        }
        counts |= {("TOPIC_PUT_NUMS", topic): rate.total for topic, rate in self._topics.items()}
        counts |= {("TOPIC_PUT_SIZE", topic): size for topic, size in came_bytes.items()}
        for (topic, group), (count, size) in self.out.items():
            counts["GROUP_GET_NUMS", f"{topic}@{group}"], counts["GROUP_GET_SIZE", f"{topic}@{group}"] = count, size
        self.history.sample(now, counts)

    def group_get_tps(self, group: str, topics: Iterable[str]) -> float:
        """Messages that the group was handed of these topics, a second. [BrokerStatsManager.tpsGroupGetNums]"""
        return sum(self._taken.per_second((topic, group)) for topic in topics)

    def topic_put_tps(self, topic: str) -> float:
        rate = self._topics.get(topic)
        return (rate.per_second(60) or rate.per_second(10) or 0.0) if rate else 0.0
