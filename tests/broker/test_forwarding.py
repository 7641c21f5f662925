"""Clients of RocketMQ go on at the node that led before: what only the leader does is forwarded to it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq.broker import node as node_module
from rmq.broker.front import forwarding, forwardline
from rmq.broker.front.finder import Finder
from rmq.codes import RequestCode, ResponseCode as R
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.log.store import Store
from rmq.model import MessageQueue
from rmq.net.commands import (
    GetClusterInfo,
    GetConsumerList,
    GetMaxOffset,
    Ping,
    Pull,
    QueryConsumerOffset,
    UpdateConsumerOffset,
    UpdateTopic,
)
from rmq.net.commands.clients import UnregisterClient
from rmq.net.commands.locks import LockQueues
from rmq.net.commands.peers import GetGroupStatus, GroupStatus, TransferLeader
from rmq.net.commands.questions import ConsumeDirectly, GetRunningInfo
from rmq.net.remoting.headers import read, write
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.server import LATER, Call, Later, Server
from rmq.testing import TestClock, until
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.javaclient import JavaClient, members
from tests.broker.pair import Pair
from tests.broker.support import Peer, beat, everything, send
from tests.net.java_peer import send_frame

ALL = ("n0", "n1", "n2")


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[LocalGroup]:
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await group.level()
        yield group


async def follower(group: LocalGroup) -> str:
    return (await group.followers())[0]


async def leading(group: LocalGroup) -> Peer:
    return await group.connect(await group.leader())


async def test_a_follower_forwards_sends_and_says_what_the_leader_answered(group: LocalGroup) -> None:
    """Singles, old and new codec, batches, a topic that the send makes; the message is born where the client is."""
    async with JavaClient.connect(group.address(await follower(group))) as java:
        answers = [await one for one in [java.send(b"first"), java.send(b"second")]]
        assert [(header.code, header.ext["queueOffset"]) for header, _ in answers] == [(0, "0"), (0, "1")]
        assert (await java.send(b"new", topic="Made"))[0].code == 0
        found = await everything(await leading(group))
        assert [one.body for one in found] == [b"first", b"second"]
        assert record.host_text(found[0].born_host) == java.address


async def test_a_forwarded_request_keeps_its_id(group: LocalGroup, caplog: pytest.LogCaptureFixture) -> None:
    """The leader's line about it names the client's own end of its connection, and the client's number."""
    caplog.set_level(logging.INFO, "rmq.requests")
    async with JavaClient.connect(group.address(await follower(group))) as java:
        await java.send(b"x")
        assert (await java.send(b"x", topic="SCHEDULE_TOPIC_XXXX"))[0].code == R.NO_PERMISSION
        told = [vars(one) for one in caplog.records if one.name == "rmq.requests"]
        refused = [one for one in told if not one["msg"].startswith("slow")]  # on a busy machine a request may be that, too
        assert [(one["id"], one["code"]) for one in refused] == [(f"{java.address}#2", R.NO_PERMISSION)]


async def test_what_forwarding_brings_to_the_leader_is_not_forwarded_again(group: LocalGroup) -> None:
    """Two nodes that take each other for the leader would pass a request to and fro for ever."""
    name, other = await group.followers()
    greeting = {"group": GROUP, "node": other, "host": "10.1.2.3", "port": "4"}
    async with JavaClient.connect(group.peer_address(name)) as line:
        assert (await line.greet(int(RequestCode.FORWARDED_CLIENT), **greeting))[0].code == 0
        header, _ = await line.send(b"x")
        assert header.code == 60101
    async with JavaClient.connect(group.address(name)) as stranger:
        assert (await stranger.greet(int(RequestCode.FORWARDED_CLIENT), **greeting))[0].code == 16  # the clients' port
    async with JavaClient.connect(group.peer_address(name)) as stranger:
        assert (await stranger.greet(int(RequestCode.FORWARDED_CLIENT), **{**greeting, "node": "n9"}))[0].code == 16
    assert await everything(await leading(group)) == []


