"""Measured times and rates as `rmq bench` prints them. Pure: moments come in as arguments.

Latencies go into buckets 1 % wide, so that a long run takes no more memory than a short one.
"""

import math
from collections import Counter

_STEP = math.log(1.01)
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


class Latencies:
    """Counts times; a percentile is right to 1 %."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.longest_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """`times`: how many messages took that long."""
        self._buckets[math.ceil(math.log(max(seconds, 1e-7)) / _STEP)] += times
        self.count += times
        self.longest_s = max(self.longest_s, seconds)

    def percentile(self, percent: float) -> float:
        """Seconds that `percent` % of the times did not exceed; 0 for none."""
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(math.exp(bucket * _STEP), self.longest_s)
        return 0.0

    def as_ms(self) -> dict[str, float]:
        """p50, p90, p99, p99.9 and the longest, in ms."""
        found = {f"p{percent:g}_ms": round(self.percentile(percent) * 1000, 3) for percent in PERCENTILES}
        return found | {"max_ms": round(self.longest_s * 1000, 3)}


def cpu_seconds(stat: str, ticks_per_second: int) -> float:
    """User and system time out of the text of /proc/PID/stat."""
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / ticks_per_second
