"""What a section of the benchmarks is told."""

import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import fill_page_cache


class Options(NamedTuple):
    """`share`: of the messages that a full round has. `apache_missing`: why Apache RocketMQ does not run beside; "" if it does.
    `minutes`: of full load, where pauses are looked for."""

    folder: Path
    rounds: int
    share: float
    sync: bool
    apache_missing: str
    peers: bool
    cache: Path
    minutes: float

    def below(self, name: str) -> "Options":
        """The same with a folder of its own."""
        folder = self.folder / name
        folder.mkdir()
        return self._replace(folder=folder)

    def fill_page_cache(self) -> None:
        """See `machine.fill_page_cache`; but not for a first look."""
        if self.share == 1:
            fill_page_cache(self.folder)

    def part_of(self, full: int, least: int = 100) -> int:
        return max(int(full * self.share), least)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