async def test_offsets_locks_and_lists_are_the_leaders(group: LocalGroup) -> None:
    leader = await leading(group)
    await leader.send(send("T", b"a"), send("T", b"b"))
    async with JavaClient.connect(group.address(await follower(group))) as java:
        assert (await java.ask(beat("me@1", "g")))[0].code == 0
        java.tell(UpdateConsumerOffset("g", "T", 0, 1))
        header, _ = await java.ask(QueryConsumerOffset("g", "T", 0))
        assert header.ext["offset"] == "1"
        assert (await java.ask(GetMaxOffset("T", 0)))[0].ext["offset"] == "2"
        queue = MessageQueue("T", GROUP, 0)
        assert b'"queueId":0' in (await java.ask(LockQueues("g", "me@1", [queue])))[1]
        assert members((await java.ask(GetConsumerList("g")))[1]) == ["me@1"]
    assert (await leader.ask(QueryConsumerOffset("g", "T", 0))).offset == 1
    await until_refused(leader, GetConsumerList("g"))  # the leader saw it leave


async def test_what_the_leader_asks_a_client_gets_through_and_so_does_its_answer(group: LocalGroup) -> None:
    """A tool asks the leader for a member that talks to a follower; one that does not answer holds nobody up."""
    leader = await leading(group)
    async with JavaClient.connect(group.address(await follower(group))) as java:
        assert (await java.ask(beat("me@1", "g")))[0].code == 0
        java.tell(UpdateConsumerOffset("g", "T", 0, 0))  # now the follower has a connection for it to the leader
        await until_served(leader, GetConsumerList("g"))
        java.answers[307] = b'{"properties":{"PROP_CLIENT_VERSION":"V5_5_0"}}'
        assert (await leader.ask(GetRunningInfo("g", "me@1", True))).report == java.answers[307]
        assert java.pushed[-1][0].ext == {"consumerGroup": "g", "clientId": "me@1", "jstackEnable": "true"}
        place = record.message_id(record.host_bytes("10.0.0.1", 1), (await leader.send(send("T", b"body")))[0].physical_offset)
        java.answers[309] = b'{"consumeResult":"CR_SUCCESS"}'
        assert (await leader.ask(ConsumeDirectly("g", "me@1", place, "T"))).report == java.answers[309]
        assert record.decode(java.pushed[-1][1]).body == b"body"
        del java.answers[307]
        asking = asyncio.create_task(leader.refusal(GetRunningInfo("g", "me@1")))
        await group.clock.advance_until(asking.done)
        assert await asking == R.CONSUME_MSG_TIMEOUT


async def until_served(peer: Peer, request: object) -> None:
    async with asyncio.timeout(10):
        while await peer.ask_code(request):
            pass


async def until_refused(peer: Peer, request: object) -> None:
    async with asyncio.timeout(10):
        while not await peer.ask_code(request):
            pass


async def test_a_follower_serves_pulls_itself_and_forwards_what_it_lacks(group: LocalGroup) -> None:
    """A reader that is ahead of a node that is still catching up must not be sent back."""
    leader, name = await leading(group), await follower(group)
    await leader.send(send("T", b"a"))
    await group.level()
    async with JavaClient.connect(group.address(name)) as java:
        pull = Pull("g", "T", 0, 0, 10, 4, 0, 0, "*", 0, "TAG")
        await java.ask(beat("me@1", "g"))
        header, found = await java.ask(pull)
        assert (header.code, [one.body for one in record.iterate(found)]) == (0, [b"a"])
        assert group.nodes[name].serving.reader.stats.found.total == 1
        header, _ = await java.ask(pull._replace(queue_offset=5))
        assert (header.code, header.ext["nextBeginOffset"]) == (21, "1")  # said by the leader, who knows


@pytest.fixture
async def slave(tmp_path: Path) -> AsyncIterator[Pair]:
    """Fixed roles: node 1 follows node 0; both have two messages, of which group g has read one."""
    pair = Pair(tmp_path)
    await pair.begin()
    await pair.start(0, "ASYNC_MASTER")
    await pair.start(1, "SLAVE")
    master = await Peer.connect(pair.nodes[0].address)
    await master.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await master.send(send("T", b"a"), send("T", b"b"))
    assert await master.ask_code(beat("other@1", "g")) == 0
    await master.ask(UpdateConsumerOffset("g", "T", 0, 1))
    await master.close()
    await pair.level()
    yield pair
    for number in list(pair.nodes):
        await pair.stop(number)
    await pair.nameserver.stop()


