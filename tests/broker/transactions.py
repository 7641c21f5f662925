"""A producer of transactional messages that sends single requests, and looks into the topics behind them."""

from typing import Any

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.model import HALF_TOPIC, OP_TOPIC
from rmq.net.commands import GetMinOffset, Pull, Send, SendAnswer
from rmq.net.commands.transactions import COMMIT, ROLLBACK, UNKNOWN, CheckTransactionState, EndTransaction
from tests.broker.support import BORN, SUBSCRIBED, Peer

__all__ = ["COMMIT", "ROLLBACK", "UNKNOWN", "checks", "commit", "end", "half", "numbers", "properties", "stored"]

GROUP = "p"


def half(body: bytes = b"body", topic: str = "T", *, queue_id: int = 0, born_ms: int = 1000, **said: str) -> Send:
    """A half message with unique id "id-" and its body."""
    known = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"id-{body.decode()}", "TAGS": "x", **said}
    draft = record.draft(topic, body, record.properties_to_bytes(known), born_timestamp=born_ms, born_host=BORN)
    return Send(GROUP, topic, queue_id, draft)


def end(half: SendAnswer | CheckTransactionState, how: int = COMMIT, **fields: Any) -> EndTransaction:
    """What a producer says of a half that it sent, or was asked about."""
    if isinstance(half, CheckTransactionState):
        said = {"from_transaction_check": True, **fields}
        return EndTransaction(GROUP, half.tran_state_table_offset, half.commit_log_offset, how, half.msg_id, **said)
    return EndTransaction(GROUP, half.queue_offset, half.physical_offset, how, "id", **fields)


async def commit(peer: Peer, body: bytes, how: int = COMMIT, *, topic: str = "T", **said: str) -> SendAnswer:
    """Sent and ended."""
    [sent] = await peer.send(half(body, topic, **said))
    await peer.ask(end(sent, how))
    return sent


async def stored(peer: Peer, topic: str, queue_id: int = 0) -> list[Record]:
    """All that is left of a queue, as a consumer gets it."""
    found: list[Record] = []
    low = (await peer.ask(GetMinOffset(topic, queue_id))).offset
    while True:
        answer = await peer.ask(Pull("g", topic, queue_id, low + len(found), sys_flag=SUBSCRIBED))
        if answer.status != ResponseCode.SUCCESS:
            return found
        found += record.iterate(answer.messages)


async def numbers(peer: Peer) -> list[str]:
    """The half-queue numbers that op records name, in order."""
    return [word for one in await stored(peer, OP_TOPIC) for word in one.body.decode().split(",") if word]


def properties(one: Record) -> dict[str, str]:
    return record.bytes_to_properties(one.properties)


def checks(peer: Peer) -> list[CheckTransactionState]:
    """What the broker asked so far."""
    return [one for one in peer.pushed if isinstance(one, CheckTransactionState)]


async def outcome(peer: Peer, request: EndTransaction) -> int:
    """0, or the code of the refusal."""
    try:
        await peer.ask(request)
    except Refusal as refusal:
        return int(refusal.code)
    return 0


async def halves(peer: Peer) -> int:
    """How many records the half queue has."""
    return len(await stored(peer, HALF_TOPIC))
