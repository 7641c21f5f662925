"""Metrics for Prometheus: gathered on the event loop in slices, and written in a thread."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from rmq.measures import Family, Histogram, Labels, Row

SLICE_S: Final = 0.002  # the longest slice of the loop's time
MAX_NAMES: Final = 1_000  # topics, groups, pairs of them, ...: later ones are added up as "other"
OTHER: Final = "other"
NAMES: Final = frozenset({"topic", "consumer_group", "producer_group", "language", "version", "broker"})
"""Labels whose values clients choose."""
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"


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


def spelled(gathered: Sequence[Gathered], bounded: Bounded, accept: str) -> tuple[str, bytes]:
    """Content type and text, by the client's Accept header; made in a thread. Families of several parts become one.

    Keeps text only, no object for each series: thousands of these would start the garbage collector, which holds everything up.
    """
    openmetrics = OPENMETRICS.partition(";")[0] in accept
    found: dict[str, list[str]] = {}
    for family, common, read in gathered:
        rows = bounded.rows(family, family.rows) if read is None else read
        lines = found.setdefault(family.name, [_head(family, openmetrics)])
        names = [f'{name}="' for name in family.labels]
        of_all = "".join([f'{name}="{_escaped(text)}",' for name, text in common.items()])
        for values, value in rows.items():
            labels = of_all + "".join([f'{name}{_escaped(text)}",' for name, text in zip(names, values, strict=True)])
            lines.append(_lines(family.name, labels, value))
    text = "".join(["".join(lines) for lines in found.values()])
    return (OPENMETRICS, f"{text}# EOF\n".encode()) if openmetrics else (PLAIN, text.encode())


def _head(family: Family, openmetrics: bool) -> str:
    """OpenMetrics names a counter without its end."""
    name = family.name.removesuffix("_total") if openmetrics and family.kind == "counter" else family.name
    return f"# HELP {name} {_escaped(family.about)}\n# TYPE {name} {family.kind}\n"


def _lines(name: str, labels: str, value: float | Histogram) -> str:
    """`labels` end with a comma."""
    of_all = f"{{{labels[:-1]}}}" if labels else ""
    if not isinstance(value, Histogram):
        return f"{name}{of_all} {value}\n"
    counts = [*accumulate(value.counts)]
    bounds = zip((*value.bounds, "+Inf"), counts, strict=True)
    buckets = "".join([f'{name}_bucket{{{labels}le="{bound}"}} {count}\n' for bound, count in bounds])
    return f"{buckets}{name}_count{of_all} {counts[-1]}\n{name}_sum{of_all} {value.sum}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
