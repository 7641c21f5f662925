"""How much was counted in the last minute, hour and day [StatsItem]. A counter that stands still costs nothing."""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from rmq.net.commands.statistics import StatsData, StatsRate

_SPANS: Final = ((10.0, 6), (600.0, 6), (3600.0, 24))
"""Seconds in one part, and the number of parts, for a minute, an hour, a day."""
_MAX_KEYS: Final = 200_000  # in one part; more are not counted


class History:
    """Call `sample(now, counts)` every few seconds with counters that only rise; a lower one has begun at 0 again. Or call
    `begin(now)`, `add(counts)` for some of them at a time, and `end()`."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._seen: dict[Hashable, int] = {}
        self._first, self._looked = True, 0.0
        self._parts: list[deque[tuple[float, dict[Hashable, int]]]] = [deque() for _ in _SPANS]  # from when on, what grew

    def sample(self, now: float, counts: Mapping[Hashable, int]) -> None:
        self.begin(now)
        self.add(counts)
        self.end()

    def begin(self, now: float) -> None:
        self._first = not self._parts[0]
        since = now if self._first else self._looked
        self._looked, self._seen = now, {}
        for (seconds, most), parts in zip(_SPANS, self._parts, strict=True):
            if not parts or since - parts[-1][0] >= seconds:
                parts.append((since, {}))
            while len(parts) > 1 and now - parts[1][0] >= seconds * most:
                parts.popleft()

    def add(self, counts: Mapping[Hashable, int]) -> None:
        grown = {
            key: count - before if count >= before else count
            for key, count in counts.items()
            if count != (before := self._known.get(key, 0))
        }
        self._seen.update(counts)
        if grown and not self._first:  # the time of what was counted before the first look is not known
            for parts in self._parts:
                _add(parts[-1][1], grown)

    def end(self) -> None:
        self._known = self._seen

    def of(self, key: Hashable) -> StatsData | None:
        """The counts of that name, up to the last look; None if nothing was counted in the last day."""
        found = [StatsRate(*self._of(key, parts)) for parts in self._parts]
        return StatsData(*found) if any(rate.sum for rate in found) else None

    def per_second(self, key: Hashable) -> float:
        """In the last minute."""
        return self._of(key, self._parts[0])[1]

    def _of(self, key: Hashable, parts: deque[tuple[float, dict[Hashable, int]]]) -> tuple[int, float]:
        total = sum(part.get(key, 0) for _, part in parts)
        seconds = self._looked - parts[0][0] if parts else 0.0
        return total, total / seconds if seconds > 0 else 0.0


def _add(part: dict[Hashable, int], grown: Mapping[Hashable, int]) -> None:
    for key, count in grown.items():
        if key in part or len(part) < _MAX_KEYS:
            part[key] = part.get(key, 0) + count
