"""Copies with fixed roles (RocketMQ's master and slaves) over real sockets."""

import asyncio
import gc
import shutil
from pathlib import Path

import pytest

from rmq.broker.adoption.tables import adopt
from rmq.broker.replication.roster import Registered
from rmq.client import Client, Message, SendStatus
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal, Unknown
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.records.record import host_bytes
from rmq.log.replicated import ReplicatedLog
from rmq.log.settings import StoreSettings
from rmq.log.units import Unit
from rmq.model import GroupConfig, MessageQueue, TopicConfig
from rmq.net.commands import GetRoute, GetRuntimeInfo, RegisterBroker, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.net.commands.locks import LockQueues
from rmq.net.commands.peers import GetGroupStatus, Promote, TransferLeader
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.network import TCP
from rmq.testing import TestClock, until
from tests.broker.helddisk import HeldDisk
from tests.broker.pair import Pair
from tests.broker.support import Peer, bodies, send
from tests.log.test_adoption import foreign
from tests.ports import free_port

TOPIC = UpdateTopic("N", read_queue_nums=1, write_queue_nums=1)


async def test_a_slave_copies_serves_reads_and_refuses_sends(pair: Pair) -> None:
    master = await pair.start(0, "ASYNC_MASTER")
    slave = await pair.start(1, "SLAVE")
    one, other = await Peer.connect(master.address), await Peer.connect(slave.address)
    await one.ask(TOPIC)
    await one.ask(send("N", b"a"))
    await pair.level()
    assert bodies(await other.pull("N", 0)) == [b"a"]
    assert await pair.told() == {0: master.address, 1: slave.address}
    with pytest.raises(Refusal) as refused:
        await other.ask(send("N", b"b"))
    assert (refused.value.code, refused.value.hint) == (ResponseCode.SERVICE_NOT_AVAILABLE, master.address)
    await one.close()
    await other.close()


@pytest.mark.parametrize(("leader", "taken"), [("n7", 7), ("n0", 1), ("127.0.0.1:10911", 1), ("n\N{SUPERSCRIPT TWO}", 1)])
def test_a_configured_master_that_follows_takes_an_id_among_the_slaves(leader: str, taken: int) -> None:
    """A digit that is no number, in the name that another broker gives itself, ended the task that looks for masters."""
    roster = Registered(NodeSettings(), "127.0.0.1:1", Dialer(TestClock(), TCP), lambda master: None)
    roster.make_way(leader)
    assert roster.broker_id == taken


