"""Shows one message: as a line, as a block with mqadmin's names, or as JSON. Pure: no I/O, no clock."""

import base64
from collections.abc import Sequence
from datetime import datetime

from rmq.client import ReceivedMessage
from rmq.commands.shared.output import Cell, Table, plain
from rmq.commands.views.adminviews import moment
from rmq.errors import BadBytes
from rmq.log.records.record import host_text


def line(message: ReceivedMessage) -> str:
    """Place, time, tag, keys and body."""
    queue = message.queue
    stored = _time(message.store_timestamp).replace(",", ".")
    head = f"{queue.broker_name}/{queue.queue_id}@{message.queue_offset}  {stored}  {plain(message.tags) or '-'}"
    try:
        body = message.body.decode(errors="replace")
    except BadBytes as error:
        body = _as_stored(message, error)
    return f"{head}  {plain(' '.join(message.keys)) or '-'}  {plain(body)}"


def as_json(message: ReceivedMessage) -> dict[str, object]:
    """The fields that a consumer gets; `body_base64` if the body is not text."""
    queue = message.queue
    try:
        body: dict[str, object] = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    except BadBytes:  # compressed with a codec that we do not have
        body = {"stored_body_base64": base64.b64encode(message.stored.body).decode()}
    return {
        "message_id": message.message_id, "topic": message.topic, "broker": queue.broker_name, "queue": queue.queue_id,
        "offset": message.queue_offset, "tags": message.tags, "keys": message.keys, "properties": message.properties,
        "born_timestamp": message.born_timestamp, "store_timestamp": message.store_timestamp,
        "reconsume_times": message.reconsume_times, **body,
    }  # fmt: skip


def as_full_json(message: ReceivedMessage) -> dict[str, object]:
    """The same, with the place in the log and the hosts."""
    stored = message.stored
    return {
        **as_json(message), "offset_message_id": message.offset_message_id, "stored_topic": stored.topic,
        "physical_offset": stored.physical_offset, "stored_size": stored.total_size, "sys_flag": stored.sys_flag,
        "flag": stored.flag, "born_host": host_text(stored.born_host), "store_host": host_text(stored.store_host),
    }  # fmt: skip


def block(message: ReceivedMessage, charset: str = "utf-8") -> list[str]:
    """Every field on a line of its own, as queryMsgById shows them; the body last, which is text in that character set."""
    stored = message.stored
    rows: dict[str, object] = {
        "Message ID": message.message_id,
        "OffsetID": message.offset_message_id,
        "Topic": stored.topic,
        "Tags": message.tags or "-",
        "Keys": " ".join(message.keys) or "-",
        "Broker": message.queue.broker_name,
        "Queue ID": message.queue.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": stored.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": _time(message.born_timestamp),
        "Store Timestamp": _time(message.store_timestamp),
        "Born Host": host_text(stored.born_host),
        "Store Host": host_text(stored.store_host),
        "System Flag": stored.sys_flag,
        "Flag": stored.flag,
        "Properties": " ".join(f"{name}={value}" for name, value in sorted(message.properties.items())),
        "Body": _body(message, charset),
    }
    return [f"{name + ':':<18} {value if name == 'Body' else plain(str(value))}" for name, value in rows.items()]


def hits(messages: Sequence[ReceivedMessage]) -> Table:
    """queryMsgByKey's table, with columns that help to choose."""
    columns = {
        "message_id": "Message ID",
        "broker": "Broker",
        "queue": "QID",
        "offset": "Offset",
        "stored": "Stored",
        "tags": "Tags",
        "keys": "Keys",
    }
    rows: list[list[Cell]] = [
        [
            one.message_id,
            one.queue.broker_name,
            one.queue.queue_id,
            one.queue_offset,
            moment(one.store_timestamp),
            one.tags or None,
            " ".join(one.keys) or None,
        ]
        for one in messages
    ]
    return Table(columns, rows)


def _time(timestamp_ms: int) -> str:
    found = moment(timestamp_ms)
    return found.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3] if isinstance(found, datetime) else str(found or "-")


def _body(message: ReceivedMessage, charset: str) -> str:
    """The text if it is one that a terminal can show, else hex digits."""
    try:
        body = message.body
    except BadBytes as error:
        return _as_stored(message, error)
    text = body.decode(charset, errors="replace")
    shown = "�" not in text and all(letter.isprintable() or letter in "\n\t" for letter in text)
    return text if shown else f"{body.hex()} (hex)"


def _as_stored(message: ReceivedMessage, error: BadBytes) -> str:
    return f"{message.stored.body.hex()} (as stored: {error})"
