"""Makes small store directories with the record codec alone, so that a test decides every byte."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rmq.log.disk import RealDisk
from rmq.log.ownfiles import Progress, save_progress
from rmq.log.record import draft, host_bytes, properties_to_bytes, stamp

HOST = host_bytes("127.0.0.1", 10911)
BLANK_MAGIC = bytes.fromhex("cbd43194")


class Sent(NamedTuple):
    """One message to store."""

    topic: str
    body: bytes = b"body"
    properties: dict[str, str] = {}
    time_ms: int = 1_795_230_000_000


def write_store(store: Path, messages: Iterable[Sent], segment_bytes: int = 1 << 20) -> list[int]:
    """Write a log (and nothing else) below `store`; returns the log offset of each record."""
    segments, offsets, counts = [bytearray()], [], dict[str, int]()
    for message in messages:
        properties = properties_to_bytes(message.properties)
        run = bytearray(draft(message.topic, message.body, properties, born_timestamp=message.time_ms, born_host=HOST))
        if len(segments[-1]) + len(run) + 8 > segment_bytes:
            left = segment_bytes - len(segments[-1])
            segments[-1] += left.to_bytes(4, "big") + BLANK_MAGIC
            segments.append(bytearray())
        offsets.append((len(segments) - 1) * segment_bytes + len(segments[-1]))
        number = counts[message.topic] = counts.get(message.topic, -1) + 1
        stamp(run, [(0, [len(run)], 0, number)], offsets[-1], message.time_ms.to_bytes(8, "big") + HOST)
        segments[-1] += run
    (store / "commitlog").mkdir(parents=True)
    for number, segment in enumerate(segments):
        (store / "commitlog" / f"{number * segment_bytes:020}").write_bytes(segment.ljust(segment_bytes, b"\0"))
    return offsets


def commit(store: Path, end: int) -> None:
    """Make it a store of rmq whose committed offset is `end`."""
    (store / "rmq").mkdir(exist_ok=True)
    save_progress(RealDisk(), str(store / "rmq"), Progress(log=end, hw=end, cq=end, stored_ms=0))