async def test_a_slave_answers_itself_while_its_master_is_gone(slave: Pair) -> None:
    """With fixed roles nobody else leads, and who led is not forgotten: who starts to read then is not kept waiting for it. But
    what the slave may only not have yet is no reason to send a reader back."""
    await slave.stop(0)
    await slave.clock.advance(3)
    async with JavaClient.connect(slave.nodes[1].address) as java:
        assert (await java.ask(beat("me@1", "g")))[0].code == 0
        assert members((await java.ask(GetConsumerList("g")))[1]) == ["me@1"]
        assert (await java.ask(QueryConsumerOffset("g", "T", 0)))[0].ext["offset"] == "1"
        assert (await java.ask(GetMaxOffset("T", 0)))[0].ext["offset"] == "2"
        pull = Pull("g", "T", 0, 1, 10, 4, 0, 0, "*", 0, "TAG")
        assert [one.body for one in record.iterate((await java.ask(pull))[1])] == [b"b"]
        ahead = java.ask(pull._replace(queue_offset=5))
        await slave.clock.advance_until(ahead.done)
        assert (await ahead)[0].code == 14


async def test_a_slave_answers_itself_what_its_master_did_not_live_to_answer(slave: Pair) -> None:
    """Asked before anybody can know that it is gone."""
    await slave.stop(0)
    async with JavaClient.connect(slave.nodes[1].address) as java:
        assert (await java.ask(beat("me@1", "g")))[0].code == 0
        asked = java.ask(GetConsumerList("g"))
        await slave.clock.advance_until(asked.done)
        assert members((await asked)[1]) == ["me@1"]


async def test_leadership_that_is_handed_over_fails_no_send(group: LocalGroup) -> None:
    """The same connection all the while: nothing is refused, stored twice, or out of order."""
    name = await group.leader()
    leader = await group.connect(name)
    async with JavaClient.connect(group.address(name)) as java:
        answers = [java.send(b"%d" % number) for number in range(20)]
        handing = asyncio.create_task(leader.ask(TransferLeader("")))
        while not handing.done():
            answers.append(java.send(b"%d" % len(answers)))
            await asyncio.sleep(0)
            await group.clock.advance(0.01)
        await handing
        answers += [java.send(b"%d" % number) for number in range(len(answers), len(answers) + 20)]
        async with asyncio.timeout(20):
            codes = [(await one)[0].code for one in answers]
    assert codes == [0] * len(answers)
    after = await group.leader(but=name)
    stored = [one.body for one in await everything(await group.connect(after))]
    assert stored == [b"%d" % number for number in range(len(answers))]


async def test_the_next_leader_knows_the_clients_of_the_last_one(group: LocalGroup) -> None:
    """Members of groups, notices of a rebalance: the leader's pushes reach a client behind another node."""
    name = await group.leader()
    async with JavaClient.connect(group.address(name)) as java, JavaClient.connect(group.address(name)) as other:
        assert (await java.ask(beat("me@1", "g")))[0].code == 0
        await (await group.connect(name)).ask(TransferLeader(""))
        after = await group.connect(await group.leader(but=name))
        async with asyncio.timeout(10):
            while await after.ask_code(GetConsumerList("g")):
                pass
        assert list((await after.ask(GetConsumerList("g")))[0]) == ["me@1"]
        before = len(java.pushed)
        assert (await after.ask_code(beat("native@2", "g"))) == 0
        await until(lambda: len(java.pushed) > before)
        assert java.pushed[-1][0].code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert members((await other.ask(GetConsumerList("g")))[1]) == ["me@1", "native@2"]


