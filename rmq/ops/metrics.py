"""Metrics for Prometheus: gathered on the event loop in slices, and written in a thread."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, TypeVar

from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from rmq.background import SLICE_S, Rests
from rmq.measures import Family, Histogram, Labels, Row

MAX_NAMES: Final = 1_000  # topics, groups, pairs of them, ...: later ones are added up as "other"
OTHER: Final = "other"
NAMES: Final = frozenset({"topic", "consumer_group", "producer_group", "language", "version", "broker"})
"""Labels whose values clients choose."""
T = TypeVar("T")


class Part(Protocol):
    """What a process runs: a broker, a nameserver."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of all its series."""

    def metrics(self) -> Iterable[Family]:
        """On the event loop. See `rmq.measures.Family`."""

    def waits_for(self) -> Sequence[str]:
        """Called on the event loop: what the part still waits for before it can work."""

    def fatal(self) -> str:
        """Called in any thread: why only a restart helps, or ""."""


class Gathered(NamedTuple):
    """A family with the labels of its part. `rows`: sums of what was read on the loop; None if its rows are still to be read."""

    family: Family
    common: Mapping[str, str]
    rows: Mapping[Labels, float | Histogram] | None


class Bounded:
    """Which names are shown: those that came first, as long as they exist. Used by one scrape after the other."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._known: dict[tuple[str, ...], dict[Labels, None]] = {}  # names of labels -> combinations of values

    def rows(self, family: Family, rows: Iterable[Row]) -> dict[Labels, float | Histogram]:
        """Each combination once."""
        adding = _Adding(family, self._known.get(family.labels, {}), self._most)
        for labels, value in rows:
            adding.add(labels, value)
        return self._finished(adding)

    async def gathered(self, family: Family, turns: "_Turns") -> dict[Labels, float | Histogram]:
        """Like `rows`, on the event loop. Keeps only sums: a hundred thousand rows would start the garbage collector."""
        adding = _Adding(family, self._known.get(family.labels, {}), self._most)
        for labels, value in family.rows:
            adding.add(labels, value)
            if turns.over():
                await turns.next()
        return self._finished(adding)

    def _finished(self, adding: "_Adding") -> dict[Labels, float | Histogram]:
        if adding.at:
            self._known[adding.family.labels] = adding.seen
        return adding.found


class _Adding:
    """Adds up the rows of one family. `shown`: combinations that have a series already."""

    def __init__(self, family: Family, shown: Mapping[Labels, None], most: int) -> None:
        self.family = family
        self.at = [index for index, label in enumerate(family.labels) if label in NAMES]
        self.found: dict[Labels, float | Histogram] = {}
        self.seen: dict[Labels, None] = {}
        self._shown = shown
        self._room = most - len(shown)

    def add(self, labels: Labels, value: float | Histogram) -> None:
        if not self.at or isinstance(value, Histogram):
            self.found[labels] = value
            return
        at, chosen = self.at, tuple([labels[index] for index in self.at])
        if chosen in self._shown or chosen in self.seen:
            self.seen[chosen] = None
        elif self._room > 0:
            self._room, self.seen[chosen] = self._room - 1, None
        else:
            labels = tuple([OTHER if index in at else text for index, text in enumerate(labels)])
        before = self.found.get(labels, 0.0)
        assert not isinstance(before, Histogram), "a family has one kind of values"
        self.found[labels] = max(before, value) if self.family.peak else before + value


class _Turns:
    """Lets other work on the loop run after each `SLICE_S`."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    def over(self) -> bool:
        return time.perf_counter() > self._until

    async def next(self) -> None:
        await asyncio.sleep(0)
        self._until = time.perf_counter() + SLICE_S


async def gather(parts: Sequence[tuple[Mapping[str, str], Iterable[Family]]], bounded: Bounded) -> list[Gathered]:
    """Gathers on the event loop, which does other work in between."""
    found, turns = list[Gathered](), _Turns()
    for common, families in parts:
        for family in families:
            found.append(Gathered(family, common, None if family.slow else await bounded.gathered(family, turns)))
    return found


class _Samples(list[Sample]):
    """Of one family, read with rests."""

    def __init__(self, samples: Iterable[Sample], rests: Rests) -> None:
        super().__init__(samples)
        self._rests = rests

    def __iter__(self) -> Iterator[Sample]:
        return self._rests.between(super().__iter__())


class _Page(Collector):
    """The gathered families, for an encoder of `prometheus_client`."""

    def __init__(self, gathered: Sequence[Gathered], bounded: Bounded) -> None:
        self._gathered = gathered
        self._bounded = bounded

    def collect(self) -> Iterable[Metric]:
        """Families of several parts become one."""
        metrics, rests = dict[str, Metric](), Rests()
        for family, common, read in self._gathered:
            labels = (*common, *family.labels)
            rows = self._bounded.rows(family, family.rows) if read is None else read
            metric = metrics.setdefault(family.name, _metric(family))
            for values, value in rests.between(rows.items()):
                _add(metric, family, dict(zip(labels, (*common.values(), *values), strict=True)), value)
        for metric in metrics.values():
            metric.samples = _Samples(metric.samples, rests)
        return metrics.values()


def spelled(gathered: Sequence[Gathered], bounded: Bounded, accept: str) -> tuple[str, bytes]:
    """Content type and text, by the client's Accept header; made in a thread."""
    spell, kind = exposition.choose_encoder(accept)
    return kind, spell(_Page(gathered, bounded))


def _metric(family: Family) -> Metric:
    kinds: dict[str, Callable[[str, str], Metric]] = {
        "gauge": GaugeMetricFamily,
        "counter": CounterMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    return kinds[family.kind](family.name, family.about)


def _add(metric: Metric, family: Family, labels: dict[str, str], value: float | Histogram) -> None:
    if not isinstance(value, Histogram):
        metric.add_sample(family.name, labels, value)
        return
    counts = [*accumulate(value.counts)]
    for bound, count in zip((*map(str, value.bounds), "+Inf"), counts, strict=True):
        metric.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
    metric.add_sample(f"{family.name}_count", labels, counts[-1])
    metric.add_sample(f"{family.name}_sum", labels, value.sum)
