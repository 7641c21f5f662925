"""State records: settings and progress that must outlive this node, as records of the same log.

A state record is an ordinary record of topic rmq_sys_STATE, queue 0; its body is msgpack [[table, key, value | nil], ...].
Every line is an absolute assignment, so replaying from any earlier place ends in the same tables. This file writes
them and applies committed ones; what a table means is the table's own business (rmq.routing, rmq.delivery).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import msgpack

from rmq.broker.replication.appender import Waiter
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal, RmqError
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import record
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC, DataVersion
from rmq.net.transport.answering import answer_done
from rmq.net.transport.server import Call

Line = tuple[str, Any, Any]
MAX_LINES_A_RECORD = 2000
OTHER_BYTES = 1024  # of a record, beside its body
ONLY_HERE = (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)  # committed by a master whose slaves lack it


class Table(Protocol):
    """Filled by `apply`; `committed` is what a snapshot saves of it, row by row, with the version."""

    @property
    def data_version(self) -> DataVersion: ...

    def apply(self, key: Any, value: Any, time_ms: int = 0) -> None: ...

    def committed(self) -> Mapping[Any, Any]: ...

    def set_version(self, version: DataVersion) -> None: ...

    def drop_overlay(self) -> None:
        """This node leads no more."""

    def remove_topic(self, topic: str) -> None:
        """A committed record deleted that key."""

    def remove_topics(self, topics: Set[str]) -> None:
        """A committed record deleted those keys."""

    def remove_group(self, group: str) -> None:
        """A committed record deleted that key."""


Done = Callable[[RmqError | None], None]


class _Parts:
    """Several records with the lines of one change. `told` of each; the last one to be told tells, with the first error. Where
    others are stored, or may be, it says so: as lines are assignments, all may be written once more."""

    def __init__(self, count: int, done: Done) -> None:
        self._left = count
        self._done = done
        self._unknown: RmqError | None = None
        self._refused: Refusal | None = None
        self._stored = False

    def told(self, error: RmqError | None) -> None:
        self._left -= 1
        if isinstance(error, Refusal) and not is_unknown(error):
            self._refused = self._refused or error
        else:
            self._unknown, self._stored = self._unknown or error, True
        if self._left:
            return
        if self._refused is not None and self._stored:
            about = f"a part of it is stored, or may be: do it again ({self._refused.remark})"
            self._refused = Refusal(self._refused.code, about, self._refused.hint, self._refused.wait_ms)
        self._done(self._refused or self._unknown)


class StateWriter:
    """Proposes lines, in records of `most_bytes` at most."""

    def __init__(
        self, propose: Callable[[Unit], None], queues: ConsumeQueues, host: bytes, clock: Clock, most_bytes: int
    ) -> None:
        self._propose = propose
        self._queues = queues
        self._host = host
        self._clock = clock
        self._most_body_bytes = most_bytes - OTHER_BYTES

    def write(self, lines: Sequence[Line], done: Done) -> None:
        """`done` is called once all lines are committed and applied, or with the error. Raises Refusal like Appender.propose;
        where that comes when something is proposed already, `done` gets it."""
        bodies = list(bodies_of(lines, self._most_body_bytes))
        told = _Parts(len(bodies), done).told if len(bodies) > 1 else done
        for at, body in enumerate(bodies):
            try:
                self._propose(self._unit(body, told))
            except Refusal as refusal:
                if not at:
                    raise
                told(refusal)

    async def commit(self, lines: Sequence[Line]) -> None:
        """Write lines and wait until they are committed. Raises Refusal: nothing was stored, or (code 1) unknown."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write(lines, partial(resolve, future))
        await future

    def _unit(self, body: bytes, done: Done) -> Unit:
        draft = record.draft(STATE_TOPIC, body, b"", born_timestamp=self._clock.wall_ms(), born_host=self._host)
        return Unit(draft, (len(draft),), (0,), self._queues.get(STATE_TOPIC, 0), (tell, done))


def bodies_of(lines: Sequence[Line], most_bytes: int) -> Iterator[bytes]:
    """The lines as bodies of state records, none longer than that: a segment must hold it. (Two lines always go, and those that
    belong together, as in `OffsetTable.stage_reset`, stay together.)"""
    if len(lines) > MAX_LINES_A_RECORD:
        for first in range(0, len(lines), MAX_LINES_A_RECORD):
            yield from bodies_of(lines[first : first + MAX_LINES_A_RECORD], most_bytes)
        return
    body = bytes(msgpack.packb(lines))
    if len(body) <= most_bytes or len(lines) <= 2:
        yield body
        return
    half = max(len(lines) // 4 * 2, 2)
    yield from bodies_of(lines[:half], most_bytes)
    yield from bodies_of(lines[half:], most_bytes)


def tell(done: Done, _unit: Unit, error: RmqError | None, late: int) -> None:
    """For `Unit.owner`."""
    done(unknown_if_late(error, late))


def unknown_if_late(error: RmqError | None, late: int) -> RmqError | None:
    """A line that is stored but not committed in time is not in force: its waiter must not go on. One that only slaves lack is: a
    SYNC_MASTER without them does its work as an ASYNC_MASTER does, and RocketMQ's."""
    if not late or late in ONLY_HERE:
        return error
    about = "outcome unknown: the disk did not have it in time; look before doing it again"
    return Refusal(ResponseCode.SYSTEM_ERROR, about)


def resolve(future: "asyncio.Future[None]", error: RmqError | None) -> None:
    """The future is done, or holds the error; one that somebody gave up stays as it is."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        future.exception()  # a waiter that went away need not hear it


def resolving(future: "asyncio.Future[None]") -> Waiter:
    """For `Unit.owner`: the future is done when the unit is committed, or holds the error; see `tell`."""
    return tell, partial(resolve, future)


def is_unknown(error: RmqError) -> bool:
    """Whether a proposal that failed may be stored all the same. The log, or the next leader, will tell."""
    return isinstance(error, Refusal) and error.code == ResponseCode.SYSTEM_ERROR


def finish(calls: Iterable[Call], error: RmqError | None) -> None:
    """Answers calls that waited for a proposal, or refuses them. Any other error is a fault of ours, and goes on."""
    if error is None:
        answer_done(calls)
        return
    for call in calls:
        if not isinstance(error, Refusal):
            raise error
        call.refuse(error)


@contextmanager
def undoing(undo: Callable[[], None]) -> Iterator[None]:
    """Wraps the wait for a proposal that an overlay has already: calls `undo` if it was certainly not stored."""
    try:
        yield
    except RmqError as error:
        if not is_unknown(error):
            undo()
        raise


def lines_of(body: bytes) -> list[Line]:
    """The lines of one state record. Raises BadBytes."""
    try:
        lines = msgpack.unpackb(body, strict_map_key=False, use_list=True)
        return [(table, key, value) for table, key, value in lines]
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise BadBytes(f"a state record that cannot be read: {error}") from error


def apply_lines(tables: Mapping[str, Table], lines: Iterable[Line], time_ms: int) -> None:
    """`time_ms`: when they were stored. Lines of tables that this release does not know are refused: a newer one wrote them."""
    for table, key, value in lines:
        if table not in tables:
            raise BadBytes(f"state table {table!r} is not known to this release: was the store written by a newer one?")
        tables[table].apply(key, value, time_ms)
