"""Stores that Apache RocketMQ wrote, and what it said of them (tests/data/golden); RMQ_GOLDEN names another directory of sets."""

import json
import lzma
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rmq.log.reader import read_records, read_segments
from rmq.log.records.record import Record
from tests import archives

GOLDEN = Path(os.environ.get("RMQ_GOLDEN") or Path(__file__).parent / "data" / "golden")
SETS = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))
REFUSED = {"dledger": "DLedger", "popkv": "RocksDB"}  # part of a set's name -> part of the reason
ADOPTED = [name for name in SETS if not any(word in name for word in REFUSED)]
WITH_LOG = [name for name in SETS if "dledger" not in name]
_LARGEST = 1 << 20  # timerwheel (all zero, or not read by us) and DLedger's index are longer


@cache
def told(name: str) -> dict[str, Any]:
    plain = GOLDEN / f"{name}.json"
    text = plain.read_bytes() if plain.exists() else lzma.decompress((GOLDEN / f"{name}.json.xz").read_bytes())
    found: dict[str, Any] = json.loads(text)
    return found


def after(name: str) -> dict[str, Any]:
    """What the restarted RocketMQ said; {} where it was not restarted."""
    return told(name).get("after_restart") or {}


def later(name: str) -> set[tuple[str, int, int]]:
    """(topic, queue, number) of messages that the restarted broker itself added: they are not in the archive."""
    return {(one["topic"], one["queueId"], one["queueOffset"]) for one in after(name).get("writtenAfterRestart") or ()}


def setting(name: str, key: str) -> int:
    return int(told(name)["brokerSettings"][key])


def unpack(name: str, folder: Path) -> Path:
    """The store's directory, below `folder`."""
    archives.unpack(GOLDEN / f"{name}.tar.xz", folder, lambda one: one.isdir() or (one.isfile() and one.size <= _LARGEST))
    return folder / name


def all_records(root: Path) -> Iterator[Record]:
    for segment in read_segments(str(root)):
        yield from read_records(segment)
