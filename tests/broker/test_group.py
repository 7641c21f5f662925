"""An elected group of three over real sockets: what clients see before, during and after a change of leader."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq.client import Message
from rmq.codes import ResponseCode
from rmq.commands.shared import exits
from rmq.commands.store.store import distrust
from rmq.errors import Refusal
from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import load_progress
from rmq.log.files.snapshot import Snapshots
from rmq.model import DataVersion, GroupConfig, MessageQueue
from rmq.net.commands import (
    CODES,
    DeleteExpiredLog,
    DeleteGroup,
    DeleteTopic,
    GetClusterInfo,
    GetGroupConfig,
    GetMaxOffset,
    GetTopicConfig,
    QueryConsumerOffset,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.link import BeginLogin, FinishLogin, SignedLogin
from rmq.net.commands.locks import LockQueues
from rmq.net.commands.peers import AddPeer, RemovePeer, TransferLeader
from rmq.net.commands.pop import SetRequestMode
from rmq.net.commands.timers import Recall
from rmq.requests import REQUESTS, Served
from rmq.testing import until
from tests.broker.groups import GROUP, SHORT_LIVED, LocalGroup, fill_and_restart_later
from tests.broker.javaclient import JavaClient
from tests.broker.support import Peer, beat, bodies, send

NOT_HERE = ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[LocalGroup]:
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        yield group


async def test_what_a_follower_saves_at_its_stop_is_one_state(group: LocalGroup) -> None:
    """RocketMQ's files beside the log say what the log does: nothing comes from the leader between the one and the other."""
    leader = await group.connect(await group.leader())
    stop = asyncio.Event()

    async def change() -> None:
        while not stop.is_set():
            await leader.ask(UpdateTopic("Fleeting", read_queue_nums=1, write_queue_nums=1))
            await leader.ask(DeleteTopic("Fleeting"))

    changing = asyncio.create_task(change())
    name = (await group.followers())[0]
    for _ in range(8):
        await group.stop(name)
        told = json.loads((group.store(name) / "config/topics.json").read_bytes())
        saved = Snapshots(RealDisk(), f"{group.store(name)}/rmq")
        rows = [row for section, some in saved.rows() if section == "table topic" for row in some]
        (version,) = [version for section, version in saved.rows() if section == "version topic"]
        assert sorted(told["topicConfigTable"]) == sorted(key for key, _ in rows)
        assert told["dataVersion"] == DataVersion(*version).json()
        progress = load_progress(RealDisk(), f"{group.store(name)}/rmq")
        assert saved.newest
        assert progress
        assert saved.newest.s0 == progress.hw
        await group.start(name)
        await group.caught_up(name)
    stop.set()
    await changing


async def test_a_rolling_restart_under_load_fails_no_send(group: LocalGroup) -> None:
    """L1: every node is stopped in order and started again, the leader hands leadership over."""
    sent, stop = [], asyncio.Event()

    async def produce() -> None:
        async with group.client() as client:
            producer = client.producer("p")
            while not stop.is_set():
                result = await producer.send(Message("T", b"%d" % len(sent)))
                sent.append(result.queue_offset)

    producing = asyncio.create_task(produce())
    for name in ("n0", "n1", "n2"):
        enough = len(sent) + 50
        await until(lambda enough=enough: len(sent) > enough or producing.done())  # type: ignore[misc]
        await group.stop(name)
        await group.start(name)
        await group.caught_up(name)
    stop.set()
    await producing
    assert sent == list(range(len(sent)))
    await group.level()
    for name in group.nodes:
        peer = await group.connect(name)
        assert (await peer.ask(GetMaxOffset("T", 0))).offset == len(sent)


