"""What a committed record does to this broker: tables change, waiting pulls wake. (The queues are dispatch's business.)

Runs once for every committed unit, in log order, before anybody else looks (`appender`); at start for every state record.
"""

from collections.abc import Sequence
from itertools import accumulate

from rmq.broker.feature import Feature
from rmq.broker.shared.longpoll import LongPolls
from rmq.broker.shared.state import Line, lines_of
from rmq.broker.tables.tables import Tables
from rmq.log.records import record
from rmq.log.units import Unit
from rmq.model import EPOCH_TOPIC, STATE_TOPIC

OWN_TOPICS = frozenset({EPOCH_TOPIC, STATE_TOPIC})


class Applier:
    """`features` hear of each change; the list may still be filled while nothing is committed."""

    def __init__(self, tables: Tables, polls: LongPolls, features: Sequence[Feature]) -> None:
        self._tables = tables
        self._polls = polls
        self._features = features

    def committed(self, units: Sequence[Unit], time_ms: int) -> None:
        waited = bool(self._polls)
        for unit in units:
            queue = unit.queue
            if queue.topic in OWN_TOPICS:
                self._committed_own(unit, time_ms)
            elif unit.pending_change:
                for stored in unit.decoded:
                    self._tables.pending.note(stored)
            elif unit.note is not None:
                unit.note(unit)
            if waited:
                self._polls.wake(queue.topic, queue.queue_id, None if queue.holds_batches else unit.tags_codes)

    def _committed_own(self, unit: Unit, time_ms: int) -> None:
        if unit.queue.topic == EPOCH_TOPIC:
            for feature in self._features:
                feature.on_new_epoch()
        else:
            places = accumulate(unit.sizes, initial=unit.physical_offset)
            for stored, offset in zip(record.iterate(unit.records), places, strict=False):
                self._apply(lines_of(stored.body), time_ms, offset)

    def _apply(self, lines: Sequence[Line], time_ms: int, offset: int) -> None:
        self._tables.apply(lines, time_ms, offset)
        groups: dict[str, None] = {}
        for table, name, value in lines:
            if table == "topic":
                for feature in self._features:
                    feature.on_topic_changed(name)
            elif table == "group":
                groups[name] = None
            elif table == "reset" and value is not None:
                groups[name[0]] = None
        for group in groups:
            for feature in self._features:
                feature.on_group_changed(group)
