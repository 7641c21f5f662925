"""The end of a transaction [EndTransactionProcessor], and a half that was put aside and is to be asked after again.

A producer is answered when its decision is committed, so an answer is a promise. A producer that repeats it gets the same
answer, also from the next leader; one that says the opposite is told what was decided.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

from rmq.broker.pending import fasthalves, halves
from rmq.broker.pending.intake import Intake
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.ports import CheckTopic
from rmq.broker.shared.state import finish, is_unknown, tell, unknown_if_late
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.transactions import COMMITTED, PARKED_TOPIC, ROLLED_BACK, Half, HalfTable
from rmq.errors import OUTCOME_UNKNOWN, BadBytes, Refusal, RmqError, StoreError, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.log.units import Unit
from rmq.model import HALF_TOPIC, OP_TOPIC
from rmq.net.codec.frames import Received
from rmq.net.commands.transactions import COMMIT, ROLLBACK, EndTransaction, ResumeCheck
from rmq.net.transport.connection import CALL_BYTES, Connection
from rmq.net.transport.server import LATER, Call, Handler, Later
from rmq.requests import Action
from rmq.routing.lives import Life

log = logging.getLogger("rmq.transactions")
_KIND = EndTransaction.__name__
_new = tuple.__new__  # a NamedTuple in half the time
_OUTCOMES = {COMMIT: COMMITTED, ROLLBACK: ROLLED_BACK}


class TransactionHandlers:
    """`later`: the intake for committed messages that have a delay. `immunity_ms`: how long a half is left alone. `check_topic`:
    as of `Guard`."""

    def __init__(
        self,
        table: HalfTable,
        internal_producer: InternalProducer,
        later: Intake,
        immunity_ms: int,
        check_topic: CheckTopic,
        clock: Clock,
    ) -> None:
        self._table = table
        self._internal_producer = internal_producer
        self._later = later
        self.immunity_ms = immunity_ms
        self._check_rights = check_topic
        self._clock = clock
        self._running: dict[int, asyncio.Future[None] | None] = {}  # by first offset: being ended, and who waits for that
        self._commits = internal_producer.turn_units(self._note, self._all_written, kind=_KIND, state=True)

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {EndTransaction: self.end, ResumeCheck: self.resume}

    def take(self, connection: Connection, received: list[Received], first: int, room: int) -> int:
        """See `Take`: commits of usual halves whose messages go straight to their queues, those of a turn together. What is
        wrong, or in doubt, `end` says."""
        table, running, producer = self._table, self._running, self._internal_producer
        targets, queues = table.targets, dict[tuple[str, int], tuple[ConsumeQueue, int] | None]()
        at, left = first, room
        for request, call_id, oneway, context, size in received[first:] if first else received:
            if type(request) is not EndTransaction or left < 0:
                break
            group, queue_offset, place, how, _, _, _, _ = request
            half = table.at_rest(place) if how == COMMIT and place not in running else None
            known = half and (half.offset, half.queue_offset, half.group, half.immunity_ms)
            if known != (place, queue_offset, group, 0):
                break
            stored = producer.bytes_now(place)
            usual = None if stored is None else fasthalves.committed(stored, place, targets.get(place))
            if usual is None:
                break
            topic, queue_id, draft, code = usual
            if (topic, queue_id) not in queues:
                queues[topic, queue_id] = producer.present_queue(topic, queue_id)
            found = queues[topic, queue_id]
            if found is None or place < found[1]:
                break
            size += CALL_BYTES
            call = _new(Call, (connection, call_id, oneway, context, size))
            try:
                self._check_rights(call, topic, Action.PUB, "")
            except Refusal:
                break
            if self._commits.add(found[0], draft, code, (place, call), call) is None:
                break
            table.end(place, COMMITTED)
            running[place] = None
            left -= size
            at += 1
        connection.under_way(at - first, room - left)
        return at

    def end(self, request: EndTransaction, call: Call) -> Later | Awaitable[Later | None] | None:
        """Raises Refusal: nothing was done, or (OUTCOME_UNKNOWN) nobody knows. "Unknown" changes nothing: it is asked again."""
        wanted = _OUTCOMES.get(request.commit_or_rollback)
        if wanted is None:
            return None
        first = request.commit_log_offset
        half = None if first in self._running else self._table.at_rest(first)
        if half is None or half.offset != first or (stored := self._internal_producer.bytes_now(first)) is None:
            return self._look_for(request, wanted, call)
        _check(request, half.group, half.queue_offset)
        return self._end(first, half, record.decode(stored), request, call)

    async def _look_for(self, request: EndTransaction, wanted: str, call: Call) -> Later | None:
        """For a half that is on a disk, or was stored again, or is ended already or at this moment."""
        first = await self._first(request)
        while True:
            while first in self._running:
                await asyncio.wait([self._is_over(first)])
            if self._table.is_ending(first):
                about = f"{OUTCOME_UNKNOWN}: what was said before is not committed yet; ask again"
                raise Refusal(ResponseCode.SYSTEM_ERROR, about)
            outcome, half = self._table.outcome(first), self._table.open.rows.get(first)
            if half is None and outcome != wanted:
                raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"this transaction was {outcome} before; it stays so")
            if half is None:
                return None
            stored = await self._read(half, wanted)
            if first not in self._running and not self._table.outcome(first) and self._table.open.rows.get(first) == half:
                return self._end(first, half, stored, request, call)

    def _is_over(self, first: int) -> asyncio.Future[None]:
        """Done when what ends the half now is committed, or refused."""
        over = self._running[first]
        if over is None:
            over = self._running[first] = asyncio.get_running_loop().create_future()
        return over

    async def _read(self, half: Half, wanted: str) -> Record | None:
        """The half as it is stored; None if it cannot be read. Raises Refusal if it is to be committed then."""
        try:
            [stored] = await self._internal_producer.read([half.offset])
        except StoreError as error:
            if wanted == COMMITTED:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"the half message cannot be read: {error}") from error
            return None
        return stored

    async def _first(self, request: EndTransaction) -> int:
        """Which half is meant: the offset is that of its first append, or of any later one. Raises Refusal."""
        offset, table = request.commit_log_offset, self._table
        if (half := table.open.rows.get(offset)) is not None:
            queue_offset = half.queue_offset if half.offset == offset else half.first_queue_offset
            _check(request, half.group, request.tran_state_table_offset if queue_offset < 0 else queue_offset)
            return offset
        if offset in table.ended.rows:
            return offset
        found = await asyncio.to_thread(self._internal_producer.find, offset)
        stored = None if found is None else record.decode(found)
        first = -1 if stored is None or stored.topic != HALF_TOPIC else halves.first_of(stored)
        if stored is None or not (first in table.open.rows or table.outcome(first)):
            about = f"Find prepared transaction message failed: none that waits, or ended lately, is at {offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)
        _check(request, halves.half_of(stored).group, stored.queue_offset)
        return first

    def _end(self, first: int, half: Half, stored: Record | None, request: EndTransaction, call: Call) -> Later:
        """Writes what ends the half; the producer is answered when that is committed. Raises Refusal."""
        self._check_in_time(half, request)
        if request.commit_or_rollback != COMMIT:
            return self._roll_back(first, half, stored, call)
        try:
            message = halves.whole(_there(stored))
        except BadBytes as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the half message cannot be read: {error}") from error
        if (gone := self._gone(first, message.topic, call)) is not None:
            return self._write_op(first, half, call, gone)
        return self._commit(first, message, request, call)

    def _gone(self, first: int, topic: str, call: Call) -> Refusal | None:
        """What the producer is told if the half is rolled back since its topic is gone. Raises Refusal: it stays open."""
        self._check_rights(call, topic, Action.PUB, "")
        life = self._internal_producer.life(topic, first)
        if life is Life.ENDING:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"topic {topic} is being deleted: ask again in a moment")
        if life is Life.OVER:
            return no_topic(topic, " any more: it was deleted while this transaction was open, which is rolled back")
        return None

    def _queue_of(self, topic: str, queue_id: int) -> int:
        """The queue, or another one if the topic has fewer now. Raises Refusal."""
        config = self._internal_producer.topic(topic)
        if config is None:
            raise no_topic(topic, " (any more): make it, and the commit works until the half is put aside")
        return self._internal_producer.queue_in(config, queue_id)

    def _note(self, ended: Sequence[tuple[int, Call]], _unit: Unit) -> None:
        """As `HalfNotes.done` for each of these commits."""
        self._table.resolved([first for first, _ in ended], COMMITTED)

    def _all_written(self, ended: Sequence[tuple[int, Call]], _unit: Unit, error: RmqError | None, late: int) -> None:
        error, running = unknown_if_late(error, late), self._running
        for first, _ in ended:
            if error is not None or running[first] is not None:
                self._over(first, error)
            else:
                del running[first]
        finish([call for _, call in ended], error)

    def _commit(self, first: int, message: Record, request: EndTransaction, call: Call) -> Later:
        queue_id = self._queue_of(message.topic, message.queue_id)
        place, topic = message, message.topic
        if (placed := self._later.take(message, queue_id)) is not None:
            place, topic, queue_id = record.decode(placed.draft), placed.topic, placed.queue_id
        draft = halves.committed(place, topic, first, request.commit_log_offset)
        return self._write(first, COMMITTED, topic, queue_id, draft, call)

    def _roll_back(self, first: int, half: Half, stored: Record | None, call: Call) -> Later:
        try:
            topic, _ = halves.real_place(_there(stored))
        except BadBytes as error:  # nobody can commit it either
            log.warning("the half message at %d cannot be read, it is rolled back: %s", first, error)
        else:
            self._check_rights(call, topic, Action.PUB, "")
        return self._write_op(first, half, call)

    def _write_op(self, first: int, half: Half, call: Call, refusal: Refusal | None = None) -> Later:
        draft = halves.op_draft([half.queue_offset], self._clock.wall_ms(), self._internal_producer.host, first)
        return self._write(first, ROLLED_BACK, OP_TOPIC, 0, draft, call, refusal)

    def _write(
        self, first: int, outcome: str, topic: str, queue_id: int, draft: bytes, call: Call, refusal: Refusal | None = None
    ) -> Later:
        """`refusal`: what the producer is told once it is committed. Raises Refusal: nothing is written."""
        told = tell, partial(self._written, first, call, refusal)
        unit = self._internal_producer.put(topic, queue_id, draft, told, state=True)
        unit.asked, unit.kind, unit.came = call, _KIND, call.connection.last_read
        self._begin(first, outcome)
        return LATER

    def _begin(self, first: int, outcome: str) -> None:
        self._table.end(first, outcome)
        self._running[first] = None

    def _written(self, first: int, call: Call, refusal: Refusal | None, error: RmqError | None) -> None:
        self._over(first, error)
        finish((call,), error or refusal)

    def _over(self, first: int, error: RmqError | None) -> None:
        """What ends the half is committed, or failed."""
        if error is not None and not is_unknown(error):
            self._table.not_ended(first)
        if (over := self._running.pop(first)) is not None:
            over.set_result(None)

    def _check_in_time(self, half: Half, request: EndTransaction) -> None:
        """A producer that set its own immunity time cannot end the half by itself after that time. Raises Refusal."""
        if not half.immunity_ms or request.from_transaction_check:
            return
        if self._clock.wall_ms() - half.since_ms > max(half.immunity_ms, self.immunity_ms):
            about = "CHECK_IMMUNITY_TIME_IN_SECONDS is over: only an answer to a check ends this transaction"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, about)

    async def resume(self, request: ResumeCheck, call: Call) -> None:
        """Resumes a half that was put aside: its producers are asked again, and it may be committed. Raises Refusal."""
        offset = record.offset_in(request.msg_id)
        found = await asyncio.to_thread(self._internal_producer.find, offset)
        stored: Record | None = None if found is None else record.decode(found)
        if stored is None or stored.topic != PARKED_TOPIC:
            about = f"{request.msg_id} is no message of {PARKED_TOPIC} at this broker: look there for the id (offsetMsgId)"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)
        if outcome := self._table.outcome(offset):
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"it was begun anew before, and {outcome}")
        again = halves.resumed(stored)
        self._check_rights(call, halves.real_place(record.decode(again))[0], Action.UPDATE, "")
        await self._internal_producer.send(HALF_TOPIC, 0, again)


def _there(stored: Record | None) -> Record:
    """Raises BadBytes."""
    if stored is None:
        raise BadBytes("no whole record is there")
    return stored


def _check(request: EndTransaction, group: str, queue_offset: int) -> None:
    """[EndTransactionProcessor.checkPrepareMessage] Raises Refusal."""
    if group != request.producer_group:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"The producer group wrong: it is not {request.producer_group}")
    if queue_offset != request.tran_state_table_offset:
        about = f"The transaction state table offset wrong: it is not {request.tran_state_table_offset}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, about)
