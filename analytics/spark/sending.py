"""Makes messages of the rows of an Arrow batch and sends them, many in one request. No Spark."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from analytics.records.cluster import Cluster, insist
from analytics.stores.options import given_options, nearest
from rmq.client import Client, Message, Producer
from rmq.client.shared.message import RESERVED_PROPERTIES
from rmq.client.shared.session import checked_topic
from rmq.codes import ResponseCode
from rmq.errors import InvalidArgument

NAMES = ("nameservers", "topic", "checkpointLocation")
COLUMNS: dict[str, tuple[str, ...]] = {  # the columns, and their types as Spark calls them
    "topic": ("string",),
    "body": ("binary", "string"),
    "keys": ("array<string>", "string"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "uniq_key": ("string",),
}
_PIECE_BYTES, _PIECE_MESSAGES = 256 << 10, 1000  # of one request; brokers allow 4 MiB by default
_IN_FLIGHT = 8
_GROUP = "rmq_spark"
_RESTARTING = frozenset({ResponseCode.INVALID_PARAMETER, ResponseCode.TOPIC_NOT_EXIST})
"""Between its stop and its start a broker's topic seems to be new (with other queues), or not to be there."""


def parse_sink_options(options: Mapping[str, str], columns: Mapping[str, str]) -> tuple[str, str]:
    """The nameservers, and the topic of all rows ("": each row names its own). `columns`: name -> type.

    Raises InvalidArgument if the rows cannot become messages.
    """
    given = given_options(options, NAMES)
    topic = given.get("topic", "")
    if "nameservers" not in given:
        raise InvalidArgument('the option "nameservers" is missing: give it as host:port;host:port')
    for name, kind in columns.items():
        if name not in COLUMNS:
            near = nearest(name, tuple(COLUMNS))
            raise InvalidArgument(f"a message has no column {name!r}{near} There are: {', '.join(COLUMNS)}")
        if kind not in COLUMNS[name]:
            raise InvalidArgument(f"the column {name!r} is {kind}; it can be {' or '.join(COLUMNS[name])}")
    if "body" not in columns:
        raise InvalidArgument("the column 'body' is missing")
    if topic:
        checked_topic(topic)
    elif "topic" not in columns:
        raise InvalidArgument('say where rows go: give the option "topic", or a column of that name')
    return given["nameservers"], topic


def messages(batch: pa.RecordBatch, topic: str) -> Iterator[Message]:
    """One message for each row. Raises InvalidArgument for a row without topic or body."""
    for row in batch.to_pylist():
        to, body, keys = topic or row["topic"], row["body"], row.get("keys") or ()
        if not to or not body:
            raise InvalidArgument(f"a row without {'a body' if to else 'a topic'}: {row}; leave such rows out")
        yield Message(
            to,
            body.encode() if isinstance(body, str) else body,
            tags=row.get("tags") or "",
            keys=keys.split() if isinstance(keys, str) else keys,
            properties=_own(row.get("properties") or ()),
            message_id=row.get("uniq_key") or "",
        )


def send(nameservers: str, batches: Iterable[pa.RecordBatch], topic: str) -> int:
    """Sends all rows; returns their number when all are stored. Raises RmqError: some may be stored then."""
    with Cluster(nameservers) as brokers:
        return sum(brokers.run(partial(_send, some=list(messages(batch, topic)))) for batch in batches)


async def _send(client: Client, some: list[Message]) -> int:
    free = asyncio.Semaphore(_IN_FLIGHT)
    try:
        async with client.producer(_GROUP) as producer, asyncio.TaskGroup() as tasks:
            for piece in _pieces(some):
                await free.acquire()
                tasks.create_task(_send_piece(client, producer, piece)).add_done_callback(lambda _: free.release())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return len(some)


async def _send_piece(client: Client, producer: Producer, piece: list[Message]) -> None:
    """Sends again even if the outcome of a send is unknown: a row may be stored twice, but none is lost."""
    await insist(client, lambda _: producer.send_batch(piece), passing=_RESTARTING)


def _pieces(some: Iterable[Message]) -> Iterator[list[Message]]:
    """Each is one request: what is stored in part is not tried again."""
    piece: list[Message] = []
    size = 0
    for message in some:
        letters = sum(len(name) + len(value) for name, value in message.properties.items())
        full = size + len(message.body) + letters > _PIECE_BYTES or len(piece) >= _PIECE_MESSAGES
        if piece and (full or message.topic != piece[0].topic):
            yield piece
            piece, size = [], 0
        piece.append(message)
        size += len(message.body) + letters
    if piece:
        yield piece


def _own(properties: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """The properties without system properties, which rows read from a broker have: those that matter have columns."""
    return {name: value for name, value in properties if name not in RESERVED_PROPERTIES and value is not None}
