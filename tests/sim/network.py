"""A network that loses, doubles, delays and reorders, and can be cut one way. Time and chance are the world's."""

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
    """`schedule(after_s, action)` is the world's."""

    def __init__(self, chance: Random, schedule: Callable[[float, Callable[[], None]], None]) -> None:
        self.weather = CALM
        self.cut: set[tuple[str, str]] = set()
        self._chance = chance
        self._schedule = schedule

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
            self._schedule(delay, deliver)

    def open(self, source: str, to: str) -> bool:
        return (source, to) not in self.cut
