"""Halves of the usual kind are taken here: those of one turn of the loop together."""

from collections.abc import Sequence

from rmq.broker.pending import fasthalves
from rmq.broker.pending.intake import tell_where
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.delivery.transactions import Half, HalfTable, Target
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.units import Unit
from rmq.model import HALF_TOPIC
from rmq.net.commands import Send
from rmq.net.commands.messages import Pending, Waits
from rmq.net.transport.answering import Asked

_Held = tuple[Asked, tuple[str, Target]]
"""Who asked; the group of its producers, and for where it is."""
_new = tuple.__new__  # a NamedTuple in half the time


class HalfIntake:
    """`rejects`: this broker takes no transactions [rejectTransactionMessage]."""

    def __init__(self, table: HalfTable, rejects: bool, internal_producer: InternalProducer) -> None:
        self.rejects = rejects
        self._table = table
        self._queue = internal_producer.queue
        self._units = internal_producer.turn_units(self._note, tell_where)

    def take(self, request: Send, asked: Asked, known: Pending | None) -> bool:
        """See `FastInterceptor`. `known`: the codec drafted it as it waits."""
        if isinstance(known, Waits):
            draft, (code, group) = request.records, known
        elif known is None and (found := fasthalves.waiting(request.records, request.topic, request.queue_id)) is not None:
            draft, code, group = found
        else:
            return False
        if self.rejects or self._table.is_full(group):
            return False
        held = asked, (group, (request.topic, request.queue_id, code))
        return self._units.add(self._queue(HALF_TOPIC, 0), draft, code, held, asked) is not None

    def close(self, queue: ConsumeQueue) -> None:
        """See `FastInterceptor`."""
        self._units.close(queue)

    def _note(self, held: Sequence[_Held], unit: Unit) -> None:
        """As `HalfNotes.note` for each."""
        place, queue_offset, stored_ms = unit.physical_offset, unit.queue_offset, unit.stored_ms
        halves: list[tuple[Half, Target]] = []
        for (_, (group, target)), size in zip(held, unit.sizes, strict=True):
            halves.append((_new(Half, (place, queue_offset, queue_offset, group, stored_ms, 0, 0)), target))
            place += size
            queue_offset += 1
        self._table.begun(halves)
