"""Halves of the usual kind are taken here: those of one turn of the loop together."""

from collections.abc import Sequence
from itertools import accumulate

from rmq.broker.pending import fasthalves
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.state import finish
from rmq.delivery.transactions import Half, HalfTable, Target
from rmq.errors import Refusal, RmqError
from rmq.log.units import Unit
from rmq.model import HALF_TOPIC
from rmq.net.commands import Send
from rmq.net.commands.messages import Waits
from rmq.net.transport.answering import Asked, answer_held
from rmq.net.transport.server import Call

_Held = tuple[Asked, str, Target]
"""Who asked, with the queue that the half is for as its last part; the group of its producers; for where it is."""
_new = tuple.__new__  # a NamedTuple in half the time


class HalfIntake:
    """`rejects`: this broker takes no transactions [rejectTransactionMessage]."""

    def __init__(self, table: HalfTable, rejects: bool, internal_producer: InternalProducer) -> None:
        self.rejects = rejects
        self._table = table
        self._queue = internal_producer.queue
        self._units = internal_producer.turn_units(self._note, _stored)

    def take(self, request: Send, asked: Asked, known: Waits | None) -> bool:
        """Whether the half was taken and is answered later; else the slow path looks at it, which says what is wrong. `known`:
        the codec drafted it as it waits."""
        if known is not None:
            draft, (code, group) = request.records, known
        elif (found := fasthalves.waiting(request.records, request.topic, request.queue_id)) is not None:
            draft, code, group = found
        else:
            return False
        if self.rejects or self._table.is_full(group):
            return False
        try:
            held = asked, group, (request.topic, request.queue_id, code)
            self._units.add(self._queue(HALF_TOPIC, 0), draft, code, held, asked)
        except Refusal:
            return False
        return True

    def _note(self, held: Sequence[_Held], unit: Unit) -> None:
        """As `HalfNotes.note` for each."""
        place, queue_offset, stored_ms = unit.physical_offset, unit.queue_offset, unit.stored_ms
        halves: list[tuple[Half, Target]] = []
        for (_, group, target), size in zip(held, unit.sizes, strict=True):
            halves.append((_new(Half, (place, queue_offset, queue_offset, group, stored_ms, 0, 0)), target))
            place += size
            queue_offset += 1
        self._table.begun(halves)


def _stored(held: Sequence[_Held], unit: Unit, error: RmqError | None, late: int) -> None:
    """As in RocketMQ the answer names the target queue, and the offsets where the half waits."""
    asked = [one for one, _, _ in held]
    if error is None:
        answer_held(asked, unit.queue_offset, accumulate(unit.sizes, initial=unit.physical_offset), late)
    else:
        finish([Call(*one[:5]) for one in asked], error)
