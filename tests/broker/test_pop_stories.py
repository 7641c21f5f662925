"""Stories of POP: nobody's place moves without a receipt, nothing acknowledged comes back, whoever leads and whatever stops."""

import asyncio
from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.net.commands import DeleteExpiredLog, GetConsumeStats, GetMaxOffset, GetMinOffset, UpdateTopic
from rmq.net.commands.peers import Promote, TransferLeader
from rmq.net.commands.pop import Ack, AckedRange, BatchAck
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import SHORT_LIVED, LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.pair import Pair
from tests.broker.popping import Popped, ack, bodies, change, pop, take
from tests.broker.support import Peer, send
from tests.broker.test_repair import damage_and_repair


async def leading(group: LocalGroup, *, but: str = "") -> Peer:
    return await group.connect(await group.leader(but=but))


async def begun(group: LocalGroup, *messages: bytes) -> Peer:
    """The leader, with a topic T of one queue that holds them."""
    leader = await leading(group)
    await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await leader.send(*(send("T", body) for body in messages))
    return leader


async def place(peer: Peer) -> int:
    """The next message for the group."""
    return int((await peer.ask(GetConsumeStats("g", "T"))).queues[0].consumer_offset)


async def pass_time(group: LocalGroup, seconds: float) -> None:
    """In steps that let the nodes hear of each other, so that nobody misses the leader."""
    until_s = group.clock.monotonic() + seconds
    while group.clock.monotonic() < until_s:
        await group.clock.advance(0.5)
        await group.level()


async def come_back(group: LocalGroup, peer: Peer, count: int) -> list[Popped]:
    found: list[Popped] = []
    for _ in range(100):
        found += await take(peer.ask, hidden_ms=600_000)
        if len(found) >= count:
            break
        await pass_time(group, 1)
    return found


async def test_pop_cursor_never_without_receipt(tmp_path: Path) -> None:
    """Story 41, C10: the receipt was written and not committed when the majority went. Nobody is shown a message, and whether
    its record outlives the change of leaders or not, place and receipt are there together or not at all."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group, b"1", b"2", b"3")
        await group.level()
        first = await group.leader()
        followers = await group.followers()
        await group.stop(*followers)
        popping = asyncio.create_task(leader.ask_code(pop(count=2, hidden_ms=5000)))
        await group.clock.advance_until(popping.done)
        assert popping.result() in (R.SYSTEM_ERROR, R.SERVICE_NOT_AVAILABLE), "not answered before it is committed"
        await group.start(*followers)
        await group.clock.advance(3)
        leader = await leading(group)
        await group.level()
        moved = await place(leader)
        assert moved in (0, 2), first
        assert sorted(bodies(await come_back(group, leader, 3))) == [b"1", b"2", b"3"]


async def test_pop_cursor_goes_back_with_the_receipt_that_was_cut(tmp_path: Path) -> None:
    """Story 41: the old leader alone wrote it; the others elect one that does not know it, and the message goes out there."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group, b"1", b"2")
        await group.level()
        first, followers = await group.leader(), await group.followers()
        await group.stop(*followers)
        popping = asyncio.create_task(leader.ask_code(pop(count=1)))
        await group.clock.advance_until(popping.done)
        await group.stop(first)
        await group.start(*followers)
        await group.clock.advance(3)
        leader = await leading(group)
        assert (await place(leader), bodies(await take(leader.ask))) == (0, [b"1", b"2"])
        await group.start(first)
        await group.clock.advance(1)
        await group.level()
        await (await group.connect(await group.leader())).ask(TransferLeader(first))
        leader = await leading(group, but=await group.leader()) if await group.leader() != first else await group.connect(first)
        assert (await place(leader), await take(leader.ask)) == (2, [])


