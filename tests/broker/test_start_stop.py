"""Starting, stopping, starting again: what is kept, what is told, and that a failed start leaves nothing behind."""

import asyncio
import json
import logging
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from rmq.broker.feature import Export
from rmq.broker.features import upkeep
from rmq.broker.features.exports import Exports
from rmq.broker.node import Broker
from rmq.broker.tables.snapshot import SnapshotService
from rmq.client import Message
from rmq.clock import SystemClock
from rmq.config.settings import NodeSettings
from rmq.errors import StoreError
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.index.indexfile import IndexFile
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.model import GroupConfig
from rmq.net.commands import (
    DeleteTopic,
    GetClusterInfo,
    GetGroupConfig,
    GetTopicConfig,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.staged import Between
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.conftest import Connect
from tests.broker.support import Peer, bodies, copy_of_running, send, small_node
from tests.broker.test_query import keyed, query
from tests.ports import free_port


def settings(store: Path, port: int = 0) -> NodeSettings:
    return small_node(store, listen_port=port)


async def epoch_of(broker: LocalBroker) -> int:
    peer = await Peer.connect(broker.nameserver)
    (found,) = (await peer.ask(GetClusterInfo())).brokers
    await peer.close()
    return int(found.epoch)


async def test_a_restart_keeps_topics_groups_and_messages_and_begins_an_epoch(
    broker: LocalBroker, connect: Connect, peer: Peer
) -> None:
    """C5, N2."""
    await peer.ask(UpdateTopic("N", read_queue_nums=3, write_queue_nums=2, attributes="+message.type=FIFO"))
    await peer.ask(UpdateGroup(GroupConfig("g", retry_max_times=3)))
    await peer.send(send("N", b"before", count=3))
    topic, first = await peer.ask(GetTopicConfig("N")), await epoch_of(broker)
    for restart in (1, 2):
        await broker.stop_broker()
        await broker.start_broker()
        assert await epoch_of(broker) == first + restart
        peer = await connect(broker)
        assert await peer.ask(GetTopicConfig("N")) == topic
        assert (await peer.ask(GetGroupConfig("g"))).retry_max_times == 3
        assert bodies(await peer.pull("N", 0)) == [b"before"] * 3
    assert (await peer.send(send("N")))[0].queue_offset == 3


async def test_deleted_topics_stay_deleted_over_a_restart(broker: LocalBroker, connect: Connect, peer: Peer) -> None:
    await peer.send(send("N", b"old", count=3))
    await peer.ask(UpdateConsumerOffset("g", "N", 0, 3))
    await peer.ask(DeleteTopic("N"))
    await broker.stop_broker()
    await broker.start_broker()
    again = await connect(broker)
    assert (await again.send(send("N", b"new")))[0].queue_offset == 0
    assert bodies(await again.pull("N", 0)) == [b"new"]


async def test_others_have_their_turn_while_progress_is_saved(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10 000 queues the loop stood still for 20 ms every 10 s."""
    monkeypatch.setattr(upkeep, "TRIM_QUEUES", 10)
    async with broker.client() as client, client.producer() as producer:
        for number in range(25):
            await producer.send(Message(f"T{number}", b"x"))
    queues = len(broker.serving.store.queues.all())
    assert queues >= 25
    turns, trimmed = 0, list[int]()

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    usual = ConsumeQueue.trim
    monkeypatch.setattr(ConsumeQueue, "trim", lambda queue, kept=0: (trimmed.append(turns), usual(queue, kept)))
    running = asyncio.create_task(others())
    await broker.clock.advance(upkeep.PROGRESS_S + 1)
    await until(lambda: len(trimmed) >= queues)
    running.cancel()
    assert max(Counter(trimmed).values()) <= 10


async def test_exports_have_the_shape_of_apache_rocketmqs_files(broker: LocalBroker, peer: Peer) -> None:
    await peer.ask(UpdateGroup(GroupConfig("g")))
    await peer.send(send("T", queue_id=1, count=50))
    await peer.ask(UpdateConsumerOffset("g", "T", 1, 42))
    await broker.stop_broker()

    def exported(name: str) -> Any:
        return json.loads((broker.store_dir / "config" / name).read_text())

    assert exported("topics.json")["topicConfigTable"]["T"] == {
        "attributes": {}, "order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": "T",
        "topicSysFlag": 0, "writeQueueNums": 4,
    }  # fmt: skip
    group = exported("subscriptionGroup.json")["subscriptionGroupTable"]["g"]
    assert (group["groupName"], group["consumeEnable"], group["retryMaxTimes"]) == ("g", True, 16)
    assert exported("consumerOffset.json")["offsetTable"] == {"T@g": {"1": 42}}
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        assert exported(name)["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
        assert not (broker.store_dir / "config" / f"{name}.new").exists()


@pytest.mark.parametrize("rows", [0, 1, 255, 256, 257, 1000])
async def test_large_exports_are_written_in_pieces_as_they_would_be_in_one(tmp_path: Path, rows: int) -> None:
    """Nothing else runs while a piece is written."""
    table = {"version": {"counter": 1}, "rows": {f"k{n * 7919 % 1000}": {"a": {}, "b": [n, {"c": 'q"\n'}]} for n in range(rows)}}
    value = {**table, "a": 5, "numbers": {str(n): n for n in range(rows)}, "none": {}}

    def made(between: Between) -> dict[str, Any]:
        return {**value, "rows": dict(between(table["rows"].items()))}

    exports = Exports(tmp_path, {"x.json": Export(lambda: made)}, lambda: None)
    await exports.save()
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    assert (tmp_path / "x.json").read_bytes() == orjson.dumps(value, option=options)


async def test_a_table_that_did_not_change_is_not_looked_at(tmp_path: Path) -> None:
    """With 10 000 topics each look took 30 ms of the interpreter, every 5 s."""
    version, looks = [1], 0

    def value() -> object:
        nonlocal looks
        looks += 1
        return {"looks": looks}

    (tmp_path / "config").write_text("in the way")
    exports = Exports(tmp_path / "config", {"x.json": Export(value, lambda: version[0])}, lambda: None)
    with pytest.raises(StoreError):
        await exports.save()
    (tmp_path / "config").unlink()
    for _ in range(3):
        await exports.save()
    assert (looks, orjson.loads((tmp_path / "config" / "x.json").read_bytes())) == (2, {"looks": 2})
    version[0] = 2
    await exports.save()
    assert looks == 3


async def test_a_file_that_cannot_be_exported_keeps_no_other_from_it(tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    exports = Exports(tmp_path, {"a.json": Export(lambda: {"deep": deep}), "b.json": Export(lambda: {"x": 1})}, lambda: None)
    with pytest.raises(StoreError, match=r"a\.json"):
        await exports.save()
    assert orjson.loads((tmp_path / "b.json").read_bytes()) == {"x": 1}


async def test_exports_that_cannot_be_written_are_told_once_and_do_not_stop_the_broker(
    broker: LocalBroker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """D14: the store itself is well, and so is everybody who uses it."""
    caplog.set_level(logging.INFO)
    (broker.store_dir / "config").write_text("in the way")
    await peer.send(send("T"))
    await broker.clock.advance(6)
    await until(lambda: "exports: cannot write" in caplog.text)
    await broker.clock.advance(30)
    assert caplog.text.count("exports: cannot write") == 1
    (broker.store_dir / "config").unlink()
    await broker.clock.advance(6)
    await until(lambda: "exports: works again" in caplog.text)
    assert (broker.store_dir / "config" / "topics.json").exists()
    assert (await peer.send(send("T")))[0].queue_offset == 1


async def test_a_second_broker_on_the_same_store_is_refused(broker: LocalBroker, peer: Peer) -> None:
    """D16: and the first one goes on undisturbed."""
    second = Broker(settings(broker.store_dir), SystemClock())
    with pytest.raises(StoreError, match="in use|locked|another process|use"):
        await second.start()
    assert (await peer.send(send("T")))[0].queue_offset == 0


async def test_a_start_that_fails_leaves_nothing_running_and_nothing_locked(broker: LocalBroker, tmp_path: Path) -> None:
    """The port is taken: found out last, when everything else runs."""
    before = asyncio.all_tasks()
    for _ in range(2):
        with pytest.raises(OSError, match=r"in use|98"):
            await Broker(settings(tmp_path, int(broker.address.split(":")[1])), SystemClock()).start()
        assert {task for task in asyncio.all_tasks() - before if not task.done()} == set()
    free = Broker(settings(tmp_path), SystemClock())
    await free.start()
    await free.stop()
    assert not (tmp_path / "abort").exists(), "stopped in order"


async def test_a_nameserver_that_is_away_delays_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """N3: the broker serves, and says so once."""
    broker = Broker(small_node(tmp_path, namesrv_addresses=("127.0.0.1:1",)), SystemClock())
    await broker.start()
    peer = await Peer.connect(broker.address)
    assert (await peer.send(send("N")))[0].queue_offset == 0
    await peer.close()
    await broker.stop()
    assert caplog.text.count("nameserver 127.0.0.1:1 does not take this broker") == 1


async def test_a_nameserver_that_refuses_a_broker_is_told_once(
    broker: LocalBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try has a request of its own, and its number was part of what was compared: a line every 2 s, for good."""
    caplog.set_level(logging.INFO)
    clock = TestClock()
    twin = Broker(small_node(tmp_path, namesrv_addresses=(broker.nameserver,)), clock)
    await twin.start()
    await clock.advance_until(lambda: caplog.text.count("refused: broker-a: ") >= 9)  # by the nameserver
    await twin.stop()
    assert caplog.text.count("refuses this broker") == 1


async def test_progress_is_saved_soon_after_the_start(tmp_path: Path) -> None:
    """Nodes that were killed every few seconds dispatched more at each start, and stood for election meanwhile."""
    async with LocalBroker(store_dir=tmp_path, clock=TestClock(running=False)) as broker:
        peer = await Peer.connect(broker.address)
        await peer.send(send("N", b"x" * 5000))
        await broker.clock.advance(3.0)
        await until(lambda: saved_end(tmp_path) > 5000)
        await peer.close()


def saved_end(store: Path) -> int:
    found = ownfiles.load_progress(RealDisk(), str(store / "rmq"))
    return found.hw if found is not None else 0


async def test_the_operator_is_told_what_opening_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D6: one sentence, and a warning with the number of bytes where a torn tail was cut."""
    caplog.set_level(logging.INFO)
    broker = Broker(settings(tmp_path / "store"), SystemClock())
    await broker.start()
    peer = await Peer.connect(broker.address)
    await peer.send(send("N", b"x" * 5000))
    killed = copy_of_running(tmp_path / "store", tmp_path / "as a kill would leave it")
    await peer.close()
    await broker.stop()
    segment = killed / "commitlog" / f"{0:020d}"
    content = segment.read_bytes()
    segment.write_bytes(content.rstrip(b"\0")[:-2500].ljust(len(content), b"\0"))
    caplog.clear()
    again = Broker(settings(killed), SystemClock())
    await again.start()
    await again.stop()
    text = caplog.text
    assert "the last run did not stop in order" in text
    assert re.search(r"WARNING .* 26\d\d bytes behind \d+ were cut off the log", text)
    assert "Report(" not in text


async def test_another_length_of_queue_files_makes_them_anew(tmp_path: Path) -> None:
    """RocketMQ starts only on files of the length it is told (mappedFileSizeConsumeQueue): larger, smaller and back."""
    for run, queue_file_bytes in enumerate((1000, 400, 6_000_000, 1000)):
        async with LocalBroker(store_dir=tmp_path / "store", queue_file_bytes=queue_file_bytes) as broker:
            peer = await Peer.connect(broker.address)
            first = (await peer.ask(send("T"))).queue_offset
            assert first == 10 * run
            for _ in range(9):
                await peer.ask(send("T"))
            assert len(bodies(await peer.pull("T", 0, max_msg_nums=32))) == min(first + 10, 32)
            await peer.close()
        files = list((tmp_path / "store" / "consumequeue" / "T" / "0").iterdir())
        assert {path.stat().st_size for path in files} == {queue_file_bytes}


@pytest.mark.parametrize("broken", [(IndexFile, "put"), (SnapshotService, "take"), (Exports, "save")])
async def test_what_is_wrong_with_something_derived_does_not_spoil_a_stop(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, broken: tuple[type, str]
) -> None:
    """The stop ends in order, the cause is told with its place, once, and the next start makes up for it."""

    def fail(*_arguments: object) -> None:
        raise KeyError("nobody foresaw this")

    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        with monkeypatch.context() as patch:
            patch.setattr(*broken, fail)
            peer = await connect(broker)
            await peer.ask(keyed("T", b"body", KEYS="k"))
            await broker.clock.advance(130)
            await broker.stop_broker()
            assert 1 <= len([one for one in caplog.records if one.exc_info]) <= 2, "the job's, and that of the stop"
        await broker.start_broker()
        peer = await connect(broker)
        assert len([*record.iterate((await peer.ask(query("T", "k"))).messages)]) == 1


async def test_old_clients_find_the_broker_two_ports_below(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ's VIP channel. Where that port is taken the broker serves all the same, and says so."""
    port = free_port()
    other = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port - 4)
    above, below = (Broker(settings(tmp_path / str(one), one), SystemClock()) for one in (port, port - 2))
    await above.start()
    peer = await Peer.connect(f"127.0.0.1:{port - 2}")
    await peer.ask(UpdateTopic("T"))
    await peer.close()
    await above.stop()
    await below.start()
    assert f"port {port - 4}, where old clients of RocketMQ look (VIP channel), is not served" in caplog.text
    await below.stop()
    other.close()


def modes(folder: Path) -> set[tuple[str, str]]:
    """(what, mode) of everything below."""
    return {("directory" if path.is_dir() else "file", f"{path.stat().st_mode & 0o777:04o}") for path in folder.rglob("*")}


def open_up(folder: Path) -> None:
    for path in folder.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)


