"""Directories that Apache RocketMQ wrote: taken over with everything in them, or refused with the reason (story 57)."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq.broker.adoption import delays, tables as adopt
from rmq.broker.tables import snapshot
from rmq.broker.tables.tables import Tables
from rmq.client import Message
from rmq.delivery.cursors import BROADCAST, LMQ, PULL
from rmq.delivery.due import level_slot, timer_out_ms
from rmq.delivery.forbidden import READ
from rmq.delivery.groups import GroupTable
from rmq.delivery.offsets import OffsetKey, OffsetTable, offsets_json
from rmq.delivery.pairs import name_of
from rmq.errors import BadBytes, StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.files.epochs import ROCKETMQ_EPOCH
from rmq.log.queues.consumequeue import ENTRY
from rmq.log.records import record
from rmq.log.records.innerbatch import messages_in
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from rmq.model import DELAY_TOPIC, TIMER_TOPIC, GroupConfig, TopicConfig
from rmq.names import lite_queue
from rmq.routing.topics import TopicTable
from rmq.testing import LocalBroker, TestClock
from tests.broker.litepops import declare, take_lites
from tests.broker.support import Peer, everything
from tests.broker.test_delays import delayed
from tests.golden import ADOPTED, REFUSED, SETS, after, all_records, later, setting, told, unpack

HOST = record.host_bytes("127.0.0.1", 1)
WALL_MS = 1_800_000_000_000


def settings(name: str) -> StoreSettings:
    return StoreSettings(HOST, setting(name, "mappedFileSizeCommitLog"), group="broker-a", queue_file_entries=1000)


def adopted(name: str, root: Path) -> str:
    done = adopt.adopt(RealDisk(), str(root), settings(name), WALL_MS)
    assert done is not None
    return done


def opened(name: str, root: Path) -> tuple[Store, Tables]:
    store = Store.open(RealDisk(), str(root), settings(name))
    tables = Tables(TopicTable(), GroupTable(), OffsetTable())
    snapshot.load(tables.by_name, store)
    for stored in store.state_records():
        tables.note(stored)
    return store, tables


@pytest.fixture(scope="module", params=ADOPTED)
def taken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Store, Tables]]:
    """An adopted set: its name, its directory, and it opened again."""
    name = str(request.param)
    root = unpack(name, tmp_path_factory.mktemp("adopt"))
    adopted(name, root)
    store, tables = opened(name, root)
    assert store.recovered.clean, "an adopted store that was closed is one of ours"
    assert not store.adopting
    yield name, root, store, tables
    store.close()


Taken = tuple[str, Path, Store, Tables]


def test_every_record_is_there_as_it_was(taken: Taken) -> None:
    """D17: RocketMQ's bytes stay; behind them our epoch begins, and no other byte is claimed."""
    name, root, store, _ = taken
    theirs = {one.physical_offset: one for one in all_records(unpack(name, root.parent / "untouched"))}
    ours = {one.physical_offset: one for one in store.log.scan(store.log.start, store.log.end)}
    assert {offset: ours[offset] for offset in theirs} == theirs
    assert all(one.topic.startswith("rmq_sys_") for offset, one in ours.items() if offset not in theirs)
    end = max(offset + one.total_size for offset, one in theirs.items())
    assert [(entry.epoch, entry.start) for entry in store.epochs] == [(ROCKETMQ_EPOCH, min(theirs)), (1, end)]
    assert len(theirs) == told(name)["checked"]["records"]


def test_every_queue_is_what_rocketmq_says(taken: Taken) -> None:
    """D12, R18: each message under its number, minimum and maximum as RocketMQ's tools gave them."""
    name, _, store, _ = taken
    grown = {(topic, queue_id) for topic, queue_id, _ in later(name)}
    for topic, rows in after(name).get("queues", {}).items():
        for row in rows:
            if (topic, row["queueId"]) in grown or row["max"] == 0:
                continue
            queue = store.queues.find(topic, row["queueId"])
            assert queue is not None
            assert (queue.min if queue.max > queue.min else queue.max, queue.max) == (row["min"], row["max"]), row
    for topic, queues in after(name).get("messages", {}).items():
        for queue_id, messages in queues.items():
            expected = {m["queueOffset"]: m["physicalOffset"] for m in messages} if messages else {}
            stored = [message for one in store.records(topic, int(queue_id)) for message in messages_in(one)]
            found = {one.queue_offset: one.physical_offset for one in stored}
            assert found == {n: at for n, at in expected.items() if (topic, int(queue_id), n) not in later(name)}


