"""A network that loses, doubles, delays and reorders messages, and can be cut in one direction. The world gives time and
chance."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Weather(NamedTuple):
    """Chances are 0 to 1, delays seconds."""

    loss: float = 0.0
    double: float = 0.0
    delay: float = 0.002
    slow: float = 0.0  # chance of a delay of up to `slow_s`
    slow_s: float = 0.5


CALM = Weather()


class Network:
    """`schedule(after_s, action)` and `now()` are the world's."""

    def __init__(self, chance: Random, schedule: Callable[[float, Callable[[], None]], None], now: Callable[[], float]) -> None:
        self.weather = CALM
        self.cut: set[tuple[str, str]] = set()
        self.stalled: dict[str, float] = {}  # node -> until when nothing reaches it; then all of it does
        self._chance = chance
        self._schedule = schedule
        self._now = now

    def carry(self, source: str, to: str, deliver: Callable[[], None]) -> None:
        weather, chance = self.weather, self._chance
        copies = 1
        if weather.double and chance.random() < weather.double:
            copies = 2
        for _ in range(copies):
            if (source, to) in self.cut or (weather.loss and chance.random() < weather.loss):
                continue
            delay = chance.expovariate(1 / weather.delay)
            if weather.slow and chance.random() < weather.slow:
                delay += chance.random() * weather.slow_s
            self._schedule(delay + max(self.stalled.get(to, 0.0) - self._now(), 0.0), deliver)

    def open(self, source: str, to: str) -> bool:
        return (source, to) not in self.cut
