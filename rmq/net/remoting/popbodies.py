"""Bodies of POP's requests and answers, of the transaction check and of pushed replies, in RocketMQ's codec. Pure."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Any

import orjson

from rmq.errors import Refusal
from rmq.net.commands.pop import AckedRange, Assignments, BatchAck, PopAnswer, QueryAssignment, SetRequestMode
from rmq.net.commands.questions import ConsumeDirectly
from rmq.net.commands.replies import PushReply
from rmq.net.commands.transactions import CheckTransactionState
from rmq.net.remoting.bodies import queue_json
from rmq.net.remoting.fields import read as read_fields, write as write_fields
from rmq.net.remoting.headers import Ext
from rmq.net.remoting.lenient import MESSAGE_MODELS, REQUEST_MODES, WRONG_BODY, choice, get, load


def read_query_assignment(ext: Ext, body: bytes) -> QueryAssignment:
    """[QueryAssignmentRequestBody]"""
    source = load(body, "QUERY_ASSIGNMENT")
    return QueryAssignment(
        get(source, "topic", ""),
        get(source, "consumerGroup", ""),
        get(source, "clientId", ""),
        get(source, "strategyName", "AVG"),
        choice(source, "messageModel", MESSAGE_MODELS, "CLUSTERING"),
    )


def read_request_mode(ext: Ext, body: bytes) -> SetRequestMode:
    """[SetMessageRequestModeRequestBody]"""
    source = load(body, "SET_MESSAGE_REQUEST_MODE")
    return SetRequestMode(
        get(source, "topic", ""),
        get(source, "consumerGroup", ""),
        choice(source, "mode", REQUEST_MODES, "PULL"),
        get(source, "popShareQueueNum", 0),
    )


def read_batch_ack(ext: Ext, body: bytes) -> BatchAck:
    """[BatchAckMessageRequestBody] No body at all is an empty list."""
    source = load(body or b"{}", "BATCH_ACK_MESSAGE")
    return BatchAck(get(source, "brokerName", ""), [_acked(part) for part in get(source, "acks", [])])


def _acked(source: Any) -> AckedRange:
    """[BatchAck, BitSetSerializerDeserializer]"""
    text = get(source, "b", "")
    try:
        bits = b64decode(text, validate=True)
    except (Base64Error, ValueError):  # ValueError: it is not ASCII
        raise Refusal(WRONG_BODY, f"b: base64 is expected, got {text[:40]!r}") from None
    return AckedRange(
        get(source, "c", ""), get(source, "t", ""), get(source, "r", "0"), get(source, "so", 0), get(source, "q", 0),
        get(source, "rq", 0), get(source, "pt", 0), get(source, "it", 0), bits,
    )  # fmt: skip


CARRIERS = (CheckTransactionState, PushReply, ConsumeDirectly)
"""Requests whose body is their `message`."""


def _carried(kind: type[Any]) -> Callable[[Ext, bytes], Any]:
    return lambda ext, body: read_fields(kind, ext)._replace(message=body)


POP_READERS: dict[type[Any], Callable[[Ext, bytes], Any]] = {
    QueryAssignment: read_query_assignment,
    SetRequestMode: read_request_mode,
    BatchAck: read_batch_ack,
    **{kind: _carried(kind) for kind in CARRIERS},
}


def write_assignments(answer: Assignments, quoted: bool) -> bytes:
    """[QueryAssignmentResponseBody] If the member is missing, the client keeps its assignment."""
    if not answer.known:
        return b"{}"
    found = [{"messageQueue": queue_json(one.queue), "mode": one.mode} for one in answer.queues]
    return orjson.dumps({"messageQueueAssignments": found})


def pop_ext(answer: PopAnswer) -> Ext:
    """[PopMessageResponseHeader] Only ordered pops have order counts."""
    ext = write_fields(answer)
    del ext["status"]
    if not answer.order_count_info:
        del ext["orderCountInfo"]
    return ext