async def test_the_files_of_a_store_are_the_brokers_alone(connect: Connect, tmp_path: Path) -> None:
    """S13: whatever the umask, and whatever an older release or a copy made of them."""
    private = {("directory", "0700"), ("file", "0600")}
    umask = os.umask(0)
    try:
        async with LocalBroker(store_dir=tmp_path / "store") as broker:
            await broker.create_topic("T", 1)
            peer = await connect(broker)
            await peer.ask(keyed("T", b"later", TIMER_DELAY_SEC="1000", KEYS="k"))
            await peer.ask(UpdateGroup(GroupConfig("g")))
            await broker.clock.advance(70)
            await broker.stop_broker()
            assert {"timerwheel", "config", "index", "consumequeue"} <= {path.name for path in broker.store_dir.iterdir()}
            assert modes(tmp_path) == private
            open_up(tmp_path)
            await broker.start_broker()
            assert modes(broker.store_dir) == private
    finally:
        os.umask(umask)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue/T", "config/topics.json", f"commitlog/{0:020d}", "rmq/vote"])
async def test_a_link_inside_a_store_is_not_followed(tmp_path: Path, name: str) -> None:
    async with LocalBroker(store_dir=tmp_path / "store") as broker:
        await broker.create_topic("T", 1)
        async with broker.client() as client:
            await client.producer("p").send(Message("T", b"body"))
        await broker.stop_broker()
        (broker.store_dir / name).rename(tmp_path / "elsewhere")
        (broker.store_dir / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match=f"{name} is a symbolic link"):
            await broker.start_broker()
        (broker.store_dir / name).unlink()
        (tmp_path / "elsewhere").rename(broker.store_dir / name)
        await broker.start_broker()


async def test_a_link_that_appears_while_the_broker_runs_is_not_written_through(
    broker: LocalBroker, peer: Peer, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (broker.store_dir / "config").mkdir(mode=0o700, exist_ok=True)
    (broker.store_dir / "config" / "topics.json.new").symlink_to(victim)
    (broker.store_dir / "rmq" / "progress.new").symlink_to(victim)
    await peer.ask(UpdateTopic("New", read_queue_nums=1, write_queue_nums=1))
    await broker.clock.advance(30)
    (broker.store_dir / "rmq" / "progress.new").unlink()
    await broker.stop_broker()
    assert victim.read_text() == "precious"
