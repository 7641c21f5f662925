"""Who may speak as a node of a group: the port, the address, the introduction, and only for itself."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.broker.replication.gate import Gate, Wall
from rmq.codes import ResponseCode as R
from rmq.config.settings import NodeSettings
from rmq.errors import InvalidArgument, Refusal
from rmq.net.commands import Request, UpdateTopic
from rmq.net.commands.peers import (
    AckLog,
    AddPeer,
    AnnounceLeader,
    AskVote,
    FetchLog,
    IntroducePeer,
    ReadLog,
    ReadSnapshot,
    ResignLeader,
)
from rmq.net.transport.server import Server
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.pair import Pair
from tests.broker.support import Peer, send
from tests.ports import free_port


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[LocalGroup]:
    async with LocalGroup(tmp_path) as group:
        yield group


def questions(node: str, store: str, run: int = 1, epoch: int = 2) -> list[Request]:
    """All that nodes say to each other."""
    return [
        FetchLog(1, GROUP, node, store, run, epoch, 0, 0, "", 0, 0, 0),
        AskVote(GROUP, epoch, node, store, 99, 1 << 40, False, True),
        AnnounceLeader(GROUP, epoch, node, "127.0.0.1:9", []),
        ResignLeader(GROUP, epoch, [node]),
        AckLog(GROUP, epoch, store, run, 1 << 40),
        ReadSnapshot(GROUP, 0, 0),
        ReadLog(GROUP, 0, 100),
    ]


async def runs(group: LocalGroup) -> dict[str, IntroducePeer]:
    """How each node introduces itself."""
    found = {name: (await group.status(name)).store for name in group.nodes}
    return {name: IntroducePeer(GROUP, name, store, 1) for name, store in found.items()}


async def test_the_clients_port_takes_nothing_of_what_nodes_say(group: LocalGroup) -> None:
    """However it is introduced: so a firewall around the peers' port protects the group."""
    leader = await group.leader()
    before = await group.status(leader)
    known, other = await runs(group), next(name for name in group.nodes if name != leader)
    client = await group.connect(leader)
    assert await client.refusal(known[other]) == R.NO_PERMISSION
    for question in questions(other, known[other].store, epoch=before.epoch + 1):
        assert await client.refusal(question) == R.NO_PERMISSION
    after = await group.status(leader)
    assert (after.epoch, after.leader) == (before.epoch, leader)


async def test_nobody_speaks_without_an_introduction(group: LocalGroup) -> None:
    leader = await group.leader()
    before = await group.status(leader)
    stranger = await Peer.connect(group.peer_address(leader))
    for question in questions("n7", "77", epoch=before.epoch + 1):
        assert await stranger.refusal(question) == R.NO_PERMISSION
    store = before.store
    for wrong, code in (
        (IntroducePeer("other", "n1", "77", 1), R.INVALID_PARAMETER),
        (IntroducePeer(GROUP, "n7", "77", 1), R.NO_PERMISSION),  # no member
        (IntroducePeer(GROUP, leader, "77", 1), R.NO_PERMISSION),  # the one that is asked
        (IntroducePeer(GROUP, next(name for name in group.nodes if name != leader), store, 1), R.NO_PERMISSION),  # its own disk
    ):
        assert await stranger.refusal(wrong) == code
    await stranger.close()
    assert (await group.status(leader)).epoch == before.epoch


async def test_the_log_tells_each_reason_but_no_repetition(group: LocalGroup, caplog: pytest.LogCaptureFixture) -> None:
    """One stranger, however loud, does not hide from the operator what keeps a node of his out."""
    stranger = await Peer.connect(group.peer_address(await group.leader()))
    for _ in range(3):
        for wrong in (IntroducePeer("other", "n1", "77", 1), IntroducePeer(GROUP, "n7", "77", 1)):
            await stranger.refusal(wrong)
    await stranger.close()
    told = [line.getMessage() for line in caplog.records if line.name == "rmq.gate"]
    assert [("not of 'other'" in line, "no member" in line) for line in told] == [(True, False), (False, True)]


async def test_a_node_speaks_only_for_itself(group: LocalGroup) -> None:
    """R7: what one connection acknowledges for another store would commit what nobody has."""
    leader = await group.leader()
    one, two = (name for name in group.nodes if name != leader)
    known = await runs(group)
    client = await group.connect(leader)
    await client.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await client.send(send("T"))
    epoch = (await group.status(leader)).epoch
    insider = await Peer.connect(group.peer_address(leader))
    assert await insider.refusal(known[one]._replace(store=known[two].store)) == R.NO_PERMISSION
    await insider.ask(known[one])
    for question in questions(two, known[two].store, epoch=epoch)[:5]:
        assert await insider.refusal(question) == R.NO_PERMISSION
    assert await insider.refusal(AckLog(GROUP, epoch, known[one].store, 2, 1 << 40)) == R.NO_PERMISSION, "another run of it"
    await insider.ask(AckLog(GROUP, epoch, known[one].store, 1, 0))
    older = await Peer.connect(group.peer_address(leader))
    assert await older.refusal(known[one]._replace(incarnation=0)) == R.NO_PERMISSION
    await insider.ask(known[one]._replace(incarnation=1 << 60))
    assert await older.refusal(known[one]) == R.NO_PERMISSION, "while a newer run is here"
    await insider.close()
    async with asyncio.timeout(30):
        while await older.ask_code(known[one]):
            await asyncio.sleep(0)
    await older.close()
    assert (await group.status(leader)).leader == leader


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ("n3", "nowhere"), ("n3", "10.0.0.1:0"), ("n3", "0.0.0.0:40911"), ("n3", "no-such-host.invalid:40911"), ("n 3", "h:1"),
        ("n3", "127.0.0.1:99999"), ("n3", "a b:1"), ("n3", ""),
    ],
)  # fmt: skip
async def test_a_node_is_added_only_where_it_can_be_reached(group: LocalGroup, node: str, address: str) -> None:
    """It goes into the log, and every node dials it."""
    admin = await group.connect(await group.leader())
    assert await admin.refusal(AddPeer(node, address)) == R.INVALID_PARAMETER


