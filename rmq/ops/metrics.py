"""Metrics for Prometheus: gathered on the event loop, some at a time, and written in a thread."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from prometheus_client import exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rmq.measures import Family, Histogram, Labels, Row

SLICE_S: Final = 0.002  # so long the loop is kept at a time
MAX_NAMES: Final = 1_000  # topics, groups, pairs of them, ...: those that come later are "other" together
OTHER: Final = "other"
NAMES: Final = frozenset({"topic", "consumer_group", "producer_group", "language", "version", "broker"})
"""Labels whose values clients choose."""


class Part(Protocol):
    """What a process runs: a broker, a nameserver."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Of all its series."""

    def metrics(self) -> Iterable[Family]:
        """On the event loop. See `rmq.measures.Family`."""

    def waits_for(self) -> Sequence[str]:
        """On the event loop: what it lacks before it can do its part."""

    def fatal(self) -> str:
        """In any thread: why only a new start helps."""


class Gathered(NamedTuple):
    """A family with the labels of its part. `rows`: those that were read on the loop, or are still to be read."""

    family: Family
    common: Mapping[str, str]
    rows: Iterable[Row]


async def gather(parts: Sequence[tuple[Mapping[str, str], Iterable[Family]]]) -> list[Gathered]:
    """On the event loop, which does other things in between."""
    found: list[Gathered] = []
    until = time.perf_counter() + SLICE_S
    for common, families in parts:
        for family in families:
            rows: list[Row] = []
            for row in () if family.slow else family.rows:
                rows.append(row)
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE_S
            found.append(Gathered(family, common, family.rows if family.slow else rows))
    return found


class Bounded:
    """Which names are shown: those that came first, as long as they are there."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._known: dict[tuple[str, ...], dict[Labels, None]] = {}  # names of labels -> combinations of values

    def rows(self, family: Family, rows: Iterable[Row]) -> dict[Labels, float | Histogram]:
        """Each combination once."""
        at = [number for number, label in enumerate(family.labels) if label in NAMES]
        if not at:
            return dict(rows)
        found: dict[Labels, float] = {}
        shown, seen = self._known.get(family.labels, {}), dict[Labels, None]()
        room = self._most - len(shown)
        for labels, value in rows:
            assert not isinstance(value, Histogram), "histograms have no labels that clients choose"
            chosen = tuple(labels[number] for number in at)
            if chosen in shown or chosen in seen:
                seen[chosen] = None
            elif room > 0:
                room, seen[chosen] = room - 1, None
            else:
                labels = tuple(OTHER if number in at else text for number, text in enumerate(labels))
            before = found.get(labels, 0.0)
            found[labels] = max(before, value) if family.peak else before + value
        self._known[family.labels] = seen
        return dict(found)


class Page(Collector):
    """What was gathered, for an encoder of `prometheus_client`; made in a thread."""

    def __init__(self, gathered: Sequence[Gathered], bounded: Bounded) -> None:
        self._gathered = gathered
        self._bounded = bounded

    def collect(self) -> Iterable[Metric]:
        """Families of several parts become one."""
        metrics: dict[str, Metric] = {}
        for family, common, rows in self._gathered:
            labels = (*common, *family.labels)
            metric = metrics.setdefault(family.name, _metric(family))
            for values, value in self._bounded.rows(family, rows).items():
                _add(metric, family, dict(zip(labels, (*common.values(), *values), strict=True)), value)
        return metrics.values()


def spelled(page: Page, accept: str) -> tuple[str, bytes]:
    """Content type and text, as the client's Accept header wants them."""
    spell, kind = exposition.choose_encoder(accept)
    return kind, spell(page)


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
