"""Delayed and timed messages at a real broker: in time, never early, once, as RocketMQ stores them."""

import asyncio
import base64
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq.broker.pending.delays import DelayNotes, DelayService, recall_handle
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.pending.kinds import Pending
from rmq.client import Message
from rmq.codes import ResponseCode
from rmq.delivery.due import Cancelling, DueTable, level_slot
from rmq.delivery.proof import DUE, Proof
from rmq.errors import InvalidArgument, Refusal, StoreError
from rmq.log.records import record
from rmq.log.records.record import Record, bytes_to_properties
from rmq.model import DELAY_TOPIC, TIMER_TOPIC
from rmq.net.commands import DeleteExpiredLog, DeleteTopic, GetMaxOffset, GetMinOffset, Send, UpdateTopic
from rmq.net.commands.peers import Promote
from rmq.net.commands.timers import Recall
from rmq.testing import LocalBroker, TestClock, entries, until
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.javaclient import JavaClient
from tests.broker.pair import Pair
from tests.broker.support import BORN, Peer, everything, send
from tests.broker.test_retention import Node

ILLEGAL = ResponseCode.MESSAGE_ILLEGAL


def delayed(body: bytes = b"body", topic: str = "T", queue_id: int = 0, **properties: Any) -> Send:
    text = record.properties_to_bytes({"UNIQ_KEY": body.hex(), **{name: str(value) for name, value in properties.items()}})
    draft = record.draft(topic, body, text, flag=7, born_timestamp=1000, born_host=BORN)
    return Send("p", topic, queue_id, draft)


async def arrived(peer: Peer, clock: TestClock, count: int = 1, queue_id: int = 0, step_s: float = 0.1) -> list[Record]:
    """The messages there, once there are so many; the clock moves on."""
    async with asyncio.timeout(60):
        while len(found := await everything(peer, "T", queue_id)) < count:
            await clock.advance(step_s)
    return found


def said(message: Record) -> dict[str, str]:
    return {name: value for name, value in bytes_to_properties(message.properties).items() if name != "__CRC32#"}


def test_topics_to_which_messages_are_handed_on_take_no_memory() -> None:
    """Users make and delete topics without an end."""
    pending = Pending({DUE: DelayNotes(DueTable(1024, ()))})

    def hand_on(topic: str) -> int:
        raw = record.properties_to_bytes(Proof(DUE, 1).as_property())
        pending.note(record.decode(record.draft(topic, b"body", raw, born_timestamp=1000, born_host=BORN)))
        return entries(pending)

    assert len({hand_on(f"T{number}") for number in range(10)}) == 1


async def test_a_level_waits_in_the_delay_topic_and_comes_in_time(broker: LocalBroker, peer: Peer) -> None:
    """C13: stored as RocketMQ stores it (golden set s06); the answer names number and place in the delay topic."""
    [answer] = await peer.send(delayed(DELAY=1, queue_id=2, KEYS="k", TIMER_DELAY_MS=5, own="value"))
    assert answer[:2] == (2, 0)
    [waiting] = await everything(peer, DELAY_TOPIC)
    expected = {"UNIQ_KEY": b"body".hex(), "DELAY": "1", "KEYS": "k", "own": "value", "REAL_TOPIC": "T", "REAL_QID": "2"}
    assert said(waiting) == expected
    assert (waiting.physical_offset, waiting.queue_offset) == answer[2:0:-1]
    [found] = await arrived(peer, broker.clock, queue_id=2)
    assert waiting.store_timestamp + 1000 <= found.store_timestamp < waiting.store_timestamp + 60_000
    assert (found.body, found.flag, found.born_timestamp, found.queue_offset) == (b"body", 7, 1000, 0)
    assert said(found).pop("RMQ_SRC").split()[:2] == ["due", str(waiting.physical_offset)]
    assert {name: one for name, one in said(found).items() if name != "RMQ_SRC"} == expected
    await broker.clock.advance(5)
    assert len(await everything(peer, "T", 2)) == 1


