"""The content of a store's files, one flat value per line, for `rmq store dump`. Only reads."""

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any

from rmq.broker.shared.state import lines_of
from rmq.commands.shared.output import plain
from rmq.errors import BadBytes
from rmq.log import reader
from rmq.log.files import smallfile
from rmq.log.index.indexfile import ENTRY as INDEX_ENTRY, HEADER_BYTES
from rmq.log.queues.batchqueue import ROW, Row
from rmq.log.queues.consumequeue import ENTRY
from rmq.log.reader import named
from rmq.log.records import record
from rmq.log.records.innerbatch import is_inner_batch, messages_in
from rmq.log.records.record import Record
from rmq.model import STATE_TOPIC


def records(directory: Path, from_: int = 0) -> Iterator[Record]:
    """Whole records from the first one at or behind `from_`, as far as the store is committed. Raises BadBytes."""
    committed = reader.committed_end(str(directory))
    for segment in reader.read_segments(str(directory)):
        if segment.base + segment.size > from_:
            yield from (one for one in reader.read_records(segment, committed) if one.physical_offset >= from_)


def of(records: Iterator[Record], topic: str | None, queue_id: int | None) -> Iterator[Record]:
    return (one for one in records if topic in (None, one.topic) and queue_id in (None, one.queue_id))


def record_line(one: Record) -> dict[str, Any]:
    return {
        "offset": one.physical_offset, "size": one.total_size, "topic": one.topic, "queueId": one.queue_id,
        "queueOffset": one.queue_offset, "storeTimestamp": one.store_timestamp, "bornTimestamp": one.born_timestamp,
        "bornHost": record.host_text(one.born_host), "storeHost": record.host_text(one.store_host), "flag": one.flag,
        "sysFlag": one.sys_flag, "reconsumeTimes": one.reconsume_times,
        "preparedTransactionOffset": one.prepared_transaction_offset,
        "properties": record.bytes_to_properties(one.properties), **_content(one),
    }  # fmt: skip


def _content(one: Record) -> dict[str, Any]:
    """The body; of an inner batch its messages, if it can be taken apart."""
    if is_inner_batch(one):
        with suppress(BadBytes):
            return {"messages": [_message(each) for each in messages_in(one)]}
    text = one.body.decode("utf-8", "replace")
    is_text = text.encode() == one.body and text.isprintable()
    return {"body": text} if is_text else {"bodyBase64": base64.b64encode(one.body).decode()}


def _message(one: Record) -> dict[str, Any]:
    said = record.bytes_to_properties(one.properties)
    return {"queueOffset": one.queue_offset, "flag": one.flag, "properties": said, **_content(one)}


def state_lines(records: Iterator[Record]) -> Iterator[dict[str, Any]]:
    for one in of(records, STATE_TOPIC, 0):
        for table, key, value in lines_of(one.body):
            yield {"offset": one.physical_offset, "table": table, "key": key, "value": value}


def units(directory: Path, topic: str | None, queue_id: int | None) -> Iterator[dict[str, Any]]:
    for kind, unit in (("consumequeue", ENTRY), ("batchconsumequeue", ROW)):
        for folder in sorted((directory / kind).glob("*/*")):
            if folder.name.isdecimal() and topic in (None, folder.parent.name) and queue_id in (None, int(folder.name)):
                of = {"topic": folder.parent.name, "queueId": int(folder.name)}
                yield from (of | line for path in sorted(folder.iterdir()) for line in _units_in(path, unit))


def _units_in(path: Path, unit: Struct) -> Iterator[dict[str, Any]]:
    with named(path):
        data = path.read_bytes()
    for at in range(0, len(data) - unit.size + 1, unit.size):
        offset, size, code = ENTRY.unpack_from(data, at)
        if size <= 0:
            break
        line = {"queueOffset": (int(path.name) + at) // unit.size, "offset": offset, "size": size, "tagsCode": code}
        if unit is ROW:
            row = Row(*ROW.unpack_from(data, at))
            line |= {"queueOffset": row.base, "messages": row.messages, "storeTimestamp": row.stored_ms}
        yield line


def index_lines(folder: Path, slots: int) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with named(path), path.open("rb") as file:
            header = file.read(HEADER_BYTES)
            begin_ms, count = int.from_bytes(header[:8], "big"), int.from_bytes(header[36:40], "big")
            file.seek(HEADER_BYTES + slots * 4 + INDEX_ENTRY.size)
            for index in range(1, count):
                data = file.read(INDEX_ENTRY.size)
                if len(data) < INDEX_ENTRY.size:
                    raise BadBytes(f"{path} ends before entry {index} of {count}; were its slots others? See --index-slots")
                value, offset, seconds, before = INDEX_ENTRY.unpack(data)
                yield {
                    "file": path.name,
                    "number": index,
                    "hash": value,
                    "offset": offset,
                    "time": begin_ms + seconds * 1000,
                    "before": before,
                }


def own_lines(folder: Path) -> Iterator[dict[str, Any]]:
    for kind in ("vote", "run", "epochs", "progress", "queues", "index"):
        path = folder / kind
        with named(path):
            lines = smallfile.parse(str(path), kind, path.read_bytes()) if path.exists() else []
        for line in lines:
            yield {"file": kind, "name": line[0], "value": " ".join(line[1:])}


def short(value: Any) -> str:
    text = plain(str(value))
    return text if len(text) <= 200 else text[:197] + "..."
