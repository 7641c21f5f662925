"""Messages of transactions in the log: halves, op records, and the records made from a half [TransactionalMessageBridge].

A half waits in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, exactly as Apache RocketMQ stores it. One record ends it, which names it in
its proof: the message itself (committed), an op record (rolled back), or its copy in TRANS_CHECK_MAX_TIME_TOPIC (put
aside). Appended again it is a record of the half topic with such a proof.
"""

from collections.abc import Callable, Iterable

from rmq.broker.pending.intake import ROOM_AT_ENDS_BYTES, Intercepted, Interceptor
from rmq.broker.pending.internalproducer import handed_on
from rmq.codes import ResponseCode
from rmq.delivery.proof import HALF, Proof, proof_in
from rmq.delivery.transactions import COMMITTED, PARKED, PARKED_TOPIC, ROLLED_BACK, Half, HalfTable, op_body, op_queue_offsets
from rmq.errors import BadBytes, InvalidArgument, Refusal
from rmq.log.records import record
from rmq.log.records.halves import LONGEST_GROUP
from rmq.log.records.properties import CRC_NAME, MAX_PROPERTIES_BYTES, strip_names
from rmq.log.records.record import Record
from rmq.model import HALF_TOPIC, OP_TOPIC, PROOF_PROPERTY

CHECKS = "TRANSACTION_CHECK_TIMES"
_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_MOST_BYTES = MAX_PROPERTIES_BYTES - ROOM_AT_ENDS_BYTES - 64  # it may wait on when it is committed; 64: for names, and its checks
_HIGHEST_S = 2**31
_DIGITS = 18
_REAL = ("REAL_TOPIC", "REAL_QID")
_WAITED = frozenset({b"REAL_TOPIC", b"REAL_QID", PROOF_PROPERTY.encode(), CRC_NAME})  # of a half, not of its message
_OP_TAG = "d"


class HalfNotes:
    """What every node learns of committed records (`kinds.Kind`)."""

    def __init__(self, table: HalfTable) -> None:
        self._table = table

    def holds(self, topic: str) -> bool:
        return topic in (HALF_TOPIC, OP_TOPIC)

    def note(self, stored: Record) -> None:
        if stored.topic == OP_TOPIC:
            self._table.op_written(op_queue_offsets(stored.body))
        else:
            self._table.appended(first_of(stored), half_of(stored))

    def done(self, proof: Proof, stored: Record) -> None:
        if stored.topic != HALF_TOPIC:
            outcome = {OP_TOPIC: ROLLED_BACK, PARKED_TOPIC: PARKED}.get(stored.topic, COMMITTED)
            self._table.resolved((proof.source,), outcome)

    def alive_from(self) -> int | None:
        return self._table.alive_from()


def half_of(stored: Record) -> Half:
    """What the table keeps of a record in the half topic."""
    said = record.kept_properties(stored.properties)
    immunity_ms = min(_number(said.get(_IMMUNITY, "")), _HIGHEST_S) * 1000
    return Half(
        stored.physical_offset,
        stored.queue_offset,
        stored.queue_offset,
        said.get("PGROUP", ""),
        stored.store_timestamp,
        immunity_ms,
        _number(said.get(CHECKS, "")),
    )


def first_of(stored: Record) -> int:
    """Log offset of the first append of that half."""
    proof = proof_in(stored.properties)
    return proof.source if proof is not None and proof.kind == HALF else stored.physical_offset


