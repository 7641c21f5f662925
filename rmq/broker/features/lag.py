"""How far consumer groups are behind: in messages, and in time.

Exact, also for a group that wants some tags only. Where counting would take long (too much is waiting, or it filters by SQL)
every message counts, and the number is marked as estimated [ConsumerLagCalculator].
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rmq.broker.feature import Feature
from rmq.broker.shared.ports import Reader
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.delivery import filters
from rmq.delivery.filters import Selection
from rmq.delivery.groups import ConsumerRegistry, is_system_group
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.receipts import ReceiptTable
from rmq.errors import Refusal, RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.measures import Family, Labels, Row
from rmq.model import LITE_PREFIX, RETRY_PREFIX
from rmq.names import lite_parts
from rmq.routing.topics import TopicTable

MAX_COUNTED: Final = 20_000  # messages of a topic that a group has not consumed: up to so many are looked at one by one
MAX_LOOKED: Final = 1_000  # pairs of group and topic whose messages are looked at, those that lag most
_STEP: Final = 4_000
_LABELS = ("topic", "consumer_group", "is_retry", "is_system")
_ABOUT = {
    "lag_messages": "not consumed yet, those that are handed out included",
    "ready_messages": "not handed out yet",
    "inflight_messages": "handed out and not consumed yet: popped and not acknowledged, or pulled and not committed",
    "lag_latency_milliseconds": "age of the oldest message that is not consumed",
    "queueing_latency_milliseconds": "age of the oldest message that is not handed out",
}


class _Behind(NamedTuple):
    """One group and topic. `wants`: its filter. `queues`: that have more, or messages that are popped and not acknowledged: the
    group's offset, and how many are popped; they stand before it."""

    labels: Labels
    lag: int
    inflight: int
    wants: Selection
    queues: list[tuple[ConsumeQueue, int, int]]


class _Looked(NamedTuple):
    """The figures that need reads. `oldest_ms`, `waiting_ms`: when the oldest message was stored that is not consumed, and that
    is not popped; -1: none, or it is gone."""

    lag: int
    estimated: bool
    oldest_ms: int
    waiting_ms: int