async def test_receipts_outlive_their_leader(tmp_path: Path) -> None:
    """Story 41, C10: what was acknowledged stays away, what was not comes back once, handed on by the next leader."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group, *(b"%d" % number for number in range(6)))
        taken = await take(leader.ask, hidden_ms=20_000)
        await ack(leader.ask, *taken[:2])
        later = await change(leader.ask, taken[2], 600_000)
        first = await group.leader()
        await group.stop(first)
        leader = await leading(group, but=first)
        assert (await place(leader), await take(leader.ask)) == (6, [])
        await ack(leader.ask, taken[3])
        back = await come_back(group, leader, 2)
        assert sorted(bodies(back)) == [b"4", b"5"]
        await ack(leader.ask, *back, later)
        await group.start(first)
        await pass_time(group, 5)
        await group.level()
        ends = {int((await (await group.connect(name)).ask(GetMaxOffset("%RETRY%g_T", 0))).offset) for name in group.nodes}
        assert ends == {2}, "each came back once, and every node has the same"


async def test_a_leader_that_may_be_none_does_not_say_that_there_is_nothing_to_acknowledge(tmp_path: Path) -> None:
    """R11: another leader may have handed out what this one does not know."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group, b"1", b"2")
        (one,) = await take(leader.ask, count=1)
        (ordered,) = await take(leader.ask, count=1, order=True, group="o")
        await ack(leader.ask, one, one)
        await ack(leader.ask, ordered, group="o")
        of_another = "0 1 60000 0 0 RaftNode00 0 0", "0 1 60000 999 0 RaftNode00 0 0"
        repeated = [Ack("g", "T", 0, handle, 0) for handle in (one.handle, *of_another)]
        some = [AckedRange("g", "T", "0", 0, 0, revive_queue, 1, 60_000, b"\1") for revive_queue in (0, 999)]
        asked = [*repeated, *(BatchAck("RaftNode00", [each]) for each in some)]
        for request in asked:
            await leader.ask(request)
        await group.stop(*await group.followers())
        await group.clock.advance(2)
        for request in asked:
            assert await leader.ask_code(request) == R.SERVICE_NOT_AVAILABLE, request


async def test_an_acknowledgement_that_is_being_written_is_not_promised_to_who_repeats_it(tmp_path: Path) -> None:
    """D1, C10: both are answered when it is on the disk. Meanwhile an ordered queue is closed."""
    disk = HeldDisk()
    async with LocalGroup(tmp_path, count=1, disks={"n0": disk}, flush="sync") as group:
        peer = await begun(group, b"1", b"2")
        first, last = await take(peer.ask, count=2)
        ordered = await take(peer.ask, count=2, order=True, group="o")
        disk.flushes.clear()
        answers = [asyncio.create_task(ack(peer.ask, one)) for one in (first, first, last)]
        answers.append(asyncio.create_task(ack(peer.ask, *ordered, group="o")))
        log = group.nodes["n0"].serving.store.log
        end = log.end
        await until(lambda: log.end > end)
        try:
            answers += [asyncio.create_task(ack(peer.ask, one)) for one in (first, first, last)]
            assert await take(peer.ask, order=True, group="o") == []
            assert not any(answer.done() for answer in answers)
        finally:
            disk.flushes.set()
        await asyncio.gather(*answers)
        await peer.send(send("T", b"3"))
        assert bodies(await take(peer.ask, order=True, group="o")) == [b"3"]


async def test_a_receipt_that_is_late_keeps_its_messages_from_others(tmp_path: Path) -> None:
    """C5, C10: nobody is shown them while nobody knows whether its record is committed. A second receipt would give what was
    acknowledged by it back to the group when the first one ends."""
    disk = HeldDisk()
    async with LocalGroup(tmp_path, count=1, disks={"n0": disk}, flush="sync") as group:
        peer, other = await begun(group, b"1", b"2"), await leading(group)
        first = await take(peer.ask, count=1)
        assert bodies(first) == [b"1"]
        await ack(peer.ask, *first)
        disk.flushes.clear()
        late = asyncio.create_task(peer.ask_code(pop(count=1, hidden_ms=20_000)))
        await group.clock.advance_until(late.done)
        assert await late == R.SYSTEM_ERROR, "outcome unknown"
        again = asyncio.create_task(take(other.ask))
        await other.ask(GetMaxOffset("T", 0))  # it was looked at
        await asyncio.sleep(0)
        disk.flushes.set()
        await group.clock.advance_until(again.done)
        assert await again == [], "they are the first one's, in case it is committed"
        await pass_time(group, 2)
        await other.send(send("T", b"3"))
        last = await take(other.ask)
        assert bodies(last) == [b"3"], "now the queue is free again, behind it"
        await ack(other.ask, *last)
        assert [(one.body, one.tries) for one in await come_back(group, other, 1)] == [(b"2", 1)]


