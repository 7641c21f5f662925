"""What a node measures of itself, in the terms of Prometheus. Plain values: whoever gives them knows no exporter."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

SECONDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper bounds of a histogram of durations."""


class Histogram:
    """How often something took how long. One thread observes; a reader in another one may miss the newest."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last: more than the largest bound
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


Labels = tuple[str, ...]
Row = tuple[Labels, float | Histogram]


class Family(NamedTuple):
    """All series of one name. `kind`: gauge, counter or histogram. `rows`: values of `labels`, and the number.

    Rows are read on the event loop, some at a time: they come from copies of what may change meanwhile. With `slow` they are
    read in a thread instead, because they wait for the disk. Rows of more topics or groups than an exporter shows are added
    up; with `peak` the largest counts instead.
    """

    name: str
    kind: str
    about: str
    labels: Labels
    rows: Iterable[Row]
    slow: bool = False
    peak: bool = False


def gauge(name: str, about: str, value: float) -> Family:
    """One number that rises and falls."""
    return Family(name, "gauge", about, (), (((), value),))


def counter(name: str, about: str, value: float) -> Family:
    """One number that rises, and begins at 0 when the process does."""
    return Family(name, "counter", about, (), (((), value),))


def histogram(name: str, about: str, value: Histogram) -> Family:
    return Family(name, "histogram", about, (), (((), value),))