async def test_a_follower_refuses_what_only_the_leader_may_do_and_serves_what_is_committed(group: LocalGroup) -> None:
    """14 means not stored, the hint is where to go; R3. What is not known here may be there: a follower that lacked a topic said
    that it is deleted."""
    name = await group.leader()
    leader, address = await group.connect(name), group.nodes[name].address
    await leader.ask(send("T", b"good"))
    await group.level()
    for other in await group.followers():
        follower = await group.connect(other)
        for request in (
            send("T", b"bad"), UpdateTopic("U"), DeleteTopic("unknown"), UpdateGroup(GroupConfig("g")), DeleteGroup("unknown"),
            UpdateConsumerOffset("g", "T", 0, 1), SetRequestMode("unknown", "g", "POP", 0), Recall("unknown", "handle", "g"),
        ):  # fmt: skip
            with pytest.raises(Refusal) as refused:
                await follower.ask(request)
            assert (refused.value.code, refused.value.hint) == (NOT_HERE, address), request
        assert bodies(await follower.pull("T", 0)) == [b"good"]
    assert bodies(await leader.pull("T", 0)) == [b"good"]


async def test_a_member_serves_what_the_table_of_requests_says(group: LocalGroup) -> None:
    served = group.nodes["n0"].serving.front.server.handlers
    login = {BeginLogin, FinishLogin, SignedLogin}  # served where users are asked for
    wrong = [kind for kind, code in CODES.items() if (kind in served) == (REQUESTS[code].served is Served.ELSEWHERE)]
    wrong = [kind for kind in wrong if kind not in login]
    assert not wrong


async def test_topics_groups_and_offsets_survive_a_change_of_leader(group: LocalGroup) -> None:
    """C5, R21: and a topic that was deleted stays so; made again it begins at 0 at every node."""
    first = await group.leader()
    leader = await group.connect(first)
    await leader.ask(UpdateTopic("N", read_queue_nums=3, write_queue_nums=2))
    await leader.ask(UpdateGroup(GroupConfig("g", retry_max_times=3)))
    await leader.send(send("T", b"old", count=3), send("N", b"kept", count=2))
    await leader.ask(UpdateConsumerOffset("g", "N", 0, 2))
    await leader.ask(DeleteTopic("T"))
    await leader.ask(TransferLeader())
    second = await group.leader(but=first)
    leader = await group.connect(second)
    assert (await leader.ask(GetTopicConfig("N"))).read_queue_nums == 3
    assert (await leader.ask(GetGroupConfig("g"))).retry_max_times == 3
    assert (await leader.ask(QueryConsumerOffset("g", "N", 0))).offset == 2
    assert await leader.refusal(GetTopicConfig("T")) == ResponseCode.TOPIC_NOT_EXIST
    await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    assert (await leader.send(send("T", b"new")))[0].queue_offset == 0
    await group.level()
    for name in group.nodes:
        assert bodies(await (await group.connect(name)).pull("T", 0)) == [b"new"]


async def test_without_a_majority_a_send_is_unknown_and_reads_go_on(group: LocalGroup) -> None:
    """58, R11: never 14 for what may be stored; and nothing is answered as stored any more."""
    name = await group.leader()
    leader = await group.connect(name)
    await leader.ask(send("T", b"good"))
    await group.level()
    await group.stop(*await group.followers())
    with pytest.raises(Refusal) as unknown:
        await leader.ask(send("T", b"nobody knows"))
    assert unknown.value.code == ResponseCode.SYSTEM_ERROR
    assert unknown.value.remark.startswith("outcome unknown")
    assert await leader.refusal(send("T", b"refused")) == NOT_HERE
    assert (await group.status(name)).role != "leader"
    assert bodies(await leader.pull("T", 0)) == [b"good"]


async def test_a_leader_whose_machine_slept_answers_no_reads_until_a_majority_confirms_it(group: LocalGroup) -> None:
    """T2: its lease was as good as before by a clock that stands still with the machine, and others may have elected another."""
    membership = group.nodes[await group.leader()].serving.membership
    await until(lambda: membership.in_touch)
    group.clock.suspend(60)
    assert not membership.in_touch
    members = [node.serving.membership for node in group.nodes.values()]
    await until(lambda: any(each.leads and each.in_touch for each in members))  # the same one, or another


