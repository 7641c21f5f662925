"""Delayed and timed messages in a store of Apache RocketMQ: which of them are still to come, as state lines."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rmq.broker.pending.delays import source_of
from rmq.broker.shared.state import Line
from rmq.delivery.due import DueTable, Source, timer_slot
from rmq.log.files.epochs import written_by_rocketmq
from rmq.log.records.properties import is_number
from rmq.log.records.record import Record, bytes_to_properties
from rmq.log.store import Store
from rmq.model import DELAY_TOPIC, TIMER_TOPIC

_TIMERCHECK = struct.Struct(">7q")  # lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset, of the master, version (3)


class Positions(NamedTuple):
    """How far RocketMQ was. `levels`: the next queue offset of each level's queue [delayOffset.json]. Timers below queue offset
    `timers` of their queue were in its wheel, and of those all that were due before `read_ms` are delivered [timercheck]."""

    levels: Mapping[int, int]
    timers: int = 0
    read_ms: int = 0


def timercheck(config: Path) -> tuple[int, int]:
    """`timers` and `read_ms`; without the file RocketMQ begins at its queue's first message."""
    try:
        data = (config / "timercheck").read_bytes()
    except FileNotFoundError:
        return 0, 0
    if len(data) < _TIMERCHECK.size:
        return 0, 0
    read_ms, _, own_offset, master_offset, *_ = _TIMERCHECK.unpack_from(data)
    return min(own_offset, master_offset), read_ms


def lines(store: Store, table: DueTable, positions: Positions) -> Iterator[Line]:
    """State lines after which the table says which messages are to come. It knows already which of ours were delivered.

    Raises StoreError.
    """
    alive: dict[Source, str] = {}
    for queue in store.queues.of_topic(DELAY_TOPIC):
        for stored in store.records(DELAY_TOPIC, queue.queue_id, positions.levels.get(queue.queue_id + 1, 0)):
            source, cancels = source_of(stored, table.delays_ms)
            alive[source] = cancels
    alive |= _timers(store, positions)
    before = {source for slot in table.below(store.log.end, 1000) for source in slot}
    yield from (("due", list(source), None) for source in sorted(before - alive.keys()))
    for source, cancels in alive.items():
        if source not in before and written_by_rocketmq(store.epochs, source.offset):
            yield "due", list(source), cancels or True


def _timers(store: Store, positions: Positions) -> dict[Source, str]:
    """RocketMQ writes a message that it rolled half-way again, with one roll more; that copy counts."""
    alive: dict[Source, str] = {}
    copies: dict[tuple[str | None, ...], list[Source]] = {}
    for stored in store.records(TIMER_TOPIC, 0):
        source, cancels = source_of(stored)
        *name, rolls = _name(stored)
        for earlier in copies.get((*name, str(rolls - 1)), [])[:1]:
            copies[(*name, str(rolls - 1))].remove(earlier)
            alive.pop(earlier, None)
        if stored.queue_offset >= positions.timers or source.due_ms >= timer_slot(positions.read_ms):
            alive[source] = cancels
            copies.setdefault((*name, str(rolls)), []).append(source)
    return alive


def _name(stored: Record) -> tuple[str | None, str | None, str | None, int]:
    """The key that all copies of a message share, and how often it was rolled."""
    said = bytes_to_properties(stored.properties)
    rolls = said.get("TIMER_ROLL_TIMES", "0")
    return said.get("UNIQ_KEY"), said.get("REAL_TOPIC"), said.get("TIMER_OUT_MS"), int(rolls) if is_number(rolls) else 0
