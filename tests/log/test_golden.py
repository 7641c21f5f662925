"""Stores that Apache RocketMQ wrote: read completely, encoded again byte for byte, queues rebuilt equal."""

import hashlib
import zlib
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from rmq.errors import StoreError
from rmq.log.files.memory import MemoryDisk
from rmq.log.queues.consumequeue import LOWER, UPPER
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.reader import committed_end, read_records, read_segments
from rmq.log.records import record
from rmq.log.records.innerbatch import is_inner_batch
from rmq.log.records.record import Record
from tests.golden import ADOPTED, SETS, WITH_LOG, after, all_records, later, setting, told, unpack


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    for name in WITH_LOG:
        unpack(name, folder)
    return folder


@pytest.mark.parametrize("name", WITH_LOG)
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


@pytest.mark.parametrize("name", WITH_LOG)
def test_every_field_is_what_rocketmq_says(unpacked: Path, name: str) -> None:
    found = {(one.topic, one.queue_id, one.queue_offset): one for one in all_records(unpacked / name)}
    compared = 0
    for queues in after(name).get("messages", {}).values():
        for message in (message for messages in queues.values() for message in messages):
            key = (message["topic"], message["queueId"], message["queueOffset"])
            if key not in later(name) and message["storeSize"]:  # 0: the client unpacked it from an inner batch
                compare(found[key], message)
                compared += 1
    assert compared or "messages" not in after(name)


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


def queues_of(records: list[Record], disk: MemoryDisk, entries: int, batch_entries: int = 1000) -> ConsumeQueues:
    """As dispatch fills them."""
    log = {one.physical_offset: one for one in records}
    queues = ConsumeQueues(disk, "/q", entries, batch_entries)
    queues.read = lambda offset, _: record.encode(log[offset])
    for one in records:
        if is_inner_batch(one):
            queues.hold_batches(one.topic)
        for topic, queue_id, number in record.queue_places(one):
            queue = queues.get(topic, queue_id)
            queue.put_many(number, one.physical_offset, (one.total_size,), (record.entry_code(one),))
    return queues


@pytest.mark.parametrize("name", WITH_LOG)
def test_consume_queues_rebuilt_from_the_log_are_the_same_files(unpacked: Path, name: str) -> None:
    """D10: the queues are derived from the log; ours are RocketMQ's byte for byte, from the first record that is still there."""
    disk, file_bytes, checked = MemoryDisk(), setting(name, "mappedFileSizeConsumeQueue"), told(name)["checked"]
    batch_bytes = setting(name, "mapperFileSizeBatchConsumeQueue") if "innerbatch" in name else 46
    records = list(all_records(unpacked / name))
    queues = queues_of(records, disk, file_bytes // 20, batch_bytes // 46)
    queues.flush()
    compared = 0
    for queue in queues.all():
        for path in [path for path in disk.paths() if f"/{queue.topic}/{queue.queue_id}/" in path]:
            content = bytes(disk.content(path))
            written = max(queue.min * 20 - int(path[-20:]), 0)  # before: blanks, or entries of what is expired
            assert content[written:] == (unpacked / name / path.removeprefix("/q/")).read_bytes()[written:], path
            compared += queue.holds_batches
    counted = sum(queue.max - queue.min for queue in queues.all() if not queue.holds_batches)
    assert counted == checked["cqEntries"] or records[0].physical_offset > 0
    assert bool(compared) == ("batchCqEntries" in checked)


@pytest.mark.parametrize("name", [name for name in ADOPTED if any("lower" in one for one in after(name).get("byTimestamp", ()))])
def test_offsets_by_time_are_those_of_rocketmq_5(unpacked: Path, name: str) -> None:
    records = list(all_records(unpacked / name))
    queues, times = queues_of(records, MemoryDisk(), 1000), {one.physical_offset: one.store_timestamp for one in records}
    grown = {(topic, queue_id) for topic, queue_id, _ in later(name)}
    for one in after(name)["byTimestamp"]:
        queue = queues.find(one["topic"], one["queueId"])
        if queue and queue.holds_batches and one["timestamp"] not in times.values():
            continue  # between two records, and behind all, RocketMQ answers 0 or the last one: not what the request asks
        if queue and queue.max and "lower" in one and (one["topic"], one["queueId"]) not in grown:
            assert queue.search(one["timestamp"], LOWER, times.__getitem__) == one["lower"], one
            assert queue.search(one["timestamp"], UPPER, times.__getitem__) == one["upper"], one


@pytest.mark.skipif("s14-crc" not in SETS, reason="no set with checksums of whole records")
def test_rocketmqs_record_checksums_are_right_and_ours_would_be_the_same(unpacked: Path) -> None:
    """D7: in s14 each record carries the checksum of the whole."""
    found = list(all_records(unpacked / "s14-crc"))
    assert all(record.has_crc(one) for one in found)
    for one in found:
        record.verify(record.encode(one), 0, one.physical_offset, protected=True)


def test_a_directory_that_is_no_store_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store directory"):
        read_segments(str(tmp_path))