async def test_an_attempt_in_order_that_is_late_is_given_nothing_else(tmp_path: Path) -> None:
    """Its client repeats it until it is known: with messages of another queue in hand it asked for these no more, and they stood
    still until their time was over."""
    disk = HeldDisk()
    async with LocalGroup(tmp_path, count=1, disks={"n0": disk}, flush="sync") as group:
        peer, asked = await begun(group), pop(order=True, attempt_id="x", poll_ms=30_000)
        assert await take(peer.ask, order=True) == []
        await peer.send(send("T", b"1"))
        disk.flushes.clear()
        late = asyncio.create_task(peer.ask_code(asked))
        await group.clock.advance_until(late.done)
        assert await late == R.SYSTEM_ERROR, "outcome unknown"
        again = asyncio.create_task(peer.ask_code(asked))
        try:
            await group.clock.advance_until(again.done)
            assert await again == R.SYSTEM_ERROR
        finally:
            disk.flushes.set()
        await group.level()
        assert bodies(await take(peer.ask, asked)) == [b"1"]


HOUR_MS = 3_600_000


async def test_a_receipt_keeps_its_segment_until_it_is_ended_early(tmp_path: Path) -> None:
    """C10, D15: a popped message whose segment is to be deleted comes back before that, however long it was to be hidden."""
    async with LocalBroker(store_dir=tmp_path, **SHORT_LIVED) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(send("T", b"early"), send("T", b"acked"), send("T", b"soon"), send("T", b"never popped"))
        early, acked = await take(peer.ask, count=2, hidden_ms=48 * HOUR_MS)
        await take(peer.ask, count=1, hidden_ms=3 * HOUR_MS + 20_000)
        await ack(peer.ask, acked)
        await peer.send(*(send("T", b"x" * 2000) for _ in range(20)))
        await broker.stop_broker()  # takes a snapshot
        broker.clock = TestClock(wall_ms=broker.clock.wall_ms() + 3 * HOUR_MS)
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        await peer.ask(DeleteExpiredLog())
        assert (await peer.ask(GetMinOffset("T", 0))).offset == 0, "what ends soon is waited for"
        looked = await take(peer.ask, count=1, queue_id=0)  # perhaps what has come back already
        assert bodies(looked) != [b"never popped"], "what is about to go is handed out no more"
        await broker.clock.advance(30)
        await peer.ask(DeleteExpiredLog())
        assert (await peer.ask(GetMinOffset("T", 0))).offset > 3
        back = [one for one in looked + await take(peer.ask) + await take(peer.ask) if one.topic != "T"]
        assert sorted((one.body, one.tries) for one in back) == [(b"early", 1), (b"soon", 1)]
        assert await peer.ask_code(Ack("g", "T", 0, early.handle, early.queue_offset)) == 208, "it is gone there"
        await ack(peer.ask, *back)
        await peer.close()


