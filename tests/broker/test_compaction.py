"""Compacted topics (cleanup.policy=COMPACTION): whatever retention deletes, the newest message of each key stays."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.broker.pending import compaction
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.codes import ResponseCode as R
from rmq.log.records import record
from rmq.log.records.record import Record
from rmq.log.units import Unit
from rmq.net.commands import DeleteExpiredLog, DeleteTopic, GetMinOffset, GetTopicConfig, Send, UpdateTopic
from rmq.net.commands.peers import TransferLeader
from rmq.testing import LocalBroker, TestClock
from tests.broker.groups import SHORT_LIVED, LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.support import BORN, Peer, hold_reads, send, small_node, stop_somehow
from tests.broker.test_lights import LIGHT
from tests.broker.test_retention import Node

COMPACTED = "+cleanup.policy=COMPACTION"
PATIENT = {**SHORT_LIVED, "idle_timeout_ms": 86_400_000}  # the clock is moved on while nobody says anything


def compacted(topic: str = "C", queues: int = 1, attributes: str = COMPACTED) -> UpdateTopic:
    return UpdateTopic(topic, read_queue_nums=queues, write_queue_nums=queues, attributes=attributes)


def value(key: str, body: bytes, topic: str = "C", queue_id: int = 0, **properties: str) -> Send:
    text = record.properties_to_bytes({**({"KEYS": key} if key else {}), **properties})
    return Send("p", topic, queue_id, record.draft(topic, body, text, born_timestamp=1000, born_host=BORN))


def batch(topic: str, *keys: str) -> Send:
    records = b"".join(value(key, b"b", topic).records for key in keys)
    return Send("p", topic, 0, records, batch=True)


def said_in(message: Record) -> dict[str, str]:
    """Its properties, but for the checksum."""
    return {name: said for name, said in record.bytes_to_properties(message.properties).items() if name != "__CRC32#"}


def key_of(message: Record) -> str:
    return said_in(message).get("KEYS", "")


def newest(messages: list[Record]) -> dict[str, bytes]:
    """As a reader has it who reads from the beginning."""
    last = {key_of(one): one for one in messages}
    return {key: one.body for key, one in last.items() if said_in(one).get("TOMBSTONE") != "true"}


async def whole(peer: Peer, topic: str, queue_id: int = 0) -> list[Record]:
    """All of a queue, of which retention may delete the beginning meanwhile."""
    found: list[Record] = []
    offset = await minimum(peer, topic, queue_id)
    while True:
        answer = await peer.pull(topic, offset, queue_id=queue_id)
        if answer.status not in (R.SUCCESS, R.PULL_OFFSET_MOVED):
            return found
        found += record.iterate(answer.messages)
        offset = answer.next_begin_offset


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = await Node(tmp_path).start()
    yield node
    await node.stop()


async def fill(node: Node, segments: int) -> None:
    """With messages of another topic, so that those before them are in segments that may go."""
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await node.grow(segments)
    await node.snapshots(2)


async def expire(node: Node, left: int = 2) -> None:
    """Returns when at most so many segments are left, 100 hours later."""
    await node.restart(100)
    await node.clock.advance_until(lambda: len(node.segments()) <= left, 10.0)


async def test_the_newest_message_of_each_key_outlives_its_segment(node: Node) -> None:
    await node.peer.ask(compacted(queues=2))
    await node.peer.ask(value("cold", b"old"))
    await node.peer.ask(value("cold", b"cold", TAGS="A", UNIQ_KEY="AB", colour="blue"))
    await node.peer.ask(value("two words", b"two", queue_id=1))
    await node.peer.ask(value("hot", b"h0"))
    await fill(node, 4)
    await node.peer.ask(value("hot", b"h1"))
    before = (await whole(node.peer, "C"))[1]
    await expire(node)
    assert await node.minimum("C") > 0
    found = await whole(node.peer, "C")
    assert newest(found) == {"cold": b"cold", "hot": b"h1"}
    assert newest(await whole(node.peer, "C", 1)) == {"two words": b"two"}
    (again,) = [one for one in found if key_of(one) == "cold"]
    assert again.queue_offset > 2, "it is appended again, behind what was there"
    assert said_in(again) == said_in(before) == {"KEYS": "cold", "TAGS": "A", "UNIQ_KEY": "AB", "colour": "blue"}
    assert (again.born_timestamp, again.born_host, again.flag) == (before.born_timestamp, before.born_host, before.flag)
    await node.restart(100)
    await node.peer.ask(send("T"))
    await node.clock.advance(60)
    assert newest(await whole(node.peer, "C")) == {"cold": b"cold", "hot": b"h1"}


async def test_nothing_is_appended_again_where_each_key_has_a_newer_message(node: Node) -> None:
    await node.peer.ask(compacted())
    for body in (b"1", b"2"):
        await node.peer.ask(value("k", body))
    await fill(node, 4)
    await node.peer.ask(value("k", b"3"))
    await expire(node, left=1)
    assert [one.body for one in await whole(node.peer, "C")] == [b"3"]


async def test_a_key_is_deleted_by_a_tombstone(node: Node) -> None:
    """Which goes with its file, and the messages before it sooner. Only that very property counts."""
    await node.peer.ask(compacted())
    await node.peer.send(value("gone", b"1"), value("back", b"1"), value("kept", b"1"), value("later", b"1"))
    await node.peer.send(value("gone", b"-", TOMBSTONE="true"), value("back", b"-", TOMBSTONE="true"), value("back", b"2"))
    for number, odd in enumerate(({"TOMBSTONE": "trueish"}, {"TOMBSTONE": "false"}, {"MYTOMBSTONE": "true"})):
        await node.peer.ask(value(f"odd{number}", b"o", **odd))
    await fill(node, 4)
    await node.peer.ask(value("later", b"-", TOMBSTONE="true"))
    await expire(node)
    found = await whole(node.peer, "C")
    assert sorted(map(key_of, found)) == ["back", "kept", "later", "odd0", "odd1", "odd2"]
    assert newest(found) == {"back": b"2", "kept": b"1", "odd0": b"o", "odd1": b"o", "odd2": b"o"}


async def test_keys_that_end_at_once_take_no_room(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind many of them is looked after, too."""
    monkeypatch.setattr(compaction, "MOST_BYTES", 300)
    monkeypatch.setattr(compaction, "READ_AT_ONCE", 2)
    await node.peer.ask(compacted())
    for number in range(4):
        await node.peer.send(value(f"k{number}", b"1"), value(f"k{number}", b"-", TOMBSTONE="true"))
    await node.peer.ask(value("kept", b"1"))
    await fill(node, 4)
    await expire(node)
    assert newest(await whole(node.peer, "C")) == {"kept": b"1"}