def _number(text: str) -> int:
    """0 if it is no number: whoever sent it, a committed record must never stop a node."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0


def half_interceptor(table: HalfTable, rejects: Callable[[], bool] = lambda: False) -> Interceptor:
    """The intake's interceptor of halves. `rejects()`: this broker takes no transactions [rejectTransactionMessage]."""

    def take(message: Record, queue_id: int) -> Intercepted | None:
        said = record.kept_properties(message.properties)
        # a message that failed and comes again is whole; it keeps the property [SendMessageProcessor]
        if said.get("TRAN_MSG", "").lower() != "true" or message.reconsume_times > 0:
            if message.sys_flag & record.SYS_TRANSACTION:
                about = "a prepared message needs the property TRAN_MSG=true, and a committed one is the broker's to make"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
            return None
        if rejects():
            raise Refusal(ResponseCode.NO_PERMISSION, "this broker takes no transactional messages (rejectTransactionMessage)")
        if not 0 < len(said.get("PGROUP", "")) <= LONGEST_GROUP:
            about = f"a transactional message needs PGROUP, a group of at most {LONGEST_GROUP} letters: who is to be asked else?"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
        if table.is_full(said["PGROUP"]):
            about = "too many transactions of this group, or of all, wait for their end: commit or roll back, then send again"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        unique_id = said.get("UNIQ_KEY", "")
        if len(message.properties) + len(unique_id.encode()) > _MOST_BYTES:
            about = f"properties of a transactional message, and its id once more: at most {_MOST_BYTES} bytes"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
        added = {"__transactionId__": unique_id} if unique_id else {}
        added |= zip(_REAL, (message.topic, str(queue_id)), strict=True)
        return Intercepted(HALF_TOPIC, 0, handed_on(message, HALF_TOPIC, None, properties=added.items()))

    return take


# --- drafts made from a half --------------------------------------------------------------------------------------


def again(stored: Record, first: int, checks: int) -> bytes:
    """The same half once more, after `checks` questions to its producers. Raises InvalidArgument where RocketMQ left no room for
    the proof."""
    return handed_on(stored, HALF_TOPIC, Proof(HALF, first), properties=[(CHECKS, str(checks))] if checks else ())


def resumed(parked: Record) -> bytes:
    """A new half from one that was put aside. Its proof names the place there, so resuming twice does not make two."""
    return handed_on(parked, HALF_TOPIC, Proof(HALF, parked.physical_offset), properties=[(CHECKS, "0")])


def parked_half(stored: Record, first: int, half: Half, wall_ms: int, host: bytes) -> list[tuple[str, bytes]]:
    """Its copy in the topic of halves that nobody answered for: (topic, draft). Where RocketMQ left no room for the proof, an op
    record behind it says that the half has ended."""
    try:
        return [(PARKED_TOPIC, handed_on(stored, PARKED_TOPIC, Proof(HALF, first)))]
    except InvalidArgument:
        copy = handed_on(stored, PARKED_TOPIC, None)
        return [(PARKED_TOPIC, copy), (OP_TOPIC, op_draft([half.queue_offset], wall_ms, host, first))]


def whole(stored: Record) -> Record:
    """The message as it was sent, with its own topic and queue, without a proof yet. Raises BadBytes."""
    topic, queue_id = real_place(stored)
    return stored._replace(
        topic=topic,
        queue_id=queue_id,
        sys_flag=stored.sys_flag & ~record.SYS_TRANSACTION,
        prepared_transaction_offset=0,
        properties=strip_names(stored.properties, _WAITED),
    )


def committed(message: Record, topic: str, first: int, named: int) -> bytes:
    """`message` (from `whole`, or where that waits on) as a commit stores it. `named`: the offset that the producer gave."""
    proof = Proof(HALF, first)
    return handed_on(message, topic, proof, flags=record.SYS_COMMIT, prepared_transaction_offset=named)


def op_draft(queue_offsets: Iterable[int], wall_ms: int, host: bytes, first: int | None = None) -> bytes:
    """An op record. `first`: of the half that it rolls back."""
    said = {"TAGS": _OP_TAG} | ({} if first is None else Proof(HALF, first).as_property())
    properties = record.properties_to_bytes(said)
    return record.draft(OP_TOPIC, op_body(queue_offsets), properties, born_timestamp=wall_ms, born_host=host)


def real_place(stored: Record) -> tuple[str, int]:
    """Topic and queue that the half is for. Raises BadBytes if it does not say."""
    said = record.kept_properties(stored.properties)
    if stored.topic != HALF_TOPIC or not said.get("REAL_TOPIC"):
        raise BadBytes(f"the record at {stored.physical_offset} is no half message")
    return said["REAL_TOPIC"], _number(said.get("REAL_QID", ""))


def asked_as(stored: Record) -> bytes:
    """The half as its producer gets to see it: with its real topic, without our properties. Raises BadBytes."""
    topic, queue_id = real_place(stored)
    properties = strip_names(stored.properties, {PROOF_PROPERTY.encode(), CRC_NAME})
    magic = record.topic_field_of(topic)[0]
    return record.encode(stored._replace(magic=magic, topic=topic, queue_id=queue_id, properties=properties))
