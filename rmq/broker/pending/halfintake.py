"""Halves of the usual kind are taken here: those of one turn of the loop together."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from rmq.broker.pending import fasthalves
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.state import finish
from rmq.delivery.transactions import Half, HalfTable
from rmq.errors import Refusal, RmqError
from rmq.log.units import Unit
from rmq.model import HALF_TOPIC
from rmq.net.commands import Send
from rmq.net.transport.answering import Asked, answer_held
from rmq.net.transport.server import Call


class _Held(NamedTuple):
    """`asked`: its last part is the queue that the half is for."""

    asked: Asked
    group: str


class HalfIntake:
    """`rejects()`: this broker takes no transactions [rejectTransactionMessage]."""

    def __init__(self, table: HalfTable, rejects: Callable[[], bool], internal_producer: InternalProducer) -> None:
        self._table = table
        self._rejects = rejects
        self._queue = internal_producer.queue
        self._units = internal_producer.turn_units(self._note, _stored)

    def take(self, request: Send, asked: Asked) -> bool:
        """Whether the half was taken and is answered later; else the slow path looks at it, which says what is wrong."""
        found = fasthalves.waiting(request.records, request.topic, request.queue_id)
        if found is None or self._rejects() or self._table.is_full(found.group):
            return False
        try:
            self._units.add(self._queue(HALF_TOPIC, 0), found.draft, found.code, _Held(asked, found.group), asked)
        except Refusal:
            return False
        return True

    def _note(self, held: Sequence[_Held], unit: Unit) -> None:
        """As `HalfNotes.note` for each."""
        place, queue_offset = unit.physical_offset, unit.queue_offset
        for (_, group), size in zip(held, unit.sizes, strict=True):
            self._table.appended(place, Half(place, queue_offset, queue_offset, group, unit.stored_ms))
            place += size
            queue_offset += 1


def _stored(held: Sequence[_Held], unit: Unit, error: RmqError | None, late: int) -> None:
    """As in RocketMQ the answer names the target queue, and the offsets where the half waits."""
    asked = [one.asked for one in held]
    if error is None:
        answer_held(asked, unit.queue_offset, accumulate(unit.sizes, initial=unit.physical_offset), late)
    else:
        finish([Call(*one[:5]) for one in asked], error)
