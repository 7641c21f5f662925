"""What a store must hold, told by a list of what was appended; and a slow way to find where a log ends.

The model knows nothing of segments, sectors or files: only which records there were, in which order, and where each ends.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgpack

from rmq.errors import BadBytes
from rmq.log.files.memory import MemoryDisk
from rmq.log.files.segment import FILLER
from rmq.log.records import record
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC
from tests.log.conftest import ROOT, Bench

Queues = dict[tuple[str, int], list[tuple[int, bytes]]]


class Event(NamedTuple):
    """One record, in [start, end) of the log. Number -1: from here on `topic` is deleted."""

    start: int
    end: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes


class Model:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def take(self, units: Sequence[Unit]) -> None:
        """Units that were appended, or may have been when power was lost."""
        for unit in units:
            if unit.end < 0:  # not even placed
                return
            at = unit.physical_offset
            for queue_offset, found in enumerate(record.iterate(unit.records), unit.queue_offset):
                start, at = at, at + found.total_size
                if unit.queue.topic == STATE_TOPIC:
                    self.events += [Event(start, at, line[1], 0, -1, b"") for line in msgpack.unpackb(found.body)]
                else:
                    self.events.append(Event(start, at, unit.queue.topic, unit.queue.queue_id, queue_offset, found.body))

    def cut(self, end: int) -> None:
        """The log ends there."""
        self.events = [event for event in self.events if event.end <= end]

    def queues(self, start: int = 0) -> Queues:
        """(queue offset, body) of every message from `start` of the log on, of every queue that ever had one."""
        queues: Queues = {}
        for event in self.events:
            if event.queue_offset < 0:
                queues = {key: held for key, held in queues.items() if key[0] != event.topic}
                continue
            held = queues.setdefault((event.topic, event.queue_id), [])
            if event.start >= start:
                held.append((event.queue_offset, event.body))
        return queues

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """The next queue offset of every queue, whether its messages are still there or not."""
        return {key: held[-1][0] + 1 for key, held in self.queues().items()}


def deletion(bench: Bench, topic: str) -> Unit:
    """The state record that deletes a topic."""
    return bench.unit(msgpack.packb([["topic", topic, None]]), STATE_TOPIC)


def problems(bench: Bench, model: Model, goings: Sequence[int] = ()) -> list[str]:
    """What is wrong with an open store, in words. The model must have been cut to the log's end.

    `goings`: where retention wanted the log to begin when it was interrupted; a queue may begin at any of them already.
    """
    store, found = bench.store, []
    log = store.log
    held, here = _held(bench, found), model.queues(log.start)
    allowed = [here, *map(model.queues, goings)]
    for key in held.keys() | here.keys():
        if held.get(key) not in [queues.get(key) for queues in allowed]:
            found.append(f"{key} holds {_brief(held.get(key))}, appended were {_brief(here.get(key))} (D6, D10, D12)")
    for key, queue_offset in model.next_offsets().items():
        if store.queues.get(*key).next != queue_offset:
            found.append(f"{key} would give its next message the offset {store.queues.get(*key).next}, not {queue_offset} (D12)")
    for segment in log.segments():
        behind = max(segment.base, log.end)
        if behind < segment.end and segment.read(behind, segment.end - behind).strip(b"\0"):
            found.append(f"bytes are left behind the end {log.end} (D9)")
    if not store.dispatcher.position == log.durable_end == log.end:
        found.append("not all of the log is dispatched and durable after opening")
    if sum(1 for _ in log.scan(log.start, log.end)) < sum(event.start >= log.start for event in model.events):
        found.append("the log holds fewer records than were appended")
    return found


def _held(bench: Bench, found: list[str]) -> Queues:
    """(queue offset, body) of what the store serves of our topics; a point to another's record is added to `found`."""
    held: Queues = {}
    for queue in bench.store.queues.all():
        if queue.topic in ("T", "U") and queue.max:
            records = list(bench.store.records(queue.topic, queue.queue_id))
            held[queue.topic, queue.queue_id] = [(one.queue_offset, one.body) for one in records]
            if any((one.topic, one.queue_id) != (queue.topic, queue.queue_id) for one in records):
                found.append(f"{queue.topic}/{queue.queue_id} points to records of others (D12)")
            if [one.queue_offset for one in records] != list(range(queue.min, queue.max)):
                found.append(f"{queue.topic}/{queue.queue_id} has a gap or a repeat (D12)")
    return held


def _brief(held: list[tuple[int, bytes]] | None) -> str:
    return f"{held[0][0]} to {held[-1][0]}" if held else "nothing"


def slow_end(disk: MemoryDisk, segment_bytes: int) -> int:
    """Where the log on this disk ends: the slow twin of recovery. It looks at one record after the other, from the first."""
    names = disk.listdir(f"{ROOT}/commitlog")
    base = int(names[0]) if names else 0
    content = bytes(base)
    while f"{len(content):020d}" in names:
        content += bytes(disk.content(f"{ROOT}/commitlog/{len(content):020d}")).ljust(segment_bytes, b"\0")
    end = at = base
    while len(content) - at >= FILLER.size:
        left, magic = FILLER.unpack_from(content, at)
        segment_end = (at // segment_bytes + 1) * segment_bytes
        if magic == record.BLANK_MAGIC and left == segment_end - at:
            at = segment_end
            continue
        try:
            at += record.verify(content[:segment_end], at, at, True)
        except BadBytes:
            break
        end = at
    return end
