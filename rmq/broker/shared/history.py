"""How much was counted in the last minute, hour and day [StatsItem]. What stands still costs nothing."""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from rmq.net.commands.statistics import StatsData, StatsRate

_SPANS: Final = ((10.0, 6), (600.0, 6), (3600.0, 24))
"""Seconds of one part, and how many parts: of a minute, an hour, a day."""
_MAX_KEYS: Final = 200_000  # of one part; more are not counted in it


class History:
    """`sample(now, counts)` is called every few seconds with counters that only rise; one that is lower began anew."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._parts: list[deque[tuple[float, dict[Hashable, int]]]] = [deque() for _ in _SPANS]

    def sample(self, now: float, counts: Mapping[Hashable, int]) -> None:
        first = not self._parts[0]
        grown = {
            key: count - before if count >= before else count
            for key, count in counts.items()
            if count != (before := self._known.get(key, 0))
        }
        self._known = dict(counts)
        for (seconds, most), parts in zip(_SPANS, self._parts, strict=True):
            if not parts or now - parts[-1][0] >= seconds:
                parts.append((now, {}))
            while len(parts) > most + 1:
                parts.popleft()
            if not first:  # what was counted before nobody looked has no time
                _add(parts[-1][1], grown)

    def of(self, key: Hashable, now: float) -> StatsData | None:
        """None: nothing was counted in the last day."""
        found = []
        for parts in self._parts:
            total = sum(part.get(key, 0) for _, part in parts)
            seconds = now - parts[0][0] if parts else 0.0
            found.append(StatsRate(total, total / seconds if seconds > 0 else 0.0))
        return StatsData(*found) if any(rate.sum for rate in found) else None


def _add(part: dict[Hashable, int], grown: Mapping[Hashable, int]) -> None:
    for key, count in grown.items():
        if key in part or len(part) < _MAX_KEYS:
            part[key] = part.get(key, 0) + count