async def test_nor_at_the_address_of_another(group: LocalGroup) -> None:
    admin = await group.connect(await group.leader())
    assert await admin.refusal(AddPeer("n3", group.peer_address("n0"))) == R.SYSTEM_ERROR


async def test_nor_at_the_address_of_another_in_another_spelling(tmp_path: Path) -> None:
    """Another member answered there, so n3 became a voter that nobody can reach."""
    async with LocalGroup(tmp_path, spare=1) as group:
        first, other = await group.leader(), (await group.followers())[0]
        await group.start("n3")
        address = group.peer_address(other).replace("127.0.0.1", "localhost")
        with pytest.raises(Refusal, match=f"'{other}' answers at {address}, not 'n3'"):
            await (await group.connect(first)).ask(AddPeer("n3", address))
        assert {one.node for one in (await group.status(first)).members if one.voter} == {"n0", "n1", "n2"}


async def test_fixed_roles_on_a_port_of_their_own(pair: Pair) -> None:
    """haListenPort: copies go over it, and the clients' port takes nothing of what nodes say."""
    ports = [free_port(), free_port()]
    await pair.start(0, "ASYNC_MASTER", peer_port=ports[0])
    await pair.start(1, "SLAVE", peer_port=ports[1])
    master = await Peer.connect(pair.nodes[0].address)
    await master.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await master.send(send("T", b"copied"))
    await pair.level()
    assert await pair.read(1, "T") == [b"copied"]
    said = IntroducePeer("g", "n1", (await pair.status(1)).store, 1 << 40)
    assert await master.refusal(said) == R.NO_PERMISSION
    await master.close()
    inside = await Peer.connect(f"127.0.0.1:{ports[0]}")
    assert await inside.refusal(FetchLog(1, "g", "n1", said.store, 1, 1, 0, 0, "", 0, 0, 0)) == R.NO_PERMISSION
    assert await inside.ask_code(said) == 0
    await inside.close()


async def introduced(addresses: tuple[str, ...], sources: tuple[str, ...] = (), ports: tuple[int, ...] = ()) -> int:
    """The code for a node that comes from 127.0.0.1; 0: let in."""
    gate = Gate(Wall("g", "own", ports, sources), lambda node: addresses)
    server = Server({IntroducePeer: gate.introduce})
    host, port = await server.listen("127.0.0.1", 0)
    peer = await Peer.connect(f"{host}:{port}")
    try:
        return await peer.ask_code(IntroducePeer("g", "n1", "s", 1))
    finally:
        await peer.close()
        await server.close(0)


async def test_where_nodes_come_from() -> None:
    assert await introduced(("127.0.0.1:40911",)) == 0
    assert await introduced(("localhost:40911",)) == 0
    assert await introduced(("192.0.2.7:40911", "127.0.1.1:40911")) == 0, "a machine's own name may stand for any loopback"
    assert await introduced(("192.0.2.7:40911",)) == R.NO_PERMISSION
    assert await introduced(("no-such-host.invalid:40911",)) == R.NO_PERMISSION
    assert await introduced(("192.0.2.7:40911",), sources=("10.0.0.0/8", "127.0.0.0/30")) == 0
    assert await introduced((), sources=("127.0.0.0/30",)) == R.NO_PERMISSION, "no member"
    assert await introduced(("127.0.0.1:40911",), ports=(1,)) == R.NO_PERMISSION


async def test_one_port_for_both_by_setting(tmp_path: Path) -> None:
    """Small installations."""
    with pytest.raises(InvalidArgument, match="peers_on_client_port"):
        NodeSettings(elected=True, node_id="n0", peers=("n0-127.0.0.1:10911",), listen_port=10911)
    async with LocalGroup(tmp_path, one_port=True, peers_on_client_port=True) as group:
        client = await group.connect(await group.leader())
        await client.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        assert (await client.send(send("T")))[0].queue_offset == 0


async def test_a_master_that_finds_no_nameserver_says_why_it_does_not_know_its_slave(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """It told the operator to add the slave, which no group with fixed roles does."""
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    await pair.level()
    await pair.stop(0)
    await pair.nameserver.stop()
    await pair.start(0, "ASYNC_MASTER", wait=False)
    await pair.clock.advance_until(lambda: "that it is node 'n1'" in caplog.text)
    assert "node 'n1' is no member of this group: no nameserver that answers knows it (namesrvAddr)" in caplog.text