async def test_all_stopped_and_started_again(group: LocalGroup) -> None:
    """N2: the epoch grows, nothing is lost, and what a consumer told is not 0 again (C5)."""
    leader = await group.connect(await group.leader())
    await leader.ask(send("T", b"good"))
    await leader.ask(UpdateGroup(GroupConfig("g")))
    await leader.ask(UpdateConsumerOffset("g", "T", 0, 1))
    epoch = (await group.status("n0")).epoch
    await group.stop("n0", "n1", "n2")
    await group.start("n0", "n1", "n2")
    leader = await group.connect(await group.leader())
    assert (await group.status("n0")).epoch > epoch
    assert (await leader.ask(QueryConsumerOffset("g", "T", 0))).offset == 1
    assert bodies(await leader.pull("T", 0)) == [b"good"]
    assert (await leader.send(send("T")))[0].queue_offset == 1


async def test_leadership_goes_where_an_administrator_wants_it(group: LocalGroup) -> None:
    """A node that is not there, or not the leader, says so."""
    for wanted in await group.followers():
        leader = await group.connect(await group.leader())
        await leader.ask(TransferLeader(wanted))
        assert await group.leader() == wanted
    with pytest.raises(Refusal, match="n7"):
        await (await group.connect(wanted)).ask(TransferLeader("n7"))
    await group.level()
    found = await group.status(wanted)
    assert (found.role, found.node, found.leader, found.proven, found.lease_good) == ("leader", wanted, wanted, True, True)
    assert {one.node for one in found.members if one.voter} == {"n0", "n1", "n2"}
    assert all(one.lag == 0 for one in found.members)


async def test_a_node_joins_and_another_leaves(tmp_path: Path) -> None:
    """R22: one at a time; the newcomer has everything, the one that left leads no more."""
    async with LocalGroup(tmp_path, spare=1) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(send("T", b"good"))
        await group.start("n3")
        await leader.ask(AddPeer("n3", group.peer_address("n3")))
        await leader.ask(TransferLeader("n3"))
        assert await group.leader(but=first) == "n3", "the others find it by the log only, their settings do not have it"
        await group.level()
        await (await group.connect("n3")).ask(TransferLeader(first))
        assert await group.leader(but="n3") == first
        await group.level()
        await leader.ask(RemovePeer(first))
        second = await group.leader(but=first)
        voters = {one.node for one in (await group.status(second)).members if one.voter}
        assert voters == {"n0", "n1", "n2", "n3"} - {first}
        await group.stop(first)
        await group.level()
        assert bodies(await (await group.connect("n3")).pull("T", 0)) == [b"good"]
        assert (await (await group.connect(second)).send(send("T")))[0].queue_offset == 1


