"""Stores that Apache RocketMQ wrote: read completely, encoded again byte for byte, queues rebuilt equal."""

import hashlib
import json
import lzma
import tarfile
import zlib
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rmq.errors import StoreError
from rmq.log import record
from rmq.log.consumequeue import LOWER, UPPER, ConsumeQueues
from rmq.log.disk import RealDisk
from rmq.log.memory import MemoryDisk
from rmq.log.reader import committed_end, read_records, read_segments
from rmq.log.record import Record
from rmq.log.store import Store, StoreSettings

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
SETS = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))
HOST = record.host_bytes("127.0.0.1", 1)


@cache
def told(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((GOLDEN / f"{name}.json.xz").read_bytes()))
    return found


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    for name in SETS:
        with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
            for member in archive:
                if member.isfile() and member.name.partition("/")[2].startswith(("commitlog/", "consumequeue/")):
                    archive.extract(member, folder, filter="data")
    return folder


def all_records(root: Path) -> Iterator[Record]:
    for segment in read_segments(str(root)):
        yield from read_records(segment)


@pytest.mark.parametrize("name", SETS)
def test_every_record_is_read_and_encodes_to_its_own_bytes(unpacked: Path, name: str) -> None:
    segments = read_segments(str(unpacked / name))
    count = 0
    for segment in segments:
        data = Path(segment.path).read_bytes()
        for found in read_records(segment):
            at = found.physical_offset - segment.base
            assert record.encode(found) == data[at : at + found.total_size]
            count += 1
    assert count == told(name)["checked"]["records"]
    assert len(segments) == told(name)["checked"]["segments"]
    assert committed_end(str(unpacked / name)) is None


@pytest.mark.parametrize("name", SETS)
def test_every_field_is_what_rocketmq_says(unpacked: Path, name: str) -> None:
    found = {(one.topic, one.queue_id, one.queue_offset): one for one in all_records(unpacked / name)}
    later = {(one["topic"], one["queueId"], one["queueOffset"]) for one in told(name)["writtenAfterRestart"] or ()}
    compared = 0
    for queues in told(name)["messages"].values():
        for message in (message for messages in queues.values() for message in messages):
            key = (message["topic"], message["queueId"], message["queueOffset"])
            if key not in later:
                compare(found[key], message)
                compared += 1
    assert compared > 15


def compare(one: Record, message: dict[str, Any]) -> None:
    assert (one.physical_offset, one.total_size, one.flag, one.sys_flag & ~1) == (  # the client clears "compressed"
        message["physicalOffset"],
        message["storeSize"],
        message["flag"],
        message["sysFlag"],
    )
    assert (one.born_timestamp, one.store_timestamp, one.body_crc) == (
        message["bornTimestamp"],
        message["storeTimestamp"],
        message["bodyCRC"],
    )
    assert (one.reconsume_times, one.prepared_transaction_offset) == (
        message["reconsumeTimes"],
        message["preparedTransactionOffset"],
    )
    assert record.message_id(one.store_host, one.physical_offset) == message["offsetMsgId"]
    if "." in message["storeHost"]:
        assert (record.host_text(one.born_host), record.host_text(one.store_host)) == (message["bornHost"], message["storeHost"])
    properties = record.bytes_to_properties(one.properties)
    said = dict(message["properties"])
    assert {name: value for name, value in properties.items() if said.get(name) != value} == {}
    assert zlib.crc32(one.body) & 0x7FFFFFFF == one.body_crc
    if not one.sys_flag & 1:
        body = message["body"]
        assert one.body == b64decode(body["b64"]) if "b64" in body else hashlib.sha256(one.body).hexdigest() == body["sha256"]


@pytest.mark.parametrize("name", SETS)
def test_consume_queues_rebuilt_from_the_log_are_the_same_files(unpacked: Path, name: str) -> None:
    """D10: the queues are derived from the log; ours are RocketMQ's byte for byte."""
    disk = MemoryDisk()
    queues = ConsumeQueues(disk, "/q", told(name)["queueFileEntries"])
    for one in all_records(unpacked / name):
        if record.has_queue_entry(one):
            queue = queues.get(one.topic, one.queue_id)
            queue.put_many(one.queue_offset, one.physical_offset, (one.total_size,), (record.entry_code(one),))
    queues.flush()
    theirs = {
        path.relative_to(unpacked / name / "consumequeue").as_posix(): path.read_bytes()
        for path in (unpacked / name / "consumequeue").rglob("*")
        if path.is_file()
    }
    ours = {path.removeprefix("/q/"): bytes(disk.content(path)) for path in disk.paths()}
    assert ours == {path: content for path, content in theirs.items() if content.strip(b"\0")}
    assert sum(queue.max for queue in queues.all()) == told(name)["checked"]["cqEntries"]


@pytest.mark.parametrize("name", [name for name in SETS if "497" not in name])
def test_offsets_by_time_are_those_of_rocketmq_5(unpacked: Path, name: str) -> None:
    queues = ConsumeQueues(MemoryDisk(), "/q", 1000)
    times: dict[int, int] = {}
    for one in all_records(unpacked / name):
        times[one.physical_offset] = one.store_timestamp
        queues.get(one.topic, one.queue_id).put_many(one.queue_offset, one.physical_offset, (one.total_size,), (0,))
    grown = {(one["topic"], one["queueId"]) for one in told(name)["writtenAfterRestart"] or ()}
    asked = [one for one in told(name)["byTimestamp"] if (one["topic"], one["queueId"]) not in grown and "lower" in one]
    assert asked
    for one in asked:
        queue = queues.get(one["topic"], one["queueId"])
        if queue.max:
            assert queue.search(one["timestamp"], LOWER, times.__getitem__) == one["lower"], one
            assert queue.search(one["timestamp"], UPPER, times.__getitem__) == one["upper"], one


def test_rocketmqs_record_checksums_are_right_and_ours_would_be_the_same(unpacked: Path) -> None:
    """D7: in s14 each record carries the checksum of the whole."""
    found = list(all_records(unpacked / "s14-crc"))
    assert all(record.has_crc(one) for one in found)
    for one in found:
        record.verify(record.encode(one), 0, one.physical_offset, protected=True)


def test_a_store_of_rocketmq_is_not_opened_for_writing(unpacked: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"written by Apache RocketMQ.*empty directory"):
        Store.open(RealDisk(), str(unpacked / "s01-plain"), StoreSettings(HOST))
    (tmp_path / "dledger-n0").mkdir()
    with pytest.raises(StoreError, match="DLedger"):
        Store.open(RealDisk(), str(tmp_path), StoreSettings(HOST))


def test_a_directory_that_is_no_store_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store directory"):
        read_segments(str(tmp_path))
