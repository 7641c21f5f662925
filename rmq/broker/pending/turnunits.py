"""Records that come one by one in a turn of the loop, but lie in one unit for each queue: they are appended, noted and answered
together, which costs each of them a fraction of a unit of its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from rmq.errors import Refusal, RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.units import Unit
from rmq.net.transport.answering import Asked
from rmq.net.transport.server import Call

SHARED_BYTES: Final = 32 * 1024  # of one unit: it lies in one segment, so a segment's end may waste so much
T = TypeVar("T")


def shared_bytes(segment_bytes: int) -> int:
    """How large a unit may become by what others add to it."""
    return min(SHARED_BYTES, segment_bytes // 16)


class TurnUnits(Generic[T]):
    """`note(items, unit)`: tables learn of it, once it is committed; `told(items, unit, error, late)`: as of `Waiter`. The items
    are those that were added with its records, in their order. `kind`: of the requests, as of `Unit`."""

    def __init__(
        self,
        propose: Callable[[Unit], None],
        most_bytes: int,
        note: Callable[[Sequence[T], Unit], None],
        told: Callable[[Sequence[T], Unit, RmqError | None, int], None],
        kind: str,
    ) -> None:
        self._propose = propose
        self._most_bytes = most_bytes
        self._note = note
        self._told = told
        self._kind = kind
        self._open: dict[ConsumeQueue, tuple[Unit, list[T]]] = {}  # not answered yet

    def add(self, queue: ConsumeQueue, draft: bytes, code: int, item: T, asked: Asked | Call | None) -> Unit | None:
        """A checked record, the hash of its tag, and the request that it came with. Its unit; None: it is refused, and a slower
        way says why."""
        size = len(draft)
        known = self._open.get(queue)
        if known is not None and (unit := known[0]).open and unit.size + size <= self._most_bytes:
            unit.parts.append(draft)
            unit.sizes.append(size)
            unit.tags_codes.append(code)
            unit.size += size
            known[1].append(item)
            return unit
        items = [item]
        unit = Unit(draft, (size,), (code,), queue, (self._done, items))
        unit.note = partial(self._note, items)
        if asked is not None:
            unit.asked, unit.kind, unit.came = asked, self._kind, asked[0].last_read
        try:
            self._propose(unit)
        except Refusal:
            return None
        self._open[queue] = unit, items
        return unit

    def close(self, queue: ConsumeQueue) -> None:
        """What comes for that queue is stored behind what was stored there without this."""
        if (known := self._open.get(queue)) is not None:
            known[0].open = False

    def _done(self, items: list[T], unit: Unit, error: RmqError | None, late: int) -> None:
        known = self._open.get(unit.queue)
        if known is not None and known[0] is unit:  # or each queue would keep its last message and who sent it
            del self._open[unit.queue]
        self._told(items, unit, error, late)
