"""Messages that are to wait are recognised here, and get the place where they wait (docs/storage, pending messages)."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple, Protocol

from rmq.broker.shared.state import finish
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.halves import ROOM_BYTES
from rmq.log.records.properties import MAX_PROPERTIES_BYTES, strip_names
from rmq.log.records.record import Record
from rmq.log.units import Unit
from rmq.net.commands import DraftedSend, Send
from rmq.net.commands.messages import Pending, Scheduled, Waits
from rmq.net.transport.answering import Asked, answer_held
from rmq.net.transport.connection import Call

ROOM_AT_ENDS_BYTES = ROOM_BYTES // 2  # that a half leaves where it is committed: it has got something already


class Intercepted(NamedTuple):
    """A draft (`record.draft`) for a queue of a system topic. `recall_handle`: takes a timer back."""

    topic: str
    queue_id: int
    draft: bytes
    recall_handle: str = ""


_ADDED = frozenset({b"REAL_TOPIC", b"REAL_QID"})  # while it waits
_ALSO = {Waits: {b"__transactionId__"}, Scheduled: {b"TIMER_OUT_MS"}}
Interceptor = Callable[[Record, int], Intercepted | None]
"""One kind: given a message and the queue it was meant for, where it waits instead; None if it need not. Raises Refusal."""


class FastInterceptor(Protocol):
    """One kind of messages that are to wait."""

    def take(self, request: Send, asked: Asked, known: Pending | None) -> bool:
        """Whether the message, of which the codec knows that, was taken and is answered later; else the slow path looks at it,
        which says what is wrong. Asked last: the queue that it is for."""

    def close(self, queue: ConsumeQueue) -> None:
        """What is taken for that queue from now on is stored behind what others stored in it."""


class Intake:
    """`interceptors` are asked in this order; `fast` before them: they take usual messages, those of a turn together. `room`: for
    properties, which messages leave."""

    def __init__(self, interceptors: Sequence[Interceptor], fast: Sequence[FastInterceptor] = (), room: int = ROOM_BYTES) -> None:
        self._interceptors = interceptors
        self.fast = fast
        self._most_bytes = MAX_PROPERTIES_BYTES - room

    def close(self, queue: ConsumeQueue) -> None:
        """See `FastInterceptor`."""
        for one in self.fast:
            one.close(queue)

    def take(self, message: Record, queue_id: int) -> Intercepted | None:
        """Where a message with true fields (draft, or one that is sent again) waits; None: it goes straight to its queue.

        Raises Refusal MESSAGE_ILLEGAL for a delay or time that cannot be kept.
        """
        for interceptor in self._interceptors:
            if intercepted := interceptor(message, queue_id):
                if len(message.properties) > self._most_bytes:
                    about = f"properties of a message that waits: at most {self._most_bytes} bytes"
                    raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
                return intercepted
        return None

    def take_sent(self, records: bytes, count: int, queue_id: int) -> Intercepted | None:
        """The same for the records of a send that `checking.check` calls pending. None for a batch that goes
        straight to its queue. Raises Refusal."""
        if count == 1:
            return self.take(record.decode(records), queue_id)
        if any(self.take(message, queue_id) for message in record.iterate(records)):
            about = "a message of a batch cannot wait (delay, timer, transaction): send it alone"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
        return None


def tell_where(
    held: Sequence[tuple[Asked, Any]], unit: Unit, error: RmqError | None, late: int, handles: Iterable[str] = repeat("")
) -> None:
    """Answers those who asked for messages of that unit to wait. As in RocketMQ the answer names the target queue, and offsets
    where the message waits. `handles`: what recalls them."""
    asked = [one for one, _ in held]
    if error is None:
        answer_held(asked, unit.queue_offset, accumulate(unit.sizes, initial=unit.physical_offset), late, handles)
    else:
        finish([Call(*one[:5]) for one in asked], error)


def as_sent(drafted: DraftedSend) -> bytes:
    """The record as it was sent, of one that the codec drafted as it waits."""
    known, waits = drafted.tags_code, record.decode(drafted.records)
    return record.draft(
        drafted.topic,
        waits.body,
        strip_names(waits.properties, _ADDED.union(_ALSO.get(type(known), ()))),
        flag=waits.flag,
        sys_flag=record.SYS_PREPARED if isinstance(known, Waits) else 0,
        born_timestamp=waits.born_timestamp,
        born_host=waits.born_host,
    )