async def test_a_slave_beside_a_master_of_rocketmq_says_what_to_do(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """RocketMQ's master registers at our nameserver, and does not know what nodes of ours ask it."""
    nameserver = await Peer.connect(pair.nameserver.address)
    nobody = f"127.0.0.1:{free_port()}"
    await nameserver.ask(RegisterBroker("DefaultCluster", "g", 0, nobody, 0, [TopicConfig("T")]))
    await pair.start(1, "SLAVE")
    with caplog.at_level("WARNING", "rmq.directory"):
        await pair.clock.advance_until(lambda: caplog.messages != [])
    assert caplog.messages == [
        f"g: the master at {nobody} gives this node no answer; "
        "if it is RocketMQ's, move it to rmq first: rmq's slaves copy from rmq's masters only"
    ]
    await nameserver.ask(GetRoute("T"))  # the slave, which has no topics yet, did not take its master's out of the routes
    await nameserver.close()


def rocketmq_writes(root: Path, topic: str, number: int, body: bytes) -> None:
    """Behind the end of our log, as RocketMQ does that was started there."""
    run = ownfiles.load_run(RealDisk(), f"{root}/rmq")
    assert run is not None
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(run.end)
        file.write(foreign(topic, number, run.end, body))


@pytest.mark.parametrize("forgotten", [False, True], ids=["visited", "own files gone"])
async def test_a_new_slave_copies_a_log_that_rocketmq_wrote_in(pair: Pair, forgotten: bool) -> None:
    """D7: bytes of RocketMQ carry no checksum of ours, wherever they stand. `forgotten`: as a slave of RocketMQ's copied them."""
    root = pair.folder / "0"
    settings = StoreSettings(host_bytes("127.0.0.1", 1), 16 << 20, group="g")
    await pair.start(0, "ASYNC_MASTER")
    await fill(pair, 0, b"a")
    for number, body in ((1, b"b"), (3, b"d")):
        await pair.stop(0)
        rocketmq_writes(root, "N", number, body)
        if forgotten:
            shutil.rmtree(root / "rmq")
        assert adopt(RealDisk(), str(root), settings, 1_800_000_000_000)
        await pair.start(0, "ASYNC_MASTER")
        await fill(pair, 0, b"ce"[number // 2 : number // 2 + 1])
    await pair.clock.advance(61)  # a snapshot is made each minute
    await pair.start(1, "SLAVE")
    await pair.level()
    assert await pair.read(1, "N") == [b"a", b"b", b"c", b"d", b"e"]
    await pair.stop(1)
    await pair.start(1, "SLAVE")
    await fill(pair, 0, b"f")
    await pair.level()
    assert await pair.read(1, "N") == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_a_sync_master_says_what_its_slaves_have(pair: Pair) -> None:
    """Docs/operators, what an answer means: 0 on two nodes, 12 stored here but late there, 11 no slave is there."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    disk = HeldDisk()
    await pair.start(1, "SLAVE", disk=disk, flush="sync")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    async with Client(pair.nameserver.address) as client, client.producer("p") as producer:
        assert (await producer.send(Message("N", b"a"))).status is SendStatus.SEND_OK
    await pair.level()
    assert (await peer.ask(GetRuntimeInfo())).table["sendTrouble"] == ""
    disk.flushes.clear()
    late = asyncio.create_task(peer.ask(send("N", b"b")))
    await pair.clock.advance_until(late.done)
    assert (await late).status == ResponseCode.FLUSH_SLAVE_TIMEOUT
    disk.flushes.set()
    await pair.stop(1)
    missing = asyncio.create_task(peer.ask(send("N", b"c")))  # its connection has ended: that is no time for a client to give up
    since = pair.clock.monotonic()
    await pair.clock.advance_until(missing.done)
    assert pair.clock.monotonic() - since < 3
    assert (await missing).status == ResponseCode.SLAVE_NOT_AVAILABLE
    told = (await peer.ask(GetRuntimeInfo())).table["sendTrouble"]
    assert "SLAVE_NOT_AVAILABLE: 2 nodes are to have each message" in told
    await peer.close()


async def test_a_sync_master_without_slaves_says_so_at_once(pair: Pair) -> None:
    """Each send waited for the next second: a producer that sends one after the other came to one a second."""
    pair.clock = TestClock(running=False)
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    await pair.clock.advance(2)  # it looks for slaves each second
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    assert [(await peer.ask(send("N", body))).status for body in (b"a", b"b")] == [ResponseCode.SLAVE_NOT_AVAILABLE] * 2
    await peer.close()


class FullDisk(RealDisk):
    used = 0.5

    def used_ratio(self, path: str) -> float:
        return self.used


async def test_a_sync_master_does_not_wait_for_a_slave_without_room(pair: Pair) -> None:
    """It copies nothing, and says so. Each send waited 5 s for it, longer than clients wait: all of them failed."""
    pair.clock = TestClock(running=False)
    disk = FullDisk()
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    await pair.start(1, "SLAVE", disk=disk)
    await pair.level()
    disk.used = 0.97
    while not any(member.disk_full for member in (await pair.status(0)).members):
        await pair.clock.advance(0.5)
    await pair.clock.advance(1)  # the master looks for slaves each second
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    assert [(await peer.ask(send("N", body))).status for body in (b"a", b"b")] == [ResponseCode.SLAVE_NOT_AVAILABLE] * 2
    assert "too few slaves are there and have room" in (await peer.ask(GetRuntimeInfo())).table["sendTrouble"]
    disk.used = 0.5
    await pair.level()
    assert await pair.read(1, "N") == [b"a", b"b"]
    await pair.clock.advance(1)
    last = asyncio.create_task(peer.ask(send("N", b"c")))
    await pair.clock.advance_until(last.done)
    assert (await last).status == ResponseCode.SUCCESS
    await peer.close()


async def test_a_sync_master_without_slaves_does_its_work(pair: Pair) -> None:
    """Pops, acknowledgements, commits and tools were refused ("outcome unknown"): consumers that pop, and all clients of gRPC,
    had nothing until a slave was back."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await peer.ask(UpdateGroup(GroupConfig("g")))
    await peer.ask(UpdateGroup(GroupConfig("c")))
    async with Client(pair.nameserver.address) as client, client.producer("p") as producer:
        assert (await producer.send(Message("N", b"a"))).status is SendStatus.SLAVE_NOT_AVAILABLE
        async with client.simple_consumer("g", "N", start="first") as consumer:
            (message,) = await consumer.receive(wait_seconds=20)
            await consumer.ack(message)
    await peer.ask(UpdateConsumerOffset("c", "N", 0, 1))
    await pair.start(1, "SLAVE")
    await pair.level()
    assert await pair.read(1, "N") == [b"a"]
    await peer.close()


async def test_a_master_keeps_nothing_of_what_it_answered_while_its_slave_is_away(pair: Pair) -> None:
    """It kept every message until the slave was back, and each second looked at all of them."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await pair.stop(1)
    await pair.clock.advance(11)
    sending = [asyncio.create_task(peer.ask(send("N", b"nobody copies it"))) for _ in range(20)]
    await pair.clock.advance_until(lambda: all(one.done() for one in sending))
    assert {one.result().status for one in sending} == {ResponseCode.SLAVE_NOT_AVAILABLE}
    units = [one for one in gc.get_objects() if isinstance(one, Unit)]
    assert not [one for one in units if b"nobody copies it" in one.records]
    await peer.close()


async def test_a_slave_is_promoted_by_hand(pair: Pair) -> None:
    """The master is gone: its slave opens an epoch of its own, takes sends, knows who locked what, and is told as
    the master."""
    await pair.start(0, "ASYNC_MASTER")
    slave = await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await peer.ask(UpdateGroup(GroupConfig("c")))
    await peer.ask(send("N", b"a"))
    queues = [MessageQueue("N", "g", 0)]
    assert (await peer.ask(LockQueues("c", "owner", queues))).queues == queues
    await peer.close()
    await pair.level()
    await pair.stop(0)
    peer = await Peer.connect(slave.address)
    assert await peer.refusal(LockQueues("c", "owner", queues)) == ResponseCode.SERVICE_NOT_AVAILABLE
    before = (await peer.ask(GetGroupStatus())).epoch
    await peer.ask(Promote())
    while (status := await pair.status(1)).epochs[-1].epoch == before or status.committed <= status.epochs[-1].start:
        await pair.clock.advance(0.1)
    status = await peer.ask(GetGroupStatus())
    assert (status.role, status.epoch) == ("leader", before + 1)
    await peer.ask(send("N", b"b"))
    assert bodies(await peer.pull("N", 0)) == [b"a", b"b"]
    assert (await peer.ask(LockQueues("c", "intruder", queues))).queues == []
    assert (await peer.ask(LockQueues("c", "owner", queues))).queues == queues
    await until_told(pair, {0: slave.address})
    await peer.close()


async def test_a_bug_in_what_follows_work_in_a_thread_ends_the_node(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would stand still, look alive, and nobody would hear why."""
    slave = await pair.start(1, "SLAVE")
    told = list[BaseException]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    monkeypatch.setattr(ReplicatedLog, "append_epoch", lambda *_: {}["a bug"])
    peer = await Peer.connect(slave.address)
    asking = asyncio.create_task(peer.ask(Promote()))  # its vote is saved first, in a thread
    await until(lambda: any(isinstance(error, AssertionError) for error in told))
    assert "a step of the group's machine broke off: KeyError('a bug')" in map(str, told)
    await peer.close()
    with pytest.raises(Unknown):
        await asking


async def until_told(pair: Pair, wanted: dict[int, str]) -> None:
    while await pair.told() != wanted:
        await pair.clock.advance(0.1)


async def test_a_slave_that_was_away_gets_what_it_missed(pair: Pair) -> None:
    master = await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    await pair.stop(1)
    peer = await Peer.connect(master.address)
    await peer.ask(TOPIC)
    for number in range(5):
        await peer.ask(send("N", b"%d" % number))
    await peer.close()
    again = await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(again.address)
    assert bodies(await peer.pull("N", 0)) == [b"0", b"1", b"2", b"3", b"4"]
    await peer.close()
    await until(lambda: again.serving.store.log.end == master.serving.store.log.end)


# --- an old master comes back -------------------------------------------------------------------------------------------


async def fill(pair: Pair, number: int, *messages: bytes) -> None:
    peer = await Peer.connect(pair.nodes[number].address)
    for message in messages:
        await peer.ask(send("N", message))
    await peer.close()


async def promote(pair: Pair, number: int) -> None:
    peer = await Peer.connect(pair.nodes[number].address)
    await peer.ask(Promote())
    await peer.close()
    await pair.leads(number)


def lost_files(pair: Pair, number: int) -> list[Path]:
    return sorted((pair.folder / str(number) / "rmq").glob("lost-*"))


async def diverged(pair: Pair) -> bytes:
    """The master died with what its slave does not have (its bytes are returned); the slave was promoted and took more."""
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await peer.close()
    await fill(pair, 0, b"both")
    await pair.level()
    await pair.stop(1)
    log = pair.nodes[0].serving.store.log
    parted = log.end
    await fill(pair, 0, b"lost 1", b"lost 2")
    gone = log.read(parted, log.end - parted)
    await pair.stop(0)
    await pair.start(1, "SLAVE")
    await promote(pair, 1)
    await fill(pair, 1, b"new 1", b"new 2")
    return gone


async def test_an_old_master_that_comes_back_becomes_a_slave_by_itself(pair: Pair) -> None:
    """With its unchanged configuration. What only it had is kept in a file, and it takes the number of the slave."""
    gone = await diverged(pair)
    old = await pair.start(0, "ASYNC_MASTER", wait=False)
    assert (await pair.status(0)).role == "follower", "not for a moment it took sends"
    with pytest.raises(Refusal) as refused:
        await fill(pair, 0, b"wrong")
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    await pair.level()
    new = pair.nodes[1]
    assert old.serving.store.log.read(0, old.serving.store.log.end) == new.serving.store.log.read(0, new.serving.store.log.end)
    assert await pair.read(0, "N") == await pair.read(1, "N") == [b"both", b"new 1", b"new 2"]
    assert b"".join(path.read_bytes() for path in lost_files(pair, 0)).startswith(gone)
    await until_told(pair, {0: new.address, 1: old.address})
    await fill(pair, 1, b"new 3")
    await pair.level()
    assert await pair.read(0, "N") == [b"both", b"new 1", b"new 2", b"new 3"]


async def test_a_running_master_gives_way_when_it_hears_of_a_newer_one(pair: Pair) -> None:
    """A slave is promoted while the master goes on: nobody writes to two logs for longer than a second."""
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await promote(pair, 1)
    while (await pair.status(0)).role == "leader":
        await pair.clock.advance(0.1)
    with pytest.raises(Refusal) as refused:
        await peer.ask(send("N", b"wrong"))
    await peer.close()
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    await pair.level()
    await until_told(pair, {0: pair.nodes[1].address, 1: pair.nodes[0].address})


async def test_two_masters_with_one_epoch_number_do_not_go_on_both(pair: Pair) -> None:
    """Story 54. The old one comes back while the nameserver is away, and opens the number that the promoted slave has too;
    then the nameserver keeps the first of them, and the other one becomes its slave."""
    await diverged(pair)
    await pair.nameserver.stop()
    await pair.start(0, "ASYNC_MASTER")
    await fill(pair, 0, b"old 1")
    assert (await pair.status(0)).epoch == (await pair.status(1)).epoch
    await pair.begin()
    await pair.level()
    roles = [(await pair.status(number)).role for number in (0, 1)]
    assert sorted(roles) == ["follower", "leader"]
    winner = roles.index("leader")
    assert lost_files(pair, 1 - winner)
    assert await pair.read(0, "N") == await pair.read(1, "N")
    await until_told(pair, {0: pair.nodes[winner].address, 1: pair.nodes[1 - winner].address})


async def test_a_promoted_slave_that_restarts_goes_on_as_master(pair: Pair) -> None:
    await diverged(pair)
    await pair.start(0, "ASYNC_MASTER", wait=False)
    await pair.level()
    await pair.stop(1)
    await pair.start(1, "SLAVE")
    await pair.leads(1)
    await fill(pair, 1, b"new 3")
    await pair.level()
    assert await pair.read(0, "N") == [b"both", b"new 1", b"new 2", b"new 3"]


async def test_a_slaves_former_disk_is_not_missed(pair: Pair) -> None:
    await pair.start(0, "ASYNC_MASTER")
    for _ in range(2):
        await pair.start(1, "SLAVE")
        await pair.level()
        await pair.stop(1)
        shutil.rmtree(pair.folder / "1")
    await pair.start(1, "SLAVE")
    while [member.node for member in (await pair.status(0)).members] != ["n0", "n1"]:
        await pair.clock.advance(1)


async def transfer(pair: Pair, master: int, slave: int) -> None:
    """As soon as the slave may lead: a new disk is proven first."""
    peer = await Peer.connect(pair.nodes[master].address)
    while await peer.ask_code(TransferLeader(f"n{slave}")):
        await pair.clock.advance(0.1)
    await peer.close()
    await pair.leads(slave)


async def test_handing_over_and_back_loses_nothing(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """TRANSFER: sends stop until the slave has everything, so its epoch is not lossy; and the way back is the same."""
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await fill(pair, 0, b"1", b"2")
    await transfer(pair, 0, 1)
    await fill(pair, 1, b"3")
    await until_told(pair, {0: pair.nodes[1].address, 1: pair.nodes[0].address})
    await pair.level()
    await transfer(pair, 1, 0)
    await fill(pair, 0, b"4")
    await pair.level()
    assert await pair.read(0, "N") == await pair.read(1, "N") == [b"1", b"2", b"3", b"4"]
    assert not any(row.lossy for row in (await pair.status(0)).epochs)
    assert not lost_files(pair, 0) + lost_files(pair, 1)
    await until_told(pair, {0: pair.nodes[0].address, 1: pair.nodes[1].address})
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []  # the ids change hands
    await peer.close()


async def test_what_a_sync_master_acknowledged_is_not_lost(pair: Pair) -> None:
    """It dies under load; whatever got SEND_OK is at the promoted slave, and stays there when the old master is back."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    acknowledged: list[bytes] = []

    async def produce(body: bytes) -> None:
        if (await peer.ask(send("N", body))).status == 0:
            acknowledged.append(body)

    sends = [asyncio.create_task(produce(b"%d" % number)) for number in range(30)]
    await until(lambda: len(acknowledged) >= 5)
    await pair.stop(0)
    await asyncio.gather(*sends, return_exceptions=True)
    await peer.close()
    await promote(pair, 1)
    await fill(pair, 1, b"new")
    await pair.start(0, "SYNC_MASTER", wait=False, in_sync_replicas=2)
    await pair.level()
    assert set(acknowledged) <= set(await pair.read(1, "N")) == set(await pair.read(0, "N"))


async def test_what_a_sync_master_stores_at_its_stop_is_copied(pair: Pair) -> None:
    """It refused its slaves from the beginning of its stop: sends in work ended with FLUSH_SLAVE_TIMEOUT or unknown."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await peer.ask(send("N", b"counted in a record at the stop"))
    await pair.level()
    await peer.close()
    before = (await pair.status(0)).end
    await pair.stop(0)
    assert (await pair.status(1)).end > before


async def test_a_sync_master_whose_slaves_are_gone_stops_while_it_waits_for_them(pair: Pair) -> None:
    """It never ended: what answers those who wait too long was stopped before they were."""
    await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    await pair.start(1, "SLAVE")
    await pair.level()
    peer = await Peer.connect(pair.nodes[0].address)
    await peer.ask(TOPIC)
    await peer.ask(UpdateGroup(GroupConfig("c")))
    await pair.stop(1)
    before = (await pair.status(0)).end
    peer.channel.post(UpdateConsumerOffset("c", "N", 0, 0))
    while (await pair.status(0)).end == before:
        await pair.clock.advance(0.3)
    await peer.close()
    stopping = asyncio.create_task(pair.stop(0))
    await asyncio.wait_for(pair.clock.advance_until(stopping.done), 20)
    await stopping