async def test_an_administrator_asks_once(node: Node) -> None:
    """At an hour at which nothing is deleted: what has to be carried forward first goes as soon as it may."""
    await node.peer.ask(compacted())
    await node.peer.ask(value("k", b"1"))
    await fill(node, 4)
    await node.expire_at_another_hour()
    assert len(node.segments()) == 4
    await node.peer.ask(DeleteExpiredLog())
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)
    assert newest(await whole(node.peer, "C")) == {"k": b"1"}


async def test_a_full_disk_loses_nothing_either(node: Node) -> None:
    await node.peer.ask(compacted())
    await node.peer.ask(value("k", b"1"))
    await fill(node, 4)
    node.disk.used = 0.91  # sends are refused by now
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)
    node.disk.used = 0.5
    assert newest(await whole(node.peer, "C")) == {"k": b"1"}


async def test_many_keys_are_looked_after_piece_by_piece(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST_BYTES", 2_000)
    monkeypatch.setattr(compaction, "READ_AT_ONCE", 7)
    monkeypatch.setattr(compaction, "COPIED_AT_ONCE", 3)
    await node.peer.ask(compacted(queues=3))
    await node.peer.ask(compacted("D", attributes=f"{COMPACTED},+message.type=FIFO"))
    wanted = {(topic, queue, f"k{number}"): b"%d" % number for topic, queue in places() for number in range(40)}
    for (topic, queue, key), body in wanted.items():
        await node.peer.ask(value(key, body, topic, queue, **({"__SHARDINGKEY": "s"} if topic == "D" else {})))
    await fill(node, 3)
    await expire(node)
    for topic, queue in places():
        assert await minimum(node.peer, topic, queue) >= 40
        found = newest(await whole(node.peer, topic, queue))
        assert found == {key: body for (of, at, key), body in wanted.items() if (of, at) == (topic, queue)}


def places() -> list[tuple[str, int]]:
    return [("C", 0), ("C", 1), ("C", 2), ("D", 0)]


async def minimum(peer: Peer, topic: str, queue_id: int) -> int:
    return int((await peer.ask(GetMinOffset(topic, queue_id))).offset)


@pytest.mark.parametrize("key", ["a", "b"])
async def test_a_copy_never_comes_behind_a_newer_message(node: Node, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """Sent when what is to be appended again has just been read, or when its turn has not come yet."""
    monkeypatch.setattr(compaction, "COPIED_AT_ONCE", 1)
    await node.peer.ask(compacted())
    await node.peer.send(value("a", b"a0"), value("b", b"b0"))
    await fill(node, 4)
    await node.restart(100)
    reading, go_on = hold_reads(monkeypatch, InternalProducer)
    await node.clock.advance_until(reading.is_set, 1.0)
    await node.peer.ask(value(key, b"new"))
    go_on.set()
    await node.clock.advance_until(lambda: len(node.segments()) <= 2, 10.0)
    found = await whole(node.peer, "C")
    assert newest(found) == {"a": b"a0", "b": b"b0"} | {key: b"new"}
    assert [one.body for one in found if key_of(one) == key] == [b"new"], "the old one was not appended again"


async def test_what_comes_in_one_turn_with_a_copy_is_stored_behind_it(node: Node) -> None:
    """Messages of a turn share a unit, which would stand before the copy if it was begun before it."""
    await node.peer.ask(compacted())
    serving = node.broker.serving
    appender, queue = serving.appender, serving.store.queues.get("C", 0)
    draft = value("k", b"b").records

    def proposed() -> Unit:
        unit = Unit(draft, (len(draft),), (0,), queue)
        appender.propose(unit)
        return unit

    before = proposed()
    appender.watch([queue])
    brought = proposed()
    assert (appender.came(queue), before.open, brought.open) == ([before, brought], False, False)
    later = proposed()
    await node.clock.advance_until(lambda: queue.max == 3, 0.0)
    assert (appender.came(queue), appender.came(queue)) == ([before, brought, later], [])
    appender.watch(())


@pytest.mark.parametrize("seed", range(2))
async def test_messages_that_come_all_the_time(node: Node, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments go as soon as they are full, while three clients send to keys of their own."""
    monkeypatch.setattr(compaction, "COPIED_AT_ONCE", 2)
    await node.peer.ask(compacted(queues=2))
    node.disk.used = 0.86
    log, wanted, on = node.broker.serving.store.log, dict[str, bytes](), True

    async def send_values(number: int) -> None:
        chance, peer = random.Random(f"{seed} {number}"), await Peer.connect(node.broker.address, f"c{number}")
        while on:
            key, queue = f"{number}-{chance.randrange(chance.choice([2, 2, 2, 1_000]))}", number % 2
            body = b"%d" % chance.getrandbits(64)
            await peer.ask(value(key, body, queue_id=queue, filler="x" * 800))
            wanted[key] = body
        await peer.close()

    sending = [asyncio.create_task(send_values(number)) for number in range(3)]
    await node.clock.advance_until(lambda: log.start > 2 * node.settings.segment_bytes, 1.0, timeout_s=120)
    on = False
    await asyncio.gather(*sending)
    assert node.broker.serving.compaction.carried
    assert newest([*await whole(node.peer, "C"), *await whole(node.peer, "C", 1)]) == wanted


async def test_a_newer_message_counts_once_it_is_durable(tmp_path: Path) -> None:
    """A power failure takes what was not flushed yet. A copy of the older one would come behind it, so none is made meanwhile."""
    disk, clock, settings = HeldDisk(), TestClock(), small_node(tmp_path, stop_grace_ms=100, **PATIENT)
    for later_h in (0, 100):
        clock = TestClock(wall_ms=clock.wall_ms() + later_h * 3_600_000)
        broker = Broker(settings, clock, disk)
        await broker.start()
        peer, log, kept = await Peer.connect(broker.address), broker.serving.store.log, broker.serving.compaction
        if not later_h:
            await peer.ask(compacted())
            await peer.send(value("k", b"old"), *(value("other", b"x" * 2000) for _ in range(12)))
            await peer.close()
            await broker.stop()
    first = log.segments()[0].end
    disk.flushes.clear()
    await peer.ask(value("k", b"new"))
    await clock.advance(60)
    found = kept.alive_from(), kept.carried
    disk.flushes.set()
    assert found == (0, 0)
    await clock.advance_until(lambda: log.start >= first, 5.0)
    assert kept.carried == 0
    assert newest(await whole(peer, "C"))["k"] == b"new"
    await peer.close()
    await broker.stop()


@pytest.mark.parametrize("again", [False, True])
async def test_a_deleted_topic_holds_no_segment(node: Node, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Also one that is deleted while its messages are read to be appended again; none of them comes to the next of its name."""
    await node.peer.ask(compacted())
    await node.peer.ask(value("k", b"1"))
    await fill(node, 4)
    await node.restart(100)
    reading, go_on = hold_reads(monkeypatch, InternalProducer)
    await node.clock.advance_until(reading.is_set, 1.0)
    await node.peer.ask(DeleteTopic("C"))
    if again:
        await node.peer.ask(compacted())
    go_on.set()
    await node.clock.advance_until(lambda: len(node.segments()) <= 2, 10.0)
    if again:
        assert not await whole(node.peer, "C")


async def test_a_message_without_a_key_is_refused(broker: LocalBroker, peer: Peer) -> None:
    """As in RocketMQ: nobody knows what replaces it."""
    await peer.ask(compacted())
    assert (await peer.ask(GetTopicConfig("C"))).attributes == {"cleanup.policy": "COMPACTION"}
    refused = [value("", b"b"), value("  ", b"b"), value("", b"b", MYKEYS="k"), value("", b"b", DELAY="1"), batch("C", "k", "")]
    assert [await peer.refusal(one) for one in refused] == [R.MESSAGE_ILLEGAL] * len(refused)
    assert not await whole(peer, "C")
    await peer.send(value("k", b"b"), batch("C", "k", "l"), value("k" * 32_000, b"long"))
    assert [len(key_of(one)) for one in await whole(peer, "C")] == [1, 1, 1, 32_000]


async def test_light_queues_have_a_message_once(tmp_path: Path) -> None:
    """What is appended again does not go to its light queues again. A queue whose only message expired may be cleaned by then."""
    light = value("k", b"light", INNER_MULTI_DISPATCH="%LMQ%a")
    clock = TestClock()
    for later_h in (0, 100):
        clock = TestClock(wall_ms=clock.wall_ms() + later_h * 3_600_000)
        async with LocalBroker(store_dir=tmp_path, clock=clock, **LIGHT, **PATIENT) as broker:
            peer = await Peer.connect(broker.address)
            if not later_h:
                await peer.ask(compacted())
                await peer.send(light, *(value("other", b"x" * 2000) for _ in range(12)))
            else:
                queue, first = broker.serving.store.queues.find("%LMQ%a", 0), broker.serving.store.log.segments()[0].end
                await clock.advance_until(lambda first=first: broker.serving.store.log.start >= first, 5.0)  # type: ignore[misc]
                assert newest(await whole(peer, "C"))["k"] == b"light"
                assert queue is not None
                assert queue.max == 1
                assert broker.serving.store.queues.find("%LMQ%a", 0) in (queue, None)
            await peer.close()


@pytest.mark.parametrize("other", ["message.type=LITE", "queue.type=BatchCQ"])
async def test_kinds_that_do_not_go_together(broker: LocalBroker, peer: Peer, other: str) -> None:
    assert await peer.refusal(compacted(attributes=f"{COMPACTED},+{other}")) == R.INVALID_PARAMETER
    assert await peer.refusal(GetTopicConfig("C")) == R.TOPIC_NOT_EXIST


async def test_what_a_topic_keeps_is_said_when_it_is_made(broker: LocalBroker, peer: Peer) -> None:
    await peer.ask(compacted())
    assert await peer.refusal(compacted(attributes="-cleanup.policy")) == R.SYSTEM_ERROR
    assert await peer.refusal(compacted("T", 4)) == R.SYSTEM_ERROR
    assert await peer.refusal(compacted(attributes="+message.type=LITE")) == R.INVALID_PARAMETER


# --- histories --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_histories(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader from the beginning always finds the newest of each key: through kills, retention, and topics that are deleted."""
    chance = random.Random(seed)
    monkeypatch.setattr(compaction, "MOST_BYTES", chance.choice([1_000, 1 << 26]))
    kept: dict[tuple[str, int], dict[str, bytes]] = {}
    async with LocalBroker(store_dir=tmp_path / "store", **PATIENT) as broker:
        peer = await Peer.connect(broker.address)
        starts = set[int]()
        for step in range(60):
            what = chance.choice(["send"] * 8 + ["delete", "stop", "retain", "retain", "check"])
            topic = chance.choice("AB")
            if (topic, 0) not in kept:
                await peer.ask(compacted(topic, 2))
                kept |= {(topic, queue): {} for queue in (0, 1)}
            if what == "send":
                for _ in range(chance.randint(1, 8)):
                    queue, key, body = chance.randrange(2), f"k{chance.randrange(12)}", b"%d-%d" % (step, chance.getrandbits(40))
                    body += b"." * chance.choice([0, 1500])
                    if chance.random() < 0.2:
                        await peer.ask(value(key, body, topic, queue, TOMBSTONE="true"))
                        kept[topic, queue].pop(key, None)
                    else:
                        await peer.ask(value(key, body, topic, queue))
                        kept[topic, queue][key] = body
            elif what == "delete" and chance.random() < 0.3:
                await peer.ask(DeleteTopic(topic))
                del kept[topic, 0], kept[topic, 1]
            elif what == "stop":
                await peer.close()
                await stop_somehow(broker, chance)
                await broker.start_broker()
                peer = await Peer.connect(broker.address)
            elif what == "retain":
                await stop_and_go_on(broker, peer)
                peer = await Peer.connect(broker.address)
                for _ in range(8):
                    await broker.clock.advance(10)
            starts.add(broker.serving.store.log.start)
            for (name, queue), wanted in kept.items():
                assert newest(await whole(peer, name, queue)) == wanted, (step, what, name, queue)
        assert len(starts) > 1, "retention deleted something"
        await peer.close()


async def stop_and_go_on(broker: LocalBroker, peer: Peer) -> None:
    """Three hours later."""
    await peer.close()
    await broker.stop_broker()
    broker.clock.jump_wall(3 * 3_600_000)
    await broker.start_broker()


# --- a group ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
async def test_every_member_keeps_them_and_the_next_leader_goes_on(tmp_path: Path, seed: int) -> None:
    """Each member deletes by what it finds in its own log, so no change of leaders loses a key."""
    chance = random.Random(seed)
    async with LocalGroup(tmp_path, **PATIENT) as group:
        peer = await group.connect(await group.leader())
        await peer.ask(compacted())
        wanted: dict[str, bytes] = {}
        for number in range(60):
            key, body = f"k{chance.randrange(40)}", b"%d" % number
            await peer.ask(value(key, body + b"." * 1000))
            wanted[key] = body
        await group.level()
        await group.stop("n0", "n1", "n2")
        group.clock = group.later(hours=100)
        await group.start("n0", "n1", "n2")
        await group.clock.advance(1.5)
        leader = await group.leader()
        await group.clock.advance_until(lambda: group.nodes[leader].serving.compaction.carried > 0, 1.0)
        await group.stop(leader)
        await group.clock.advance(2)
        await group.leader(but=leader)
        await group.start(leader)
        await group.clock.advance_until(lambda: all(one.serving.store.log.start for one in group.nodes.values()), 5.0)
        await group.level()
        for name in group.nodes:
            reader = await group.connect(name)
            found = newest(await whole(reader, "C"))
            assert {key: body.rstrip(b".") for key, body in found.items()} == wanted


async def test_another_leader_had_newer_messages_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first leader read what it was to append again, it lost its leadership, and won it back."""
    async with LocalGroup(tmp_path, **PATIENT) as group:
        peer = await group.connect(await group.leader())
        await peer.ask(compacted())
        await peer.send(value("k", b"old"), *(value("other", b"x" * 2000) for _ in range(12)))
        await group.level()
        await group.stop("n0", "n1", "n2")
        group.clock = group.later(hours=100)
        await group.start("n0", "n1", "n2")
        await group.clock.advance(1.5)
        reading, go_on = hold_reads(monkeypatch, InternalProducer)
        first = await group.leader()
        await group.clock.advance_until(reading.is_set, 1.0)
        other = next(name for name in group.nodes if name != first)
        for now, to in ((first, other), (other, first)):
            leader = await group.connect(now)
            while await leader.ask_code(TransferLeader(to)):
                await group.clock.advance(0.1)
            await group.leader(but=now)
            if to == other:
                await (await group.connect(other)).ask(value("k", b"new"))
        go_on.set()
        await group.clock.advance_until(lambda: all(one.serving.store.log.start for one in group.nodes.values()), 5.0)
        for name in group.nodes:
            assert newest(await whole(await group.connect(name), "C"))["k"] == b"new"