class Lag(Feature):
    """`receipts`: messages that are popped and not acknowledged."""

    def __init__(
        self,
        offsets: OffsetTable,
        topics: TopicTable,
        registry: ConsumerRegistry,
        receipts: ReceiptTable,
        reader: Reader,
        clock: Clock,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._registry = registry
        self._receipts = receipts
        self._reader = reader
        self._clock = clock
        self._filtered = True

    async def on_settings(self, settings: NodeSettings) -> None:
        self._filtered = settings.filtered_lag

    def led_metrics(self) -> Iterable[Family]:
        """One pass over all groups, some at a time; what must be read is read later, in a thread."""
        found: list[_Behind] = []
        lites: list[tuple[str, list[str]]] = []
        yield _family("inflight_messages", self._pass(found, lites))
        looking = _Looking(found, lites, self._offsets, self._reader, self._clock.wall_ms())
        yield _family("lag_messages", looking.rows("lag"), slow=True)
        yield _family("ready_messages", looking.rows("ready"), slow=True)
        yield _family("lag_latency_milliseconds", looking.rows("age"), slow=True, peak=True)
        yield _family("queueing_latency_milliseconds", looking.rows("waiting"), slow=True, peak=True)
        about = "1 if the lag counts messages that the group's filter leaves out"
        yield Family("rmq_consumer_lag_estimated", "gauge", about, _LABELS, looking.rows("estimated"), slow=True, peak=True)

    def _pass(self, found: list[_Behind], lites: list[tuple[str, list[str]]]) -> Iterator[Row]:
        """`lites`: filled with the light queues of lite topics, by group; there may be very many."""
        for group, topics in self._offsets.groups_and_topics():
            if light := [topic for topic in topics if topic.startswith(LITE_PREFIX)]:
                lites.append((group, light))
            for topic in topics if not light else set(topics).difference(light):
                behind = None if self._registry.has_left(group, topic) else self._behind(group, topic)
                if behind is not None:
                    found.append(behind)
                    yield behind.labels, float(behind.inflight)

    def _behind(self, group: str, topic: str) -> _Behind | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        lag = inflight = 0
        queues = []
        for queue_id in range(config.read_queue_nums):
            offset, queue = self._offsets.query(group, topic, queue_id), self._reader.queues.find(topic, queue_id)
            if offset is None or queue is None:
                continue
            pulled = min(self._offsets.pull_offset(group, topic, queue_id), queue.max)
            at, out = max(offset, queue.min), self._receipts.open_of(group, topic, queue_id)
            missing = max(0, queue.max - at)
            inflight += out + max(0, pulled - at)
            lag += missing + out
            if missing or out:
                queues.append((queue, at, out))
        labels = topic, group, _said(topic.startswith(RETRY_PREFIX)), _said(is_system_group(group))
        return _Behind(labels, lag, inflight, self._wants(group, topic), queues)

    def _wants(self, group: str, topic: str) -> Selection:
        if not self._filtered:
            return None
        wanted = self._registry.subscription(group, topic)
        try:
            return None if wanted is None else filters.selection(wanted.expression, wanted.expression_type)
        except Refusal:  # a client may subscribe to nonsense: it is refused when it pulls
            return None


class _Looking:
    """The rows that one pass found. Each is read once, by whoever asks first; in a thread."""

    def __init__(
        self, found: list[_Behind], lites: list[tuple[str, list[str]]], offsets: OffsetTable, reader: Reader, now_ms: int
    ) -> None:
        self._found = found
        self._lites = lites
        self._offsets = offsets
        self._reader = reader
        self._now_ms = now_ms
        self._known: list[_Looked] | None = None

    def rows(self, what: str) -> Iterator[Row]:
        if self._known is None:
            self._known = self._look()
        for behind, looked in zip(self._found, self._known, strict=True):
            ready = max(0, looked.lag - behind.inflight)
            age_ms, waiting_ms = (
                max(0, self._now_ms - at) if looked.lag and at >= 0 else 0 for at in (looked.oldest_ms, looked.waiting_ms)
            )
            values = {
                "lag": looked.lag,
                "ready": ready,
                "estimated": looked.estimated,
                "age": age_ms,
                "waiting": waiting_ms if ready else 0,
            }
            yield behind.labels, float(values[what])

    def _look(self) -> list[_Looked]:
        self._found += [behind for group, names in self._lites for behind in self._of_lites(group, names)]
        most = sorted(range(len(self._found)), key=lambda at: -self._found[at].lag)[:MAX_LOOKED]
        near = {at for at in most if self._found[at].lag}
        return [
            self._one(behind) if at in near else _Looked(behind.lag, bool(behind.lag and behind.wants is not None), -1, -1)
            for at, behind in enumerate(self._found)
        ]

    def _of_lites(self, group: str, names: list[str]) -> Iterator[_Behind]:
        """One for each topic, of all its lite topics together [LiteConsumerLagCalculator]. Its queue: where one waits longest."""
        lags: dict[str, int] = {}
        first: dict[str, tuple[int, ConsumeQueue, int]] = {}  # where it is in the log
        for name in names:
            topic, offset, queue = lite_parts(name)[0], self._offsets.query(group, name, 0), self._reader.queues.find(name, 0)
            if not topic or offset is None or queue is None:
                continue
            at = max(offset, queue.min)
            lags[topic] = lags.get(topic, 0) + max(0, queue.max - at)
            if at < queue.max and (topic not in first or queue.entry(at).offset < first[topic][0]):
                first[topic] = queue.entry(at).offset, queue, at
        for topic, lag in lags.items():
            labels = topic, group, _said(False), _said(is_system_group(group))
            yield _Behind(labels, lag, 0, None, [(*first[topic][1:], 0)] if topic in first else [])

    def _one(self, behind: _Behind) -> _Looked:
        """Messages that cannot be read now (damaged, or just deleted) all count."""
        codes = filters.tag_codes(behind.wants)
        exact = behind.wants is None or (codes is not None and behind.lag <= MAX_COUNTED)
        lag = behind.lag
        try:
            if exact and codes is not None:
                lag = sum(out + _count(queue, at, codes) for queue, at, out in behind.queues)
            waiting = [self._stored_ms(queue, at, codes) for queue, at, _ in behind.queues]
            popped = [self._stored_ms(queue, max(queue.min, at - out), codes) for queue, at, out in behind.queues if out]
        except (RmqError, OSError):
            return _Looked(behind.lag, not exact, -1, -1)
        return _Looked(lag, not exact, *(min((at for at in some if at >= 0), default=-1) for some in (waiting + popped, waiting)))

    def _stored_ms(self, queue: ConsumeQueue, offset: int, codes: frozenset[int] | None) -> int:
        """Store time of the first wanted message from there on, if it is near."""
        spans = queue.find(offset, 1, 0, codes).spans
        return self._reader.store_time(spans[0][0]) if spans else -1


def _count(queue: ConsumeQueue, offset: int, codes: frozenset[int]) -> int:
    count, end = 0, queue.max
    while offset < end:
        found = queue.find(offset, _STEP, 1 << 62, codes)
        count += found.examined if queue.holds_batches else len(found.spans)
        if found.next_offset <= offset:
            break
        offset = found.next_offset
    return count


def _family(name: str, rows: Iterable[Row], slow: bool = False, peak: bool = False) -> Family:
    return Family(f"rocketmq_consumer_{name}", "gauge", _ABOUT[name], _LABELS, rows, slow, peak)


def _said(holds: bool) -> str:
    return "true" if holds else "false"
