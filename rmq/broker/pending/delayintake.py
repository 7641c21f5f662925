"""Usual messages with a delay level, or a time of their own, are taken here: those of one turn of the loop together."""

from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import itemgetter

from rmq.broker.pending import fastdelays
from rmq.broker.pending.delays import TimerInterceptor
from rmq.broker.pending.intake import tell_where
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.delivery.due import TIMER, DueTable, level_slot, timer_slot
from rmq.errors import RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records.delays import LEVELS_MS
from rmq.log.units import Unit
from rmq.model import DELAY_TOPIC, TIMER_TOPIC
from rmq.net.commands import Send
from rmq.net.commands.messages import Delayed, Pending, Scheduled
from rmq.net.transport.answering import Asked


class LevelIntake:
    """For brokers whose levels have RocketMQ's delays."""

    def __init__(self, table: DueTable, internal_producer: InternalProducer) -> None:
        self._table = table
        self._queue = internal_producer.queue
        self._units = internal_producer.turn_units(self._note, tell_where)

    def take(self, request: Send, asked: Asked, known: Pending | None) -> bool:
        """See `FastInterceptor`. `known`: the codec drafted it as it waits."""
        if isinstance(known, Delayed):
            draft, level = request.records, known.level
        elif known is None and (found := fastdelays.leveled(request.records, request.topic, request.queue_id)) is not None:
            draft, level = found
        else:
            return False
        unit = self._units.add(self._queue(DELAY_TOPIC, level - 1), draft, 0, (asked, level), asked)
        if unit is None:
            return False
        unit.delay_ms = LEVELS_MS[level - 1]
        return True

    def close(self, queue: ConsumeQueue) -> None:
        """See `FastInterceptor`."""
        self._units.close(queue)

    def _note(self, held: Sequence[tuple[Asked, int]], unit: Unit) -> None:
        """As `DelayNotes.note` for each. A level has a queue of its own, so they have one level."""
        places = [*accumulate(unit.sizes[:-1], initial=unit.physical_offset)]
        self._table.note_all(level_slot(unit.stored_ms, unit.delay_ms), held[0][1], places)


_Held = tuple[Asked, tuple[int, str]]
"""Who asked; TIMER_OUT_MS, and what recalls the timer."""


class TimerIntake:
    def __init__(self, table: DueTable, internal_producer: InternalProducer, timers: TimerInterceptor) -> None:
        self._table = table
        self._timers = timers
        self._queue = internal_producer.queue
        self._units = internal_producer.turn_units(self._note, _tell)

    def take(self, request: Send, asked: Asked, known: Pending | None) -> bool:
        """See `FastInterceptor`. `known`: the codec drafted it as it waits."""
        found = self._timers.usual(request, known) if known is None or isinstance(known, Scheduled) else None
        if found is None:
            return False
        (draft, code, out_ms, _), handle = found
        held = asked, (out_ms, handle)
        return self._units.add(self._queue(TIMER_TOPIC, 0), draft, code, held, asked) is not None

    def close(self, queue: ConsumeQueue) -> None:
        """See `FastInterceptor`."""
        self._units.close(queue)

    def _note(self, held: Sequence[_Held], unit: Unit) -> None:
        """As `DelayNotes.note` for each."""
        places = accumulate(unit.sizes, initial=unit.physical_offset)
        outs = [out_ms for _, (out_ms, _) in held]
        for out_ms, some in groupby(zip(outs, places, strict=False), itemgetter(0)):
            self._table.note_all(timer_slot(out_ms), TIMER, [place for _, place in some])


def _tell(held: Sequence[_Held], unit: Unit, error: RmqError | None, late: int) -> None:
    """As `tell_where`, each with what recalls its timer."""
    tell_where(held, unit, error, late, [handle for _, (_, handle) in held])
