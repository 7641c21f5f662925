"""Positions of streams, as Spark asks for them: the readers alone, without Java."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark: pip install 'rmq[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from analytics.spark.source import RmqDataSource
from rmq.client import Client, Message, MessageQueue
from rmq.client.admin import calls
from rmq.errors import InvalidArgument, StoreError
from rmq.net.commands import UpdateTopic
from tests.analytics.brokers import running_broker
from tests.analytics.remote import NO_S3, upload
from tests.analytics.stores import Sent, live, write_store
from tests.broker.groups import GROUP, LocalGroup, OwnDisk

NUMBERS = StructType([StructField("queue_offset", LongType())])
ALL = ReadAllAvailable()


def stream(**options: str) -> Any:
    return RmqDataSource(options).streamReader(NUMBERS)


def rows(reader: Any, start: Any, end: Any) -> list[int]:
    """After a way through JSON, as checkpoints have them."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    tasks = [reader.read(part) for part in reader.partitions(start, end)]
    return sorted(number for task in tasks for batch in task for number in batch.column(0).to_pylist())


def test_over_files(tmp_path: Path) -> None:
    """Where a stream begins, what a trigger takes, what happens when retention took something, or the path leads elsewhere."""
    path = str(tmp_path / "store")
    with live(tmp_path / "store", group="orders") as store:
        store.put("T", [b"%300d" % n for n in range(50)])
        assert rows(stream(path=path), start := stream(path=path).initialOffset(), start) == []
        start = stream(path=path, startingOffsets='{"T": {"0": 45}}').initialOffset()
        resumed = stream(path=path)
        assert rows(resumed, start, resumed.latestOffset(start, ALL)) == [*range(45, 50)], "the position knows it"

        reader = stream(path=path, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        first = reader.latestOffset(start := reader.initialOffset(), reader.getDefaultReadLimit())
        assert rows(reader, start, first) == [*range(20)]
        reader.prepareForTriggerAvailableNow()
        store.put("T", [b"%300d" % n for n in range(50, 150)])
        last = reader.latestOffset(first, ALL)
        assert rows(reader, first, last) == [*range(20, 50)]
        assert reader.latestOffset(last, ALL) == last, "what came later is not available now"

        store.retain(4)
        for wrong in (stream(path=path).partitions, lambda start, end: stream(path=path).latestOffset(start, ReadMaxRows(5))):
            with pytest.raises(StoreError, match="were not read yet and are gone, retention took them"):
                wrong(first, last)
        lossy = stream(path=path, failOnDataLoss="false")
        left = rows(lossy, last, lossy.latestOffset(last, ALL))
        assert left == [*range(left[0], 150)]
        ahead = {"log": {"orders": 1 << 40}}
        with pytest.raises(StoreError, match="a copy that is behind, or another store"):
            stream(path=path).latestOffset(ahead, ALL)
        assert lossy.latestOffset(ahead, ALL) == ahead
        nightly = stream(path=path)
        nightly.prepareForTriggerAvailableNow()
        with pytest.raises(StoreError, match="a copy that is behind, or another store"):
            nightly.latestOffset(ahead, ALL)
    with live(tmp_path / "else", group="events"), pytest.raises(InvalidArgument, match="the checkpoint is of orders"):
        stream(path=str(tmp_path / "else")).latestOffset(last, ALL)
    with pytest.raises(InvalidArgument, match="is of a stream over files"):
        stream(nameservers="127.0.0.1:9", subscribe="T").partitions(last, last)


def test_over_several_logs(tmp_path: Path) -> None:
    """Copies of one count once; each has its share of a trigger; one that comes later is read from its beginning."""

    def follow(position: Any = None) -> tuple[list[int], Any]:
        reader, found = stream(path=f"{tmp_path}/*", startingOffsets="earliest", maxOffsetsPerTrigger="12"), list[int]()
        position = position or reader.initialOffset()
        while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
            new = rows(reader, position, end)
            assert len(new) <= 12
            found += new
            position = end
        return sorted(found), position

    with live(tmp_path / "a", group="orders") as orders, live(tmp_path / "b", group="events") as events:
        orders.put("T", [b"%300d" % n for n in range(50)])
        events.put("T", [b"%300d" % n for n in range(9)])
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        found, position = follow()
        assert found == sorted([*range(50), *range(9)])
        assert list(position["log"]) == ["events", "orders"]
        orders.put("T", [b"x"] * 2)
        with live(tmp_path / "c", group="later") as later:
            later.put("T", [b"x"] * 30)
            found, position = follow(position)
            assert found == sorted([50, 51, *range(30)])
    with pytest.raises(InvalidArgument, match="the checkpoint is of later, orders, the path leads to events"):
        stream(path=str(tmp_path / "b")).latestOffset(position, ALL)
    with pytest.raises(InvalidArgument, match='"startingOffsets" is of one log'):
        stream(path=f"{tmp_path}/[ab]", startingOffsets='{"T": {"0": 5}}').initialOffset()


def test_a_log_that_goes_on_otherwise_than_it_was_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A slave was promoted without the last messages, or a backup put in place: a stream passed over the new ones there."""
    backup, asked = tmp_path / "backup", {"path": str(tmp_path / "now"), "startingOffsets": "earliest"}
    with live(tmp_path / "now", group="orders") as store:
        store.put("T", [b"%300d" % n for n in range(3)])
        shutil.copytree(tmp_path / "now", backup)
        store.put("T", [b"%300d" % n for n in range(3, 6)])
        reader = stream(**asked)
        end = reader.latestOffset(start := reader.initialOffset(), ALL)
        assert rows(reader, start, end) == [*range(6)]
    with live(tmp_path / "now", group="orders") as store:  # it was restarted, which begins an epoch
        store.put("T", [b"x" * 300])
        assert rows(stream(**asked), end, stream(**asked).latestOffset(end, ALL)) == [6]
    with live(backup, group="orders") as store:
        store.put("T", [b"y" * 300] * 9)
    (tmp_path / "now").rename(tmp_path / "before")
    backup.rename(tmp_path / "now")
    for again in (lambda: stream(**asked).latestOffset(end, ALL), lambda: stream(**asked).partitions(start, end)):
        with pytest.raises(StoreError, match="another log of orders than the one that was read .* give a new checkpointLocation"):
            again()
    assert not caplog.messages
    lossy = stream(**asked, failOnDataLoss="false", maxOffsetsPerTrigger="4")
    assert rows(lossy, start, end) == [*range(3)], "a trigger that was planned before"
    later = lossy.latestOffset(end, lossy.getDefaultReadLimit())
    assert rows(lossy, end, later) == [*range(3, 7)]
    assert "the stream reads on where they part" in caplog.text
    for reader in (lossy, stream(**asked)):
        assert rows(reader, later, reader.latestOffset(later, ALL)) == [*range(7, 12)], "which is its log from then on"
    with live(tmp_path / "anew", group="orders") as store:
        store.put("T", [b"z" * 300] * 20)
    asked["path"] = str(tmp_path / "anew")
    with pytest.raises(StoreError, match="or made anew"):
        stream(**asked).latestOffset(end, ALL)
    lossy = stream(**asked, failOnDataLoss="false")
    assert rows(lossy, end, lossy.latestOffset(end, ALL)) == [*range(20)]


def test_a_log_that_goes_on_otherwise_and_is_shorter_so_far(tmp_path: Path) -> None:
    """Where loss is no error, what a promoted slave stored was read only when its log was longer than the other had been."""
    asked = {"path": str(tmp_path / "now"), "failOnDataLoss": "false", "startingOffsets": "earliest"}
    with live(tmp_path / "now", group="orders") as store:
        store.put("T", [b"x"])
    shutil.copytree(tmp_path / "now", tmp_path / "slave")
    with live(tmp_path / "now", group="orders") as store:
        store.put("T", [b"%3000d" % n for n in range(9)])
        end = stream(**asked).latestOffset(stream(**asked).initialOffset(), ALL)
    for _ in range(2):  # it leads in a later epoch
        with live(tmp_path / "slave", group="orders") as store:
            pass
    (tmp_path / "now").rename(tmp_path / "before")
    (tmp_path / "slave").rename(tmp_path / "now")
    with live(tmp_path / "now", group="orders") as store:
        store.put("T", [b"y"])
        later = stream(**asked).latestOffset(end, ALL)
        assert rows(stream(**asked), end, later) == [1]
        assert stream(**asked).latestOffset(later, ALL) == later
        store.put("T", [b"z"])
        assert rows(stream(**asked), later, stream(**asked).latestOffset(later, ALL)) == [2]


def test_a_copy_that_is_behind_for_a_while_changes_no_position(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With another log beside it, its position took the epoch of the copy: with the full log again a stream for which loss is no
    error read again all of that log's last epoch."""
    asked = {"path": f"{tmp_path}/[ab]", "failOnDataLoss": "false", "startingOffsets": "earliest"}
    with live(tmp_path / "a", group="orders") as store:
        store.put("T", [b"%300d" % n for n in range(3)])
        shutil.copytree(tmp_path / "a", tmp_path / "behind")
    with live(tmp_path / "a", group="orders") as store:
        store.put("T", [b"%300d" % n for n in range(3)])
    with live(tmp_path / "b", group="events") as other:
        end = stream(**asked).latestOffset(stream(**asked).initialOffset(), ALL)
        (tmp_path / "a").rename(tmp_path / "full")
        (tmp_path / "behind").rename(tmp_path / "a")
        other.put("T", [b"x"])
        later = stream(**asked).latestOffset(end, ALL)
        assert rows(stream(**asked), end, later) == [0]
        assert later["epochs"]["orders"] == end["epochs"]["orders"]
        (tmp_path / "a").rename(tmp_path / "behind")
        (tmp_path / "full").rename(tmp_path / "a")
        other.put("T", [b"y"])
        assert rows(stream(**asked), later, stream(**asked).latestOffset(later, ALL)) == [1]
    assert not caplog.messages


def test_a_log_made_anew_that_was_restarted_as_often_is_read_from_its_beginning(tmp_path: Path) -> None:
    """It was read on from the first epoch whose number the old log had not reached: all before that was passed over."""
    for number in range(2):
        with live(tmp_path / "now", group="orders") as store:
            store.put("T", [b"%300d" % number])
    asked = {"path": str(tmp_path / "now"), "startingOffsets": "earliest"}
    end = stream(**asked).latestOffset(stream(**asked).initialOffset(), ALL)
    for number in range(3):
        with live(tmp_path / "anew", group="orders") as store:
            store.put("T", [b"%300d" % number] * 5)
    lossy = stream(**asked | {"path": str(tmp_path / "anew")}, failOnDataLoss="false")
    assert rows(lossy, end, lossy.latestOffset(end, ALL)) == [*range(15)]


def test_a_log_made_anew_of_messages_of_the_same_size_is_read_once(tmp_path: Path) -> None:
    """A trigger that would read as many as were read before went nowhere: its position was the one of before, again and again."""
    for name, count in (("now", 5), ("anew", 12)):
        with live(tmp_path / name, group="orders") as store:
            store.put("T", [b"%300d" % number for number in range(count)])
    asked = {"path": str(tmp_path / "now"), "startingOffsets": "earliest"}
    end = stream(**asked).latestOffset(stream(**asked).initialOffset(), ALL)
    lossy = stream(**asked | {"path": str(tmp_path / "anew")}, failOnDataLoss="false")
    later = lossy.latestOffset(end, ReadMaxRows(5))
    assert rows(lossy, end, later) == [*range(5)]
    assert rows(lossy, later, lossy.latestOffset(later, ALL)) == [*range(5, 12)]


def test_over_logs_in_s3(tmp_path: Path, s3: str) -> None:
    """Two logs that lie there, and later a copy that has more of one."""
    if not s3:
        pytest.skip(NO_S3)
    base, _, query = s3.partition("?")
    place = f"{base}/{tmp_path.name}"

    def follow(position: Any = None) -> tuple[list[int], Any]:
        reader = stream(path=f"{place}/*?{query}", startingOffsets="earliest", maxOffsetsPerTrigger="20")
        start = position or reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        return rows(reader, start, end), end

    with live(tmp_path / "a", group="orders") as orders, live(tmp_path / "b", group="events") as events:
        orders.put("T", [b"%300d" % n for n in range(30)])
        events.put("T", [b"x"] * 10)
        for name in ("a", "b"):
            upload(tmp_path / name, f"{place}/{name}?{query}")
        found, position = follow()
        assert 15 <= len(found) <= 20
        orders.put("T", [b"x"] * 5)
        upload(tmp_path / "a", f"{place}/copy?{query}")
        more, position = follow(position)
        rest, _ = follow(position)
        assert sorted(found + more + rest) == sorted([*range(35), *range(10)])


async def send(client: Client, queue_id: int, count: int) -> None:
    async with client.producer() as producer:
        await producer.send_batch([Message("T", b"x") for _ in range(count)], queue=MessageQueue("T", "broker-a", queue_id))


def test_over_the_network() -> None:
    """A queue that comes later is read from its beginning: it is in a position with it before anything of it is read."""
    with running_broker() as broker:
        asked = {"nameservers": broker.nameserver, "subscribe": "T"}
        broker.run(lambda local: local.create_topic("T", queues=1))
        broker.ask(lambda client: send(client, 0, 10))
        reader = stream(**asked, maxOffsetsPerTrigger="4")
        try:
            latest = reader.initialOffset()
            assert latest["queues"] == {"T": {"broker-a": {"0": 10}}}
            start = {"queues": {"T": {"broker-a": {"0": 3}}}}
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            assert rows(reader, start, end) == [3, 4, 5, 6]
            assert rows(reader, start, reader.latestOffset(start, ALL)) == [*range(3, 10)]
        finally:
            reader.stop()
        broker.run(lambda local: local.create_topic("T", queues=2))
        broker.ask(lambda client: send(client, 1, 5))
        reader = stream(**asked)
        try:
            reader.prepareForTriggerAvailableNow()
            broker.ask(lambda client: send(client, 1, 5))
            found = reader.latestOffset(latest, ALL)
            assert found == {**latest, "queues": {"T": {"broker-a": {"0": 10, "1": 0}}}}
            assert rows(reader, latest, found) == []
            end = reader.latestOffset(found, ALL)
            assert rows(reader, found, end) == [*range(5)]
            assert reader.latestOffset(end, ALL) == end, "what came later is not available now"
        finally:
            reader.stop()


def test_other_messages_with_the_offsets_of_those_that_were_read(caplog: pytest.LogCaptureFixture) -> None:
    """As of a topic that was made again, or of a log that lost its end. A stream went on in the midst of them."""
    with running_broker() as broker:
        asked = {"nameservers": broker.nameserver, "subscribe": "T", "startingOffsets": "earliest"}
        broker.run(lambda local: local.create_topic("T", queues=1))
        broker.ask(lambda client: send(client, 0, 10))
        reader, lossy = stream(**asked), stream(**asked, failOnDataLoss="false")
        try:
            end = reader.latestOffset(start := reader.initialOffset(), ALL)
            assert rows(reader, start, end) == [*range(10)]
            broker.ask(lambda client: calls.delete_topic(client, "T", broker="broker-a"))
            broker.run(lambda local: local.create_topic("T", queues=1))
            broker.ask(lambda client: send(client, 0, 20))
            with pytest.raises(StoreError, match="T, queue 0 at broker-a has other messages than those that were read"):
                reader.latestOffset(end, ALL)
            old = {"queues": end["queues"]}  # as of a checkpoint from before places were kept
            assert rows(reader, old, reader.latestOffset(old, ALL)) == [*range(10, 20)]
            assert not caplog.messages
            later = lossy.latestOffset(end, ALL)
            assert rows(lossy, end, later) == [*range(10, 20)]
            assert "the stream goes on where it is" in caplog.text
            broker.ask(lambda client: send(client, 0, 5))
            assert rows(reader, later, reader.latestOffset(later, ALL)) == [*range(20, 25)]
        finally:
            reader.stop()
            lossy.stop()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nameservers": "127.0.0.1:9"}, "say which topics"),
        ({"nameservers": "127.0.0.1:9", "subscribe": "T", "path": "/s"}, "read files, or ask brokers"),
        ({"nameservers": "127.0.0.1:9", "subscribe": "T", "onDamage": "skip"}, "nothing that is damaged"),
        ({"nameservers": "127.0.0.1:9", "subscribe": "T", "group": "a b"}, "a b"),
        ({"path": "/s", "group": "g"}, "give nameservers, too"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        stream(**options)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(InvalidArgument, match="messages are only added"):
        RmqDataSource({"nameservers": "127.0.0.1:9", "topic": "T"}).writer(NUMBERS, True)


async def test_over_a_change_of_leader(tmp_path: Path) -> None:
    """What one leader said is there, another one gives: a trigger that is read when nobody leads, and one after it."""
    async with LocalGroup(tmp_path, disks={f"n{number}": OwnDisk() for number in range(3)}) as group:
        peer = await group.connect(await group.leader())
        await peer.ask(UpdateTopic("T", read_queue_nums=2, write_queue_nums=2))
        reader = stream(nameservers=group.nameserver, subscribe="T", startingOffsets="earliest")
        try:
            start, read = await asyncio.to_thread(reader.initialOffset), list[int]()
            for number in range(3):
                async with group.client() as client, client.producer() as producer:
                    for queue_id in (0, 1):
                        queue = MessageQueue("T", GROUP, queue_id)
                        await producer.send_batch([Message("T", b"%d" % n) for n in range(20)], queue=queue)
                end = await asyncio.to_thread(reader.latestOffset, start, ALL)
                if number == 1:
                    await group.stop(await group.leader())
                reading = asyncio.create_task(asyncio.to_thread(rows, reader, start, end))
                if number == 1:
                    await group.clock.advance(3.0)  # the patience of the others
                read += await reading
                start = end
        finally:
            await asyncio.to_thread(reader.stop)
        assert sorted(read) == sorted([*range(60), *range(60)])


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_workers_in_another_directory_and_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Where loss is allowed, a store that a worker does not have was one whose files retention had taken: no rows, no error."""
    write_store(tmp_path / "store", [Sent("T", b"x")] * 5)
    monkeypatch.chdir(tmp_path)
    if kind == "table":
        reader = RmqDataSource({"path": "store", "failOnDataLoss": "false"}).reader(NUMBERS)
        tasks = list(reader.partitions())
    else:
        reader = stream(path="store", failOnDataLoss="false", startingOffsets="earliest")
        start = reader.initialOffset()
        tasks = list(reader.partitions(start, reader.latestOffset(start, ALL)))
    monkeypatch.chdir("/")
    assert sum(len(batch) for task in tasks for batch in reader.read(task)) == 5
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is not on the machine of this worker"):
        next(iter(reader.read(tasks[0])))
