"""Messages with a delay level of the usual kind are taken here: those of one turn of the loop together."""

from collections.abc import Sequence
from itertools import accumulate

from rmq.broker.pending import fastdelays
from rmq.broker.pending.intake import tell_where
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.delivery.due import DueTable, level_slot
from rmq.errors import Refusal
from rmq.log.records.delays import LEVELS_MS
from rmq.log.units import Unit
from rmq.model import DELAY_TOPIC
from rmq.net.commands import Send
from rmq.net.commands.messages import Delayed, Waits
from rmq.net.transport.answering import Asked


class DelayIntake:
    """For brokers whose levels have RocketMQ's delays."""

    def __init__(self, table: DueTable, internal_producer: InternalProducer) -> None:
        self._table = table
        self._queue = internal_producer.queue
        self._units = internal_producer.turn_units(self._note, tell_where)

    def take(self, request: Send, asked: Asked, known: Waits | Delayed | None) -> bool:
        """See `Taker`. `known`: the codec drafted it as it waits."""
        if isinstance(known, Delayed):
            draft, level = request.records, known.level
        elif known is None and (found := fastdelays.waiting(request.records, request.topic, request.queue_id)) is not None:
            draft, level = found
        else:
            return False
        try:
            unit = self._units.add(self._queue(DELAY_TOPIC, level - 1), draft, 0, (asked, level), asked)
        except Refusal:
            return False
        unit.delay_ms = LEVELS_MS[level - 1]
        return True

    def _note(self, held: Sequence[tuple[Asked, int]], unit: Unit) -> None:
        """As `DelayNotes.note` for each. A level has a queue of its own, so they have one level."""
        places = [*accumulate(unit.sizes[:-1], initial=unit.physical_offset)]
        self._table.note_all(level_slot(unit.stored_ms, unit.delay_ms), held[0][1], places)