@asynccontextmanager
async def forwarded(group: LocalGroup, answer: Callable[[int], Awaitable[int]]) -> AsyncIterator[tuple[JavaClient, list[float]]]:
    """A client of a follower that forwards to a leader which answers each request with the code that it is given; and when that
    leader was dialled."""
    found = group.nodes[await follower(group)].serving.front.forwarding
    assert found is not None
    dialled: list[float] = []

    async def leader(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(group.clock.monotonic())
        while size := int.from_bytes(await reader.read(4), "big"):
            header, _ = read(await reader.readexactly(size), 1 << 20)
            writer.write(write(False, await answer(header.code), 1, header.opaque, "", {}))
        writer.close()

    async with await asyncio.start_server(leader, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        found.where = lambda: f"{host}:{port}"
        async with JavaClient.connect(group.address(await follower(group))) as java:
            assert (await java.ask(beat("me@1", "g")))[0].code == 0
            yield java, dialled


async def test_a_goodbye_while_the_leader_is_told_of_a_client_reaches_it(group: LocalGroup) -> None:
    """It was lost, and so was another heartbeat: for the leader the client stayed a member, with queues that nobody read then."""
    codes: list[int] = []
    go = asyncio.Event()

    async def answer(code: int) -> int:
        codes.append(code)
        if code == RequestCode.HEART_BEAT:
            await go.wait()
        return 0

    async with forwarded(group, answer) as (java, _):
        await group.clock.advance_until(lambda: RequestCode.HEART_BEAT in codes)
        assert (await java.ask(UnregisterClient("me@1", consumer_group="g")))[0].code == 0
        go.set()
        assert (await java.send(b"x"))[0].code == 0
    assert codes == [RequestCode.FORWARDED_CLIENT, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, 310]


async def test_a_leader_that_takes_no_lines_is_dialled_less_and_less(group: LocalGroup) -> None:
    """It had too many connections, or did not know this node any more: each client's line was dialled every 20 ms for ever."""
    asked: list[int] = []
    takes = False

    async def answer(code: int) -> int:
        asked.append(code)
        return 0 if takes or code != RequestCode.FORWARDED_CLIENT else int(R.NO_PERMISSION)

    async with forwarded(group, answer) as (java, dialled):
        refused = java.send(b"x")
        await group.clock.advance_until(lambda: len(dialled) == 9, 0.02)
        assert dialled[8] - dialled[7] > 2
        assert (await refused)[0].remark.startswith("not stored")
        assert set(asked) == {RequestCode.FORWARDED_CLIENT}
        takes = True
        await group.clock.advance_until(lambda: RequestCode.HEART_BEAT in asked, 0.02)
        assert (await java.send(b"x"))[0].code == 0
    assert asked[-2:] == [RequestCode.HEART_BEAT, 310]


async def test_what_left_for_a_leader_that_dies_has_an_unknown_outcome(group: LocalGroup) -> None:
    """Never sent again on its own: it may be stored there, and come back with it."""
    leader, name = await group.leader(), await follower(group)
    async with JavaClient.connect(group.address(name)) as java:
        assert (await java.send(b"before"))[0].code == 0
        node = group.nodes[leader]
        forwarding = group.nodes[name].serving.front.forwarding
        assert forwarding is not None
        hanging = java.send(b"under way")
        await until(lambda: forwarding.waiting[0])  # written; the answer takes the leader a commit
        [line] = [one for one in node.serving.front.server.connections if one.is_forwarded]
        line.abort("cut by the test")
        header, _ = await hanging
    assert (header.code, header.remark.startswith("outcome unknown")) == (1, True)


@pytest.mark.parametrize("bound", ["MAX_REQUESTS_EACH", "MAX_REQUESTS", "MAX_BYTES_EACH", "MAX_BYTES", "MAX_LINES"])
async def test_forwarding_is_bounded(group: LocalGroup, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """While nobody leads requests wait; one more than may wait is refused at once, as not stored."""
    size = len(send_frame(1, b"0", b="T", e="0", i="UNIQ_KEY\x01A1\x02")) - 4
    monkeypatch.setattr(forwarding, bound, 3 * size if "BYTES" in bound else 0 if bound == "MAX_LINES" else 3)
    waits = 0 if bound == "MAX_LINES" else 3
    name = await follower(group)
    await group.stop(*(one for one in ALL if one != name))
    await group.clock.advance_until(lambda: not group.nodes[name].serving.membership.member.core.leads())  # type: ignore[union-attr]
    async with JavaClient.connect(group.address(name)) as java:
        waiting = [java.send(b"%d" % number) for number in range(4)]
        header, _ = await waiting[waits]
        assert (header.code, header.remark.startswith("not stored")) == (14, True)
        assert not any(one.done() for one in waiting[:waits])
        await group.clock.advance(forwardline.HOLD_S + 1)
        assert [(await one)[0].code for one in waiting] == [14] * 4
        found = group.nodes[name].serving.front.forwarding
        assert found is not None
        assert found.waiting == (0, 0)


async def test_a_leader_that_is_stopped_forwards_until_its_clients_have_left(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path, forward_at_stop_ms=600_000) as group:
        leader, name = await leading(group), await group.leader()
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        async with JavaClient.connect(group.address(name)) as java:
            assert (await java.send(b"0"))[0].code == 0
            stopping = asyncio.create_task(group.stop(name))
            after = await group.leader(but=name)
            sent = 1
            while name in await told(group) or sent < 50:  # it leaves the nameserver meanwhile
                assert (await java.send(b"%d" % sent))[0].code == 0
                sent += 1
                await group.clock.advance(0.2)
            assert not stopping.done()
        await group.clock.advance_until(stopping.done)
        await stopping
        assert [one.body for one in await everything(await group.connect(after))] == [b"%d" % number for number in range(sent)]


async def test_a_client_that_lets_a_heartbeat_out_has_left(tmp_path: Path) -> None:
    """Java's keeps an idle connection for two minutes; its heartbeat comes a second after it asked for routes, each 30 s, to
    those that they name. A node that is stopped waits for the heartbeats that are due, and no longer."""
    async with LocalGroup(tmp_path, forward_at_stop_ms=3_600_000) as group:
        name = await group.leader()
        async with JavaClient.connect(group.address(name)) as java, JavaClient.connect(group.address(name)) as later:
            for _ in range(2):
                assert (await java.ask(beat("me@1", "g")))[0].code == 0
                assert (await later.ask(beat("me@2", "g")))[0].code == 0
                await passes(group, 12)
            stopping = asyncio.create_task(group.stop(name))
            await group.leader(but=name)
            assert (await java.send(b"x"))[0].code == 0
            assert (await later.ask(beat("me@2", "g")))[0].code == 0
            await passes(group, 12)
            assert (await later.ask(beat("me@2", "g")))[0].code == 0
            await passes(group, 4)
            assert not stopping.done()
            last = group.clock.monotonic()
            await group.clock.advance_until(stopping.done)
            assert 8 <= group.clock.monotonic() - last < 600  # the clock goes on while it closes
            await stopping


async def passes(group: LocalGroup, seconds: float) -> None:
    """In steps so small that the members hear each other."""
    until_s = group.clock.monotonic() + seconds
    await group.clock.advance_until(lambda: group.clock.monotonic() >= until_s, 0.5)


async def told(group: LocalGroup) -> list[str]:
    """The nodes that the nameserver names."""
    peer = await Peer.connect(group.nameserver)
    found = {address for row in (await peer.ask(GetClusterInfo())).brokers for address in row.addresses.values()}
    await peer.close()
    return [name for name in ALL if group.address(name) in found]


async def test_a_member_forwards_before_its_store_is_open(group: LocalGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulls too; whoever said meanwhile who it is need not say it again. Health says that it is not well yet."""
    name = await follower(group)
    await group.stop(name)
    may_open, open_store = asyncio.Event(), node_module.open_store

    async def late(*args: Any) -> Store:
        await may_open.wait()
        return await open_store(*args)

    monkeypatch.setattr(node_module, "open_store", late)
    starting = asyncio.create_task(group.start(name))
    await listening(group.address(name))
    async with JavaClient.connect(group.address(name)) as java:
        assert (await java.ask(beat("me@1", "g")))[0].code == 0
        assert (await java.send(b"x"))[0].code == 0
        pull = Pull("g", "T", 0, 0, 10, 0, 0, 0, "", 0, "TAG")
        assert [one.body for one in record.iterate((await java.ask(pull))[1])] == [b"x"]
        ours = await Peer.connect(group.address(name))
        assert await ours.refusal(Ping()) == 14
        await ours.close()
        may_open.set()
        await starting
        await group.level()
        assert [one.body for one in record.iterate((await java.ask(pull))[1])] == [b"x"]
        assert group.nodes[name].serving.reader.stats.found.total == 1, "it serves pulls itself now"


async def test_who_looks_for_the_leader_gives_up_a_connection_that_swallows_questions() -> None:
    """As behind a firewall that has forgotten it: a node that starts, or repairs its log, knew no leader any more to forward to,
    until the system gave the connection up after a quarter of an hour."""
    asked, clock, node = list[int](), TestClock(running=False), Server({})
    host, port = await node.listen("127.0.0.1", 0)

    def status(_request: GetGroupStatus, call: Call) -> GroupStatus | Later:
        asked.append(call.connection.id)
        told = GroupStatus("leader", "n2", "", "n2", "", 1, 0, 0, 0, 0, True, True, False, [], [])
        return LATER if call.connection.id == asked[0] else told

    node.handlers = {**node.handlers, GetGroupStatus: status}
    finder = Finder({"n2": f"{host}:{port}"}, Dialer(clock))
    await until(lambda: asked)
    await clock.advance_until(lambda: finder.leader, 0.05)
    await finder.stop()
    await node.close(0)


async def listening(address: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await (await Peer.connect(address)).close()
                return
            except RmqError:
                await asyncio.sleep(0)