def test_topics_groups_and_offsets_are_what_rocketmq_says(taken: Taken) -> None:
    name, _, _, tables = taken
    said = told(name)["before_stop"] if told(name).get("before_stop") else {}
    for topic, config in said.get("topicConfigs", {}).items():
        one = tables.topics.get(topic)
        assert one is not None, topic
        assert (one.read_queue_nums, one.write_queue_nums, one.perm, one.order) == (
            config["readQueueNums"],
            config["writeQueueNums"],
            config["perm"],
            config["order"],
        )
    for group, row in said.get("subscriptionGroups", {}).get("subscriptionGroupTable", {}).items():
        known = tables.groups.get(group)
        assert known is not None or "subscriptionGroup" not in " ".join(told(name)["files"]), group
        assert known is None or (known.retry_queue_nums, known.retry_max_times, known.consume_enable) == (
            row["retryQueueNums"],
            row["retryMaxTimes"],
            row["consumeEnable"],
        )
    expected = (said.get("consumerOffset") or {}).get("offsetTable", {})
    found = offsets_json(tables.offsets, tables.cursors)()["offsetTable"]
    exported = {key: {str(queue): at for queue, at in queues.items()} for key, queues in found.items()}
    for key, queues in expected.items():
        if not key.endswith("@CID_RMQ_SYS_TRANS"):  # RocketMQ's own; it went on until the stop
            assert exported.get(key) == queues, key


def test_offsets_of_kinds_that_rocketmq_keeps_apart_are_kept(taken: Taken) -> None:
    _, root, _, tables = taken
    for offsets_file in ("consumerOffset.json", "lmqConsumerOffset.json"):
        if (root / "config" / offsets_file).exists():
            value = adopt.parse_json((root / "config" / offsets_file).read_bytes())
            assert tables.cursors.of(PULL).keys() == (value.get("pullOffsetTable") or {}).keys()
            assert tables.cursors.of(BROADCAST).keys() == {n for n in value["offsetTable"] if n.endswith("@broadcast")}
            assert bool(tables.cursors.get(LMQ)) == offsets_file.startswith("lmq")


def test_what_waited_is_to_come_and_what_came_is_not(taken: Taken) -> None:
    """C13: what the restarted RocketMQ delivered itself is among it; once each, however often it was rolled."""
    name, _, store, tables = taken
    waiting = [source for slot in tables.due.below(store.log.end, 100) for source in slot]
    stored = {one.physical_offset: one for one in store.log.scan(store.log.start, store.log.end)}
    keys = [unique_key(stored[source.offset]) for source in waiting]
    assert len(set(keys)) == len(keys)
    held = (DELAY_TOPIC, TIMER_TOPIC)
    came_later = {row["UNIQ_KEY"] for row in after(name).get("writtenAfterRestart") or () if row["topic"] not in held}
    if name in ("s06-delay", "s15-timer", "s09-retry"):
        assert came_later <= set(keys)
        assert len(keys) == {"s06-delay": 17, "s15-timer": 63, "s09-retry": 1}[name]
    if name != "s09-retry":  # there the same message comes again
        assert not set(keys) & {unique_key(one) for one in stored.values() if not one.topic.startswith(("rmq_sys", *held))}


def unique_key(stored: record.Record) -> str:
    return record.bytes_to_properties(stored.properties).get("UNIQ_KEY", "")


@pytest.mark.parametrize("name", [name for name in SETS if name not in ADOPTED])
def test_what_cannot_be_served_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file() and path.name != "lock"}
    reason = next(reason for word, reason in REFUSED.items() if word in name)
    with pytest.raises(StoreError, match=reason):
        Store.open(RealDisk(), str(root), settings(name))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file() and path.name != "lock"} == before


def test_compacted_topics_are_taken_over_while_the_log_has_all_of_them(tmp_path: Path) -> None:
    """RocketMQ keeps their messages a second time, in files that are not read."""
    for name in ("s01-plain", "s12-retention"):
        root = unpack(name, tmp_path / name)
        (root / "compaction" / "compactionLog" / "T" / "0").mkdir(parents=True)
        if name == "s01-plain":
            adopted(name, root)
            continue
        with pytest.raises(StoreError, match="compacted topics.*Nothing was changed"):
            Store.open(RealDisk(), str(root), settings(name))