@pytest.mark.parametrize("order", [False, True])
async def test_what_was_deleted_by_age_is_no_lag(tmp_path: Path, order: bool) -> None:
    """Where nothing came behind it, tools showed it as lag of the group for ever."""
    async with LocalBroker(store_dir=tmp_path, **SHORT_LIVED) as broker:
        for topic in ("T", "Filler"):
            await broker.create_topic(topic, 1)
        peer = await Peer.connect(broker.address)
        await peer.send(*(send("T", b"%d" % number) for number in range(4)))
        await ack(peer.ask, *await take(peer.ask, count=1, order=order))
        await peer.send(*(send("Filler", b"x" * 2000) for _ in range(20)))
        await broker.stop_broker()
        broker.clock = TestClock(wall_ms=broker.clock.wall_ms() + 3 * HOUR_MS)
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        await peer.ask(DeleteExpiredLog())
        await broker.clock.advance_until(lambda: broker.serving.store.queues.look("T", 0).min == 4)
        assert await place(peer) == 1
        assert await take(peer.ask, order=order) == []
        assert await place(peer) == 4
        await peer.close()


async def test_what_ends_soon_is_waited_for_each_time(broker: LocalBroker, peer: Peer) -> None:
    """D15: also where files had to wait for a receipt some day before; each two minutes of it count for themselves."""
    log = broker.serving.store.log
    for body in (b"one day", b"the next"):
        await peer.send(send("T", body))
        [taken] = await take(peer.ask, hidden_ms=30_000)
        assert taken.body == body
        await broker.serving.carry_forward(log.end)
        assert await take(peer.ask) == [], "it has its time"
        await ack(peer.ask, taken)
        await broker.clock.advance(90)
        broker.clock.jump_wall(24 * HOUR_MS)


async def test_receipts_with_fixed_roles(pair: Pair) -> None:
    """C10: a slave hands out nothing, knows every receipt, and brings back what is over once it is promoted."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=1)
    await pair.start(1, "SLAVE")
    master = await Peer.connect(pair.nodes[0].address)
    await master.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await master.send(*(send("T", body) for body in (b"1", b"2", b"3")))
    one, two = await take(master.ask, count=2, hidden_ms=5000)
    await ack(master.ask, one)
    await pair.level()
    slave = await Peer.connect(pair.nodes[1].address)
    assert await slave.refusal(pop()) == R.SERVICE_NOT_AVAILABLE
    assert await slave.refusal(Ack("g", "T", 0, two.handle, two.queue_offset)) == R.SERVICE_NOT_AVAILABLE
    await master.close()
    await pair.stop(0)
    await slave.ask(Promote())
    await pair.leads(1)
    assert bodies(await take(slave.ask)) == [b"3"]
    back: list[Popped] = []
    while not back:
        await pair.clock.advance(1)
        back = await take(slave.ask)
    assert bodies(back) == [b"2"]
    await slave.close()


async def test_order_outlives_the_leader(tmp_path: Path) -> None:
    """As C9: what one leader handed out in order keeps the queue closed at the next one, until it is acknowledged there."""
    async with LocalGroup(tmp_path) as group:
        leader = await begun(group, b"1", b"2", b"3")
        one, two = await take(leader.ask, count=2, order=True)
        await ack(leader.ask, one)
        first = await group.leader()
        await group.stop(first)
        leader = await leading(group, but=first)
        assert (await place(leader), await take(leader.ask, order=True)) == (1, [])
        await ack(leader.ask, two)
        assert bodies(await take(leader.ask, order=True)) == [b"3"]
        await group.start(first)
        await pass_time(group, 70)
        assert bodies(await take((await leading(group)).ask, order=True)) == [b"3"]


async def test_what_a_repair_gave_up_keeps_no_receipt_open(tmp_path: Path) -> None:
    """D8: one of the messages that somebody had was lost with its bytes; the others come back, and nothing is waited for."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(*(send("T", b"%d" % number) for number in range(5)))
        assert len(await take(peer.ask, hidden_ms=5000)) == 5
        await peer.close()
        await broker.stop_broker()
        damage_and_repair(tmp_path)
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        back: list[Popped] = []
        while len(back) < 4:
            await broker.clock.advance(2)
            back += await take(peer.ask)
        assert sorted(bodies(back)) == [b"0", b"1", b"3", b"4"]
        await ack(peer.ask, *back)
        await broker.clock.advance(2)
        assert not broker.serving.tables.receipts.committed()
        await peer.close()