async def test_a_node_that_was_removed_and_runs_on_leaves_the_routes(tmp_path: Path) -> None:
    """Clients that read at followers were sent to one that gets nothing any more."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.leader()
        removed, other = await group.followers()
        await group.level()
        await (await group.connect(leader)).ask(RemovePeer(removed))
        names, registered = await Peer.connect(group.nameserver), set[str]()
        async with asyncio.timeout(60):
            while registered != {group.nodes[leader].address, group.nodes[other].address}:
                await group.clock.advance(10)
                [found] = (await names.ask(GetClusterInfo())).brokers
                registered = set(found.addresses.values())
        await (await group.connect(await group.leader())).ask(AddPeer(removed, group.peer_address(removed)))
        async with asyncio.timeout(60):
            while len(registered) < 3:
                await group.clock.advance(10)
                [found] = (await names.ask(GetClusterInfo())).brokers
                registered = set(found.addresses.values())
        await names.close()


async def test_nodes_that_came_one_after_the_other_have_ids_of_their_own(tmp_path: Path) -> None:
    """Each lists those that were there when it came. The nameserver takes all of them."""
    async with LocalGroup(tmp_path, spare=2) as group:
        names = await Peer.connect(group.nameserver)
        for newcomer in ("n3", "n4"):
            await group.start(newcomer)
            await (await group.connect(await group.leader())).ask(AddPeer(newcomer, group.peer_address(newcomer)))
        leader = await group.leader()
        expected = {int(name[1:]) + 1: node.address for name, node in group.nodes.items() if name != leader}
        registered: dict[int, str] = {}
        while registered != expected | {0: group.nodes[leader].address}:
            await group.clock.advance(1)
            [found] = (await names.ask(GetClusterInfo())).brokers
            registered = found.addresses
        await names.close()


async def test_a_wiped_node_is_filled_from_a_snapshot_when_the_log_begins_later(tmp_path: Path) -> None:
    """46: it equals the others; the number of a queue whose records are all gone survives (33)."""
    async with LocalGroup(tmp_path, **SHORT_LIVED) as group:
        await fill_and_restart_later(group)
        await group.leader()
        await group.level()
        for name in group.nodes:
            await (await group.connect(name)).ask(DeleteExpiredLog())
        victim = (await group.followers())[0]
        assert (await group.status(victim)).log_start > 0, "nothing was deleted: the test proves nothing"
        await group.stop(victim)
        group.wipe(victim)
        await group.start(victim)
        await group.level()
        filled, leader = await group.connect(victim), await group.connect(await group.leader())
        assert (await group.status(victim)).log_start > 0
        for topic in ("T", "Idle"):
            assert await filled.ask(GetMaxOffset(topic, 0)) == await leader.ask(GetMaxOffset(topic, 0))
        assert (await leader.send(send("Idle", b"next")))[0].queue_offset == 1
        assert (await filled.ask(QueryConsumerOffset("g", "T", 0))).offset == 7


async def test_a_disk_of_before_comes_back(group: LocalGroup) -> None:
    """From an image of some starts ago: who says so (`rmq store distrust`) has it filled up, and it votes again."""
    name = (await group.followers())[0]
    store = group.store(name)
    await group.stop(name)
    image = shutil.copytree(store, store.with_name("image"))
    for _ in range(2):
        await group.start(name)
        await group.level()
        await group.stop(name)
    shutil.rmtree(store)
    image.rename(store)
    assert CliRunner().invoke(distrust, [str(store), "--yes"]).exit_code == exits.OK
    await group.start(name)
    await group.level()
    async with asyncio.timeout(30):
        while not (await group.status(name)).proven:
            await asyncio.sleep(0)


async def test_a_new_leader_makes_the_groups_of_its_members(group: LocalGroup) -> None:
    """The leader to which they came ended before it had, and followers heard of them: nothing is refused until they say again who
    they are, half a minute later."""
    first = await group.leader()
    await (await group.connect(first)).ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    members = {name: await group.connect(name) for name in await group.followers()}
    for member in members.values():
        await member.ask(beat("c", "g"))
    await group.stop(first)
    member = members[await group.leader(but=first)]
    async with asyncio.timeout(10):
        while await member.ask_code(LockQueues("g", "c", [MessageQueue("T", GROUP, 0)])):
            await group.clock.advance(0.1)


async def test_a_leader_in_its_first_moments_makes_topics(tmp_path: Path) -> None:
    """It takes sends before all of earlier epochs is applied and before it has made its system topics. Until then it cannot
    know that there is no such topic: it said so (17), and a producer gave up."""
    async with LocalGroup(tmp_path, led=False) as group, AsyncExitStack() as running:
        clients = [await running.enter_async_context(JavaClient.connect(node.address)) for node in group.nodes.values()]
        asked = [_taken(client, f"New{number}") for number, client in enumerate(clients)]  # all three hold them
        advancing = asyncio.create_task(group.clock.advance(1.5))
        parts = [node.serving.membership for node in group.nodes.values()]
        await until(lambda: any(part and part.member.core.accepts() for part in parts))
        young = next(number for number, part in enumerate(parts) if part and part.member.core.accepts())
        asked.append(_taken(clients[young], "Newer"))
        assert await asyncio.gather(*asked) == [0, 0, 0, 0]
        await advancing


async def _taken(client: JavaClient, topic: str) -> int:
    """The code of the answer to a send. On a busy machine the leader may lose its leadership meanwhile; then Java's producers
    ask again, too."""
    code = int(ResponseCode.SERVICE_NOT_AVAILABLE)
    while code == ResponseCode.SERVICE_NOT_AVAILABLE:
        header, _ = await client.send(b"first", topic=topic)
        code = header.code
    return code