def test_a_queue_whose_records_are_all_expired_goes_on_counting(tmp_path: Path) -> None:
    """Story 33: s12's oldest segments are gone; what is sent now must not get a number that was given before."""
    root = unpack("s12-retention", tmp_path)
    adopted("s12-retention", root)
    store, _ = opened("s12-retention", root)
    queue = store.queues.get("s12-auto", 3)
    assert (queue.min, queue.next) == (2, 2)
    store.open_epoch(WALL_MS)
    draft = record.draft("s12-auto", b"new", b"", born_timestamp=1, born_host=HOST)
    store.log.append([Unit(draft, (len(draft),), (0,), queue)], WALL_MS)
    store.close()
    file = (root / "consumequeue" / "s12-auto" / "3" / f"{0:020d}").read_bytes()
    assert [ENTRY.unpack_from(file, n * 20)[1] for n in range(3)] == [0x7FFFFFFF, 0x7FFFFFFF, len(draft)]
    store, _ = opened("s12-retention", root)
    assert [one.body for one in store.records("s12-auto", 3)] == [b"new"]
    store.close()


async def test_a_node_takes_a_store_over_and_serves_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Story 57: the group goes on where it was under RocketMQ, new messages follow, and RocketMQ's tables are exported again."""
    root = unpack("s01-plain", tmp_path)
    said = after("s01-plain")["consumerOffset"]["offsetTable"]["s1-orders@CG_all"]
    waiting = sum(row["max"] for row in after("s01-plain")["queues"]["s1-orders"]) - sum(said.values())
    caplog.set_level("INFO", "rmq.broker")
    sizes = {"segment_bytes": setting("s01-plain", "mappedFileSizeCommitLog"), "max_message_bytes": 8192}
    async with LocalBroker(store_dir=root, **sizes) as broker:
        assert "176 records of 11 queues" in caplog.text
        async with broker.client() as client, client.producer() as producer:
            await producer.send(Message("s1-orders", b"new"))
            async with client.consumer("CG_all", topics={"s1-orders": "*"}) as consumer:
                got: list[bytes] = []
                while len(got) <= waiting:
                    got += [message.body for message in await consumer.receive(timeout=10)]
                await consumer.commit(sync=True)
        assert got.count(b"new") == 1
        await broker.stop_broker()
        exported = json.loads((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"]["s1-orders@CG_all"]
        assert sum(exported.values()) == sum(said.values()) + waiting + 1
        caplog.clear()
        await broker.start_broker()
        assert "adopted" not in caplog.text, "nobody else was here"


async def test_a_reader_of_lite_topics_goes_on_where_it_was(tmp_path: Path) -> None:
    """As RocketMQ 5.5.0 does after a restart: it keeps offsets and groups, not what is handed out or who declared what."""
    root = unpack("s24-lite", tmp_path)
    offsets, groups = (root / "config" / name for name in ("lmqConsumerOffset.json", "subscriptionGroup.json"))
    said = json.loads(offsets.read_bytes())
    said["groupTopicMap"]["readers"] = [lite_queue("s24-lite", "session-0"), lite_queue("s24-lite", "session-1")]
    said["offsetTable"] = {f"{said['groupTopicMap']['readers'][0]}@readers": {"0": 3}}
    said["offsetTable"] |= {f"{said['groupTopicMap']['readers'][1]}@readers": {"0": 0}}
    offsets.write_text(json.dumps(said))
    table = json.loads(groups.read_bytes())
    table["subscriptionGroupTable"]["readers"] = {"groupName": "readers", "attributes": {"lite.bind.topic": "s24-lite"}}
    groups.write_text(json.dumps(table))
    fields = {"client": "phone", "group": "readers", "topic": "s24-lite"}
    sizes = {"segment_bytes": setting("s24-lite", "mappedFileSizeCommitLog"), "max_message_bytes": 8192}
    async with LocalBroker(store_dir=root, light_queues=True, light_dispatch=True, **sizes) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(declare("session-0", "session-1", **fields))
        got = sorted((one.lite, one.offset, one.body) for one in await take_lites(peer.ask, **fields))
        ahead = [("session-0", number, b"lite %d" % (3 * number)) for number in (3, 4)]
        assert got == ahead + [("session-1", number, b"lite %d" % (3 * number + 1)) for number in range(5)]
        await peer.close()


def test_what_waited_by_another_list_of_delays_keeps_to_it(tmp_path: Path) -> None:
    """messageDelayLevel of the broker that wrote it. What we noted by the usual one does not count."""
    root, day_ms = unpack("s06-delay", tmp_path), 86_400_000
    assert adopt.adopt(RealDisk(), str(root), settings("s06-delay"), WALL_MS, (day_ms,) * 18) is not None
    store, tables = opened("s06-delay", root)
    waiting = [source for slot in tables.due.below(store.log.end, 100) for source in slot]
    stored = {one.physical_offset: one for one in store.log.scan(store.log.start, store.log.end)}
    assert len({unique_key(stored[source.offset]) for source in waiting}) == len(waiting) == 17
    for source in waiting:
        assert source.due_ms == level_slot(stored[source.offset].store_timestamp, day_ms)
    store.close()


@pytest.mark.parametrize(("name", "topic", "waiting"), [("s06-delay", "s6-delay", 17), ("s15-timer", "s15-timer", 60)])
async def test_what_waited_under_rocketmq_comes_in_time_once(tmp_path: Path, name: str, topic: str, waiting: int) -> None:
    """C13: the clock goes on where RocketMQ stopped; a second start delivers nothing again."""
    root = unpack(name, tmp_path)
    clock = TestClock(wall_ms=told(name)["stoppedAtMs"])
    segment_bytes = setting(name, "mappedFileSizeCommitLog")
    async with LocalBroker(
        store_dir=root, clock=clock, idle_timeout_ms=86_400_000, segment_bytes=segment_bytes, max_message_bytes=8192
    ) as broker:
        peer = await Peer.connect(broker.address)

        async def came() -> list[record.Record]:
            queues = [await everything(peer, topic, queue_id) for queue_id in range(3)]
            return [one for queue in queues for one in queue if b"RMQ_SRC" in one.properties]

        while len(found := await came()) < waiting:
            clock.jump_wall(20_000)
            await clock.advance(0.2)
        for one in found:
            said = record.bytes_to_properties(one.properties)
            assert int(said["RMQ_SRC"].split()[2]) <= one.store_timestamp
        await peer.close()
        await broker.stop_broker()
        await broker.start_broker()
        clock.jump_wall(86_400_000)
        await clock.advance(2)
        peer = await Peer.connect(broker.address)
        assert len(await came()) == waiting
        await peer.close()


async def test_what_rocketmq_delivered_of_ours_does_not_come_again(tmp_path: Path) -> None:
    """Stories 56, 57: its positions count for what waited; what we had delivered before does not wait again behind them."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        at = broker.clock.wall_ms() + 30_000
        await peer.send(delayed(b"ours", DELAY=1), delayed(b"theirs", DELAY=5), delayed(b"level", DELAY=5))
        await peer.send(delayed(b"theirs too", TIMER_DELIVER_MS=at), delayed(b"timer", TIMER_DELIVER_MS=at + 60_000))
        while not await everything(peer, "T"):
            await broker.clock.advance(0.2)
        await peer.close()
        await broker.stop_broker()
        config = tmp_path / "config"
        (config / "delayOffset.json").write_text('{\n\t"offsetTable":{1:0,5:1}\n}')
        (config / "timercheck").write_bytes(struct.pack(">7q", timer_out_ms(at) + 1000, 0, 2, 2, 0, 0, 0).ljust(4096, b"\0"))
        await broker.start_broker()
        broker.clock.jump_wall(200_000)
        peer = await Peer.connect(broker.address)
        while len(await everything(peer, "T")) < 3:
            await broker.clock.advance(0.2)
        await broker.clock.advance(3)
        assert sorted(one.body for one in await everything(peer, "T")) == [b"level", b"ours", b"timer"]
        await peer.close()


def test_a_timer_that_says_of_itself_that_it_was_rolled_very_often(tmp_path: Path) -> None:
    """Whoever sent it said so. The number has more digits than Python reads, and the store was not taken over."""
    root = unpack("s15-timer", tmp_path)
    adopted("s15-timer", root)
    store, tables = opened("s15-timer", root)
    store.open_epoch(WALL_MS)
    said = record.properties_to_bytes({"TIMER_ROLL_TIMES": "9" * 5000, "TIMER_OUT_MS": f"{WALL_MS}"})
    draft = record.draft(TIMER_TOPIC, b"", said, born_timestamp=1, born_host=HOST)
    store.log.append([Unit(draft, (len(draft),), (0,), store.queues.get(TIMER_TOPIC, 0))], WALL_MS)
    store.dispatcher.advance(store.log.flush())
    assert list(delays.lines(store, tables.due, delays.Positions({})))
    store.close()


def test_fastjsons_bare_keys_and_broken_files(tmp_path: Path) -> None:
    """Numbers as keys stand without quotes; an empty or broken file counts as missing, and its .bak is taken."""
    strange = b'{"a":{0:1,\n 17 : {-3:2}},"b":"{0:1}, \\" {1:2"}'
    assert adopt.parse_json(strange) == {"a": {"0": 1, "17": {"-3": 2}}, "b": '{0:1}, " {1:2'}
    (tmp_path / "delayOffset.json").write_bytes(b"")
    (tmp_path / "delayOffset.json.bak").write_bytes(b'{"offsetTable":{3:7}}')
    (tmp_path / "topics.json").write_bytes(b'{"topicConfigTable":')
    found = adopt.read_tables(tmp_path)
    assert (found.topics, found.groups, found.offsets) == (None, None, None)
    assert found.waiting.levels == {3: 7}
    assert len(found.notes) == 3


@pytest.mark.parametrize("bad", [b'{"g":1}', b'{"g":{"T":"x"}}', b"[1]"])
def test_a_forbidden_table_that_is_none(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "subscriptionGroup.json").write_bytes(b'{"subscriptionGroupTable":{},"forbiddenTable":' + bad + b"}")
    with pytest.raises(BadBytes, match="forbiddenTable of subscriptionGroup.json"):
        adopt.read_tables(tmp_path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("topics.json", "[1]"),
        ("subscriptionGroup.json", '"text"'),
        ("consumerOffset.json", '{"offsetTable":{"T@g@broadcast":[1]}}'),
        ("consumerOffset.json", '{"offsetTable":{},"pullOffsetTable":{"T@g":{"q":1}}}'),
        ("consumerOffset.json", '{"offsetTable":{},"pullOffsetTable":[1]}'),
        ("delayOffset.json", '{"offsetTable":{"q":7}}'),
        ("delayOffset.json", '{"offsetTable":{"1":"x"}}'),
        ("delayOffset.json", '{"offsetTable":[1]}'),
        ("messageRequestMode.json", "7"),
    ],
)
def test_a_bit_that_flipped_in_a_table(tmp_path: Path, file: str, text: str) -> None:
    """It is JSON and no table of RocketMQ's: the operator is told which file that is, or the older one beside it is taken."""
    (tmp_path / file).write_text(text)
    try:
        notes = adopt.read_tables(tmp_path).notes
    except BadBytes as error:
        notes = [str(error)]
    assert [file in note for note in notes] == [True]


def test_what_rocketmqs_tables_lack_was_deleted_only_if_it_stopped_in_order(tmp_path: Path) -> None:
    tables = Tables(TopicTable(), GroupTable(), OffsetTable())
    tables.apply([("topic", "Old", list(TopicConfig("Old"))), ("group", "old", list(GroupConfig("old")))], 1, 0)
    tables.apply([("offset", OffsetKey("old", "Old", 0), 5), ("cursor", [PULL, "T@g"], 5)], 1, 0)
    (tmp_path / "topics.json").write_bytes(b'{"topicConfigTable":{}}')
    tables.apply([("forbidden", name_of("Old", "old"), READ), ("forbidden", name_of("T", "g"), READ)], 1, 0)
    rows = b'{"subscriptionGroupTable":{},"forbiddenTable":{"g":{"T":4,"U":4,"V":0}}}'
    (tmp_path / "subscriptionGroup.json").write_bytes(rows)
    (tmp_path / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T@g":{0:3}}}')
    found = adopt.read_tables(tmp_path)
    with_queues = {"Old", "Ghost", "rmq_sys_STATE", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%LMQ%x"}
    may_not = ("forbidden", name_of("U", "g"), READ)
    assert adopt.plan(found, tables, with_queues, complete=False) == [may_not, ("offset", OffsetKey("g", "T", 0), 3)]
    assert adopt.plan(found, tables, with_queues, complete=True) == [
        ("topic", "Ghost", None),
        ("topic", "Old", None),
        ("group", "old", None),
        ("forbidden", name_of("Old", "old"), None),
        may_not,
        ("offset", OffsetKey("old", "Old", 0), None),
        ("offset", OffsetKey("g", "T", 0), 3),
        ("cursor", (PULL, "T@g"), None),
    ]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"S":{}}}', "static topics"),
    ],
)
def test_tables_of_kinds_that_cannot_be_served(tmp_path: Path, file: str, text: str, reason: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(StoreError, match=reason):
        adopt.read_tables(tmp_path)
