"""What a decoder remembers of frames it has read, so that the next ones like them cost less. Pure.

All connections of a server share one memory, each up to its own part: a connection that shows something new with each frame
loses its own entries. Only short keys are remembered, so the whole is bounded in bytes as well.
"""

from collections import deque
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
MAX_REMEMBERED: Final = 10_000
MAX_REMEMBERED_OF_CONNECTION: Final = 2_000


class Memory(Generic[K, V]):
    """Of a server. It begins anew when it is full."""

    def __init__(self) -> None:
        self.known: dict[K, V] = {}


class Part(Generic[K, V]):
    """The entries of one connection. `known` is the whole memory, to be read only."""

    __slots__ = ("_mine", "known")

    def __init__(self, memory: Memory[K, V]) -> None:
        self.known = memory.known
        self._mine: deque[K] = deque()

    def learn(self, key: K, value: V) -> None:
        known, mine = self.known, self._mine
        if len(mine) >= MAX_REMEMBERED_OF_CONNECTION:
            known.pop(mine.popleft(), None)
        if len(known) >= MAX_REMEMBERED:
            known.clear()
        known[key] = value
        mine.append(key)