async def test_a_level_above_the_highest_is_the_highest(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(delayed(DELAY=99))
    [waiting] = await everything(peer, DELAY_TOPIC, 17)
    assert said(waiting)["DELAY"] == "18"
    broker.clock.jump_wall(7_100_000)
    await broker.clock.advance(1)
    assert not await everything(peer)
    broker.clock.jump_wall(100_000)
    await arrived(peer, broker.clock)


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
async def test_a_timer_comes_in_the_second_that_was_asked_for(broker: LocalBroker, peer: Peer, name: str) -> None:
    """C13: the stored forms are those of golden set s15."""
    now_ms = broker.clock.wall_ms()
    value = {"TIMER_DELAY_SEC": 4, "TIMER_DELAY_MS": 4321, "TIMER_DELIVER_MS": now_ms + 4567}[name]
    wish: dict[str, Any] = {name: value}
    [answer] = await peer.send(delayed(b"timed", queue_id=1, **wish))
    [waiting] = await everything(peer, TIMER_TOPIC)
    out_ms = int(said(waiting)["TIMER_OUT_MS"])
    assert out_ms % 1000 == 0
    kept = {"UNIQ_KEY": b"timed".hex(), name: str(value), "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "1"}
    assert said(waiting) == kept
    assert base64.urlsafe_b64decode(answer.recall_handle).decode() == f"v1 T broker-a {out_ms + 1} {b'timed'.hex()}"
    [found] = await arrived(peer, broker.clock, queue_id=1)
    asked_ms = value if name == "TIMER_DELIVER_MS" else now_ms + (4000 if name == "TIMER_DELAY_SEC" else 4321)
    assert asked_ms <= found.store_timestamp < asked_ms + 60_000
    assert said(found).pop("TIMER_ENQUEUE_MS") == str(waiting.store_timestamp // 1000 * 1000)
    assert asked_ms <= int(said(found)["TIMER_DEQUEUE_MS"]) <= found.store_timestamp
    own = ("RMQ_SRC", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS")
    assert {name: one for name, one in said(found).items() if name not in own} == kept


async def test_wishes_that_cannot_be_met_are_refused(broker: LocalBroker, peer: Peer) -> None:
    """13 for what cannot be read and what is more than three days ahead; a time that has passed is no delay."""
    day_ms = 86_400_000
    for wrong in (
        {"TIMER_DELAY_SEC": "soon"}, {"TIMER_DELAY_SEC": 259_201}, {"TIMER_DELIVER_MS": broker.clock.wall_ms() + 4 * day_ms},
        {"TIMER_DELAY_MS": "1.5"}, {"DELAY": "x"}, {"TIMER_DELIVER_MS": 5, "TIMER_DEL_UNIQKEY": "k"},
        {"DELAY": "1", "own": "x" * 32_000}, {"REAL_TOPIC": "T"}, {"RMQ_SRC": "due 1 2"}, {"TIMER_OUT_MS": "1"},
    ):  # fmt: skip
        assert await peer.refusal(delayed(**wrong)) == ILLEGAL, wrong
    await peer.send(delayed(TIMER_DELIVER_MS=5), delayed(TIMER_DELAY_MS=-1), delayed(DELAY=0), delayed(DELAY=-3))
    assert [said(one).get("REAL_TOPIC") for one in await everything(peer)] == [None] * 4


async def test_a_message_that_cancels_a_timer(broker: LocalBroker, peer: Peer) -> None:
    """The same time and the key alone, as RocketMQ 5.5.0; another topic's message is out of reach."""
    at = broker.clock.wall_ms() + 60_000
    await broker.create_topic("Other", 1)
    keys = {body: body.hex() for body in (b"cancelled", b"kept", b"later")}
    await peer.send(*[delayed(body, TIMER_DELIVER_MS=at) for body in (b"cancelled", b"kept")])
    await peer.send(delayed(b"later", TIMER_DELIVER_MS=at + 1000))
    await peer.send(delayed(b"stop", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY=keys[b"cancelled"]))
    await peer.send(delayed(b"stop2", topic="Other", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY=keys[b"kept"]))
    await peer.send(delayed(b"stop3", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY=f"T+{keys[b'kept']}"))
    await peer.send(delayed(b"stop4", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY=keys[b"later"]))
    broker.clock.jump_wall(60_000)
    assert [one.body for one in await arrived(peer, broker.clock, 2)] == [b"kept", b"later"]
    await broker.clock.advance(5)
    assert len(await everything(peer)) == 2
    assert not await everything(peer, "Other")


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_timer_is_taken_back_by_its_handle(allowed: bool) -> None:
    """The stored form is that of golden set s15; a handle of another topic, or that is none, is refused."""
    async with LocalBroker(recall_messages=allowed) as broker:
        await broker.create_topic("T", 1)
        await broker.create_topic("Other", 1)
        peer = await Peer.connect(broker.address)
        timers = [delayed(body, TIMER_DELAY_SEC=60) for body in (b"back", b"stays")]
        [back, other, now] = await peer.send(*timers, delayed(DELAY=1))
        assert now.recall_handle == ""
        if not allowed:
            assert await peer.refusal(Recall("T", back.recall_handle, "p")) == ResponseCode.NO_PERMISSION
            await peer.close()
            return
        assert (await peer.ask(Recall("T", back.recall_handle, "p"))).msg_id == b"back".hex()
        async with JavaClient.connect(broker.address) as java:  # which traces recalls if it is told the region
            header, _ = await java.ask(Recall("T", back.recall_handle, "p"))
            assert header.ext == {"msgId": b"back".hex(), "MSG_REGION": "DefaultRegion"}
            assert (await java.ask(Recall("T", "no handle", "p")))[0].ext == {"MSG_REGION": "DefaultRegion"}
        out_ms = said((await everything(peer, TIMER_TOPIC))[0])["TIMER_OUT_MS"]
        recall = (await everything(peer, TIMER_TOPIC))[2]
        assert (recall.body, said(recall).pop("BORN_TIMESTAMP")) == (b"0", str(recall.born_timestamp))
        assert {name: one for name, one in said(recall).items() if name != "BORN_TIMESTAMP"} == {
            "TAGS": "_RECALL_TAG_", "UNIQ_KEY": b"back".hex(), "TIMER_DEL_UNIQKEY": b"back".hex(), "PGROUP": "p",
            "TIMER_DELIVER_MS": str(int(out_ms) + 1), "TIMER_OUT_MS": out_ms, "REAL_TOPIC": "T", "REAL_QID": "0",
        }  # fmt: skip
        elsewhere = recall_handle("T", "another", int(out_ms), b"stays".hex())  # it answered success, and the other one delivered
        for wrong in (Recall("Other", back.recall_handle), Recall("T", "no handle"), Recall("T", "e30="), Recall("T", elsewhere)):
            assert await peer.refusal(wrong) == ResponseCode.ILLEGAL_OPERATION
        assert await peer.refusal(Recall("Missing", back.recall_handle)) == ResponseCode.TOPIC_NOT_EXIST
        assert await peer.refusal(Recall("T", back.recall_handle, "p\x02q")) == ResponseCode.INVALID_PARAMETER
        await arrived(peer, broker.clock)
        broker.clock.jump_wall(60_000)
        assert [one.body for one in await arrived(peer, broker.clock, 2)] == [b"body", b"stays"]
        assert await peer.refusal(Recall("T", other.recall_handle)) == ResponseCode.ILLEGAL_OPERATION, "too late"
        await broker.clock.advance(3)
        assert len(await everything(peer)) == 2
        await peer.close()


async def test_what_has_no_topic_any_more_is_dropped_once(
    broker: LocalBroker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.create_topic("Gone", 1)
    await peer.send(delayed(b"lost", topic="Gone", DELAY=5), delayed(b"there", DELAY=5))
    await peer.ask(DeleteTopic("Gone"))
    broker.clock.jump_wall(60_000)
    await arrived(peer, broker.clock)
    await until(lambda: "topic Gone was deleted behind it" in caplog.text)
    await broker.clock.advance(5)
    assert caplog.text.count("is not delivered") == 1
    await broker.stop_broker()
    await broker.start_broker()
    await broker.clock.advance(5)
    assert caplog.text.count("is not delivered") == 1


async def test_many_that_are_due_at_once_starve_no_send(broker: LocalBroker, peer: Peer) -> None:
    """3 000 are due; sends of the same moment stand between them in the log."""
    at = broker.clock.wall_ms() + 120_000
    await asyncio.gather(*(peer.ask(delayed(b"%d" % number, TIMER_DELIVER_MS=at)) for number in range(3000)))
    broker.clock.jump_wall(122_000)
    places: list[int] = []
    while int((await peer.ask(GetMaxOffset("T", 0))).offset) < 3000:
        places += [answer.physical_offset for answer in await peer.send(send("T", b"now", queue_id=1))]
    found = await everything(peer)
    assert [one.body for one in found] == [b"%d" % number for number in range(3000)]
    assert sum(found[0].physical_offset < place < found[-1].physical_offset for place in places) > 5


@pytest.mark.parametrize("by_snapshot", [True, False])
async def test_what_waits_survives_a_restart_and_what_came_does_not_come_again(tmp_path: Path, by_snapshot: bool) -> None:
    """C13: from the snapshot that a stop takes, or from the log alone; what fell due meanwhile comes at once."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        now_ms = broker.clock.wall_ms()
        await peer.send(delayed(b"first", DELAY=1), delayed(b"second", DELAY=3), delayed(b"third", TIMER_DELAY_SEC=60))
        await peer.send(delayed(b"never", TIMER_DELIVER_MS=now_ms + 30_000))
        await peer.send(delayed(b"stop", TIMER_DELIVER_MS=now_ms + 30_000, TIMER_DEL_UNIQKEY=b"never".hex()))
        await arrived(peer, broker.clock)
        await peer.close()
        await broker.stop_broker()
        if not by_snapshot:
            for path in (tmp_path / "rmq").glob("snapshot-*"):
                path.unlink()
        await broker.clock.advance(20)
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        assert [one.body for one in await arrived(peer, broker.clock, 2)] == [b"first", b"second"]
        assert [one.body for one in await arrived(peer, broker.clock, 3)][2] == b"third"
        await broker.clock.advance(10)
        assert len(await everything(peer)) == 3
        await peer.close()


async def test_a_wall_clock_set_back_delays_and_loses_nothing(broker: LocalBroker, peer: Peer) -> None:
    """C13: a timer waits for its hour; a level that would wait longer than its whole delay comes at once [RocketMQ]."""
    await peer.send(delayed(b"level", DELAY=5), delayed(b"timer", TIMER_DELAY_SEC=60))
    broker.clock.jump_wall(-3_600_000)
    assert [one.body for one in await arrived(peer, broker.clock)] == [b"level"]
    await peer.send(delayed(b"as ever", DELAY=2))
    assert [one.body for one in await arrived(peer, broker.clock, 2)] == [b"level", b"as ever"]
    broker.clock.jump_wall(3_600_000)
    await broker.clock.advance(1)
    assert len(await everything(peer)) == 2
    assert [one.body for one in await arrived(peer, broker.clock, 3)][2] == b"timer"


# --- groups -----------------------------------------------------------------------------------------------------------


async def test_timer_fired_then_failover_once(tmp_path: Path) -> None:
    """Story 38, C13: what the old leader handed on, and what it had only begun to hand on, is there exactly once."""
    disks = {name: HeldDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        at = group.clock.wall_ms() + 600_000
        await leader.send(delayed(b"handed on", DELAY=1), delayed(b"begun", TIMER_DELIVER_MS=at))
        await arrived(leader, group.clock)
        await group.level()
        for other in await group.followers():
            disks[other].full = True
        group.clock.jump_wall(600_000)
        begun = (await group.status(first)).end
        while (await group.status(first)).end == begun:
            await group.clock.advance(0.1)
        await group.stop(first)
        for disk in disks.values():
            disk.full = False
        leader = await group.connect(await group.leader())
        assert [one.body for one in await arrived(leader, group.clock, 2)] == [b"handed on", b"begun"]
        await group.start(first)
        for _ in range(30):
            await group.clock.advance(0.2)
        await group.level()
        for name, node in group.nodes.items():
            peer = await group.connect(name)
            assert [one.body for one in await everything(peer)] == [b"handed on", b"begun"]
            assert node.serving.tables.due.pending == 0, name


def service_of(broker: LocalBroker, internal_producer: type[InternalProducer]) -> tuple[DelayService, DueTable]:
    """A second one beside the broker's own, which stands still with the clock."""
    serving = broker.serving
    table, topics = serving.tables.due, serving.tables.topics
    made = internal_producer(serving.reader, topics, serving.writer)
    return DelayService(table, Cancelling(), made, serving.writer.commit, topics, broker.clock), table


@pytest.mark.parametrize("lost", [False, True])
async def test_one_that_cannot_be_read_holds_up_no_other(lost: bool) -> None:
    """It is tried again 10 s later; not if its end is being written by a leadership that was won since: it would come twice."""
    broken: set[int] = set()

    class Failing(InternalProducer):
        async def read_bytes(self, offsets: Sequence[int]) -> list[bytes]:
            if broken & set(offsets):
                raise StoreError("the device does not answer")
            return await super().read_bytes(offsets)

    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        [bad, _] = await peer.send(delayed(b"bad", DELAY=1), delayed(b"good", DELAY=1))
        service, table = service_of(broker, Failing)
        broken.add(bad.physical_offset)
        broker.clock.jump_wall(2000)
        await service.hand_on()
        await service.hand_on()
        assert [one.body for one in await everything(peer)] == [b"good"]
        broken.clear()
        if lost:
            table.drop_overlay()
            [_] = table.due(broker.clock.wall_ms(), 1)
        await broker.clock.advance(10)
        await service.hand_on()
        assert [one.body for one in await everything(peer)] == [b"good", b"bad"][: 1 if lost else 2]
        assert table.pending == lost
        await peer.close()


async def test_a_bite_of_a_leadership_that_was_lost_is_not_handed_on() -> None:
    """C13: while its records were read the leadership was lost and won again; the new leadership hands them on itself."""

    class Losing(InternalProducer):
        async def read_bytes(self, offsets: Sequence[int]) -> list[bytes]:
            found = await super().read_bytes(offsets)
            table.drop_overlay()
            return found

    async with LocalBroker(clock=TestClock(running=False)) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(delayed(DELAY=1))
        service, table = service_of(broker, Losing)
        broker.clock.jump_wall(2000)
        await service.hand_on()
        assert table.pending == 1
        assert await everything(peer) == []
        await arrived(peer, broker.clock)
        await peer.close()


async def test_every_node_knows_what_waits(tmp_path: Path) -> None:
    """D10: the same table everywhere, also at a node that was filled from the log or from its own snapshot."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        at = group.clock.wall_ms() + 3_600_000
        await leader.send(*[delayed(b"%d" % level, DELAY=level) for level in (1, 16, 17, 18)])
        await leader.send(*[delayed(b"%d" % after, TIMER_DELIVER_MS=at + after) for after in (0, 500, 5000)])
        [one, other] = await group.followers()
        await group.stop(one)
        await arrived(leader, group.clock)
        await group.stop(other)
        await group.start(one, other)
        await group.leader()
        await group.level()
        tables = [dict(sorted(node.serving.tables.due.committed().items())) for node in group.nodes.values()]
        assert tables[0] == tables[1] == tables[2]
        assert sum(len(row[0]) for row in tables[0].values()) == 6 * 8


# --- retention --------------------------------------------------------------------------------------------------------


async def test_delay_longer_than_retention_carried(tmp_path: Path) -> None:
    """Story 39: the log goes, what waits in it is written once more, and comes once, when it was due."""
    node = Node(tmp_path)
    node.settings = dataclasses.replace(node.settings, reserved_hours=1)
    await node.start()
    await node.peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    at = node.clock.wall_ms() + 5 * 3_600_000
    await node.peer.send(delayed(b"timer", TIMER_DELIVER_MS=at), delayed(b"level", DELAY=18), delayed(b"soon", DELAY=1))
    await node.peer.send(delayed(b"never", TIMER_DELIVER_MS=at))
    await node.peer.send(delayed(b"stop", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY=b"never".hex()))
    [level] = await everything(node.peer, DELAY_TOPIC, 17)
    while len(node.segments()) < 4:
        await node.peer.ask(send("T", b"x" * 900))
    await node.restart(1.2)
    await node.snapshots(2)
    await node.clock.advance_until(lambda: len(node.segments()) == 1, 10.0)
    again = await everything(node.peer, TIMER_TOPIC)
    assert [(one.body, said(one)["TIMER_ROLL_TIMES"]) for one in again] == [(b"timer", "1"), (b"never", "1"), (b"stop", "1")]
    begin = int((await node.peer.ask(GetMinOffset("T", 0))).offset)
    assert begin > 100
    [copy] = await everything(node.peer, DELAY_TOPIC, 17)
    due_ms = level_slot(level.store_timestamp, 7_200_000)
    assert (record.entry_code(copy), copy.store_timestamp > level.store_timestamp) == (due_ms, True), "RocketMQ reads it there"

    async def come() -> list[Record]:
        found = [one for one in await everything(node.peer) if one.queue_offset >= begin]
        return [one for one in found if one.body in (b"timer", b"level", b"never")]

    for count, moment in ((1, due_ms), (2, at)):
        node.clock.jump_wall(moment - 60_000 - node.clock.wall_ms())
        await node.clock.advance(1)
        assert len(await come()) == count - 1, "not before its time"
        node.clock.jump_wall(60_000)
        while len(found := await come()) < count:
            await node.clock.advance(0.1)
    assert (found[0].body, due_ms <= found[0].store_timestamp < due_ms + 1_800_000) == (b"level", True)
    assert (found[1].body, at <= found[1].store_timestamp) == (b"timer", True)
    await node.clock.advance(10)
    assert len(await come()) == 2
    await node.stop()


async def test_a_group_carries_what_waits_and_a_node_that_is_filled_anew_knows_it(tmp_path: Path) -> None:
    """Stories 39 and 46: the leader writes it once more, every node deletes then; a wiped one has it from the snapshot."""
    small: dict[str, Any] = {"max_message_bytes": 4096, "segment_bytes": 8192, "reserved_hours": 1}
    async with LocalGroup(tmp_path, delete_hours=tuple(range(24)), **small) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        at = group.clock.wall_ms() + 60 * 3_600_000
        [answer] = await leader.send(delayed(b"waits", TIMER_DELIVER_MS=at))
        await leader.send(*(send("T", b"x" * 2000) for _ in range(20)))
        await group.level()
        await group.stop("n0", "n1", "n2")  # takes a snapshot
        group.clock = group.later(hours=50)
        await group.start("n0", "n1", "n2")
        await group.leader()
        for name in group.nodes:  # a follower waits for the leader's copies
            while (await group.status(name)).log_start <= answer.physical_offset:
                for one in group.nodes:
                    await (await group.connect(one)).ask(DeleteExpiredLog())
                await group.level()
        victim = (await group.followers())[0]
        await group.stop(victim)
        group.wipe(victim)
        await group.start(victim)
        await group.level()
        assert group.nodes[victim].serving.tables.due.pending == 1
        group.clock.jump_wall(11 * 3_600_000)
        leader = await group.connect(await group.leader())
        while not (found := [one for one in await everything(leader) if one.body == b"waits"]):
            await group.clock.advance(0.1)
        assert (len(found), said(found[0])["TIMER_ROLL_TIMES"], found[0].store_timestamp >= at) == (1, "1", True)
        await group.level()
        assert [node.serving.tables.due.pending for node in group.nodes.values()] == [0, 0, 0]


async def test_our_client_sends_for_later_and_takes_back() -> None:
    """Results say how to take a timer back; a batch holds nothing that waits."""
    async with LocalBroker(recall_messages=True) as broker:
        await broker.create_topic("T", 1)
        async with broker.client() as client, client.producer() as producer:
            back = await producer.send(Message("T", b"back", delay_s=100))
            level = await producer.send(Message("T", b"level", delay_level=1))
            await producer.send(Message("T", b"timed", deliver_at_ms=broker.clock.wall_ms() + 2000))
            await producer.recall(back)
            assert not level.recall_handle
            with pytest.raises(Refusal, match="handle is invalid"):
                await producer.recall(level)
            with pytest.raises(InvalidArgument, match="send it alone"):
                await producer.send_batch([Message("T", b"a"), Message("T", b"b", delay_s=1)])
            async with client.consumer("g", topics={"T": "*"}, start="first") as consumer:
                got: list[bytes] = []
                moving = asyncio.create_task(broker.clock.advance(8))
                while len(got) < 2:
                    got += [message.body for message in await consumer.receive(timeout=10)]
                await moving
                broker.clock.jump_wall(100_000)
                await broker.clock.advance(2)
                got += [message.body for message in await consumer.receive(timeout=0.2)]
        assert got == [b"level", b"timed"]


async def test_a_promoted_slave_hands_on_what_waits(pair: Pair) -> None:
    """C13, fixed roles: from its own copy of the log, what the old master had handed on never again."""
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    master = await Peer.connect(pair.nodes[0].address)
    await master.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await master.send(delayed(b"before", DELAY=1), delayed(b"after", TIMER_DELAY_SEC=20))
    await arrived(master, pair.clock)
    await pair.level()
    await master.close()
    await pair.stop(0)
    promoted = await Peer.connect(pair.nodes[1].address)
    await promoted.ask(Promote())
    await pair.leads(1)
    assert [one.body for one in await arrived(promoted, pair.clock, 2, step_s=1.0)] == [b"before", b"after"]
    await pair.clock.advance(3)
    assert len(await everything(promoted)) == 2
    await promoted.close()
