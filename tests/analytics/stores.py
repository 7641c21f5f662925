"""Makes small store directories with the record codec alone, so that a test decides every byte."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import Progress, save_progress
from rmq.log.records.record import draft, host_bytes, properties_to_bytes, stamp
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit

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


class Live:
    """A store that is being written: its own log, queues, progress and retention. Segments have 8 KiB."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, topic: str, bodies: Iterable[bytes], queue_id: int = 0, time_ms: int = 1_795_230_000_000) -> None:
        """Append and commit them; say so."""
        queue = self._store.queues.get(topic, queue_id)
        for body in bodies:
            record = draft(topic, body, b"", born_timestamp=time_ms, born_host=HOST)
            self._store.log.append([Unit(record, (len(record),), (0,), queue)], time_ms)
        self._store.dispatcher.advance(self._store.log.flush())
        self._store.save_progress()

    def retain(self, segments: int) -> None:
        """Retention takes the first ones."""
        for segment in self._store.cleaning.drop_before(segments * 8192):
            segment.withdraw()()


@contextmanager
def live(directory: Path, group: str = "") -> Iterator[Live]:
    """A store in `directory`, of a broker group if it is named."""
    store = Store.open(RealDisk(), str(directory), StoreSettings(HOST, segment_bytes=8192, group=group))
    store.open_epoch(1_795_230_000_000)
    try:
        yield Live(store)
    finally:
        store.close()
