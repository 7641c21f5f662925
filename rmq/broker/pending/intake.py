"""Messages that are to wait are recognised here, and get the place where they wait (docs/storage, pending messages)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.records.halves import ROOM_BYTES
from rmq.log.records.properties import MAX_PROPERTIES_BYTES
from rmq.log.records.record import Record
from rmq.net.commands import Send
from rmq.net.commands.messages import Waits
from rmq.net.transport.answering import Asked


class Intercepted(NamedTuple):
    """A draft (`record.draft`) for a queue of a system topic. `recall_handle`: takes a timer back."""

    topic: str
    queue_id: int
    draft: bytes
    recall_handle: str = ""


Interceptor = Callable[[Record, int], Intercepted | None]
"""One kind: given a message and the queue it was meant for, where it waits instead; None if it need not. Raises Refusal."""


def _takes_none(request: Send, asked: Asked, known: Waits | None) -> bool:
    return False


class Intake:
    """`interceptors` are asked in this order. `take_half`: see `HalfIntake.take`."""

    def __init__(
        self, interceptors: Sequence[Interceptor], take_half: Callable[[Send, Asked, Waits | None], bool] = _takes_none
    ) -> None:
        self._interceptors = interceptors
        self.take_half = take_half

    def take(self, message: Record, queue_id: int) -> Intercepted | None:
        """Where a message with true fields (draft, or one that is sent again) waits; None: it goes straight to its queue.

        Raises Refusal MESSAGE_ILLEGAL for a delay or time that cannot be kept.
        """
        for interceptor in self._interceptors:
            if intercepted := interceptor(message, queue_id):
                if len(message.properties) > MAX_PROPERTIES_BYTES - ROOM_BYTES:
                    about = f"properties of a message that waits: at most {MAX_PROPERTIES_BYTES - ROOM_BYTES} bytes"
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
