"""Broadcast clients that come by RocketMQ's proxy, and go: the broker knows where they were."""

from pathlib import Path

import orjson

from rmq.codes import ResponseCode as R
from rmq.model import BROADCASTING, ConsumerData, Subscription
from rmq.net.commands import DeleteTopic, Heartbeat, Pull, PullAnswer, UpdateTopic
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.groups import LocalGroup
from tests.broker.javaclient import JavaClient
from tests.broker.support import SUBSCRIBED, Peer, bodies, send

NAME = "T@g@broadcast"


async def pull(peer: Peer, offset: int, client: str = "", queue_id: int = 0) -> PullAnswer:
    """As a proxy does for that client; as the peer itself without one."""
    said = {"request_source": 1, "proxy_client_id": client} if client else {}
    answer = await peer.ask(Pull("g", "T", queue_id, offset, sys_flag=SUBSCRIBED, **said))
    assert isinstance(answer, PullAnswer)
    return answer


async def begins(peer: Peer, offset: int, client: str = "") -> int:
    answer = await pull(peer, offset, client)
    assert answer.status == R.PULL_OFFSET_MOVED
    return answer.next_begin_offset


def kept(broker: LocalBroker) -> object:
    return broker.serving.tables.cursors.of("broadcastOffset").get(NAME)


async def test_a_client_goes_on_where_it_was_by_whichever_way_it_comes(broker: LocalBroker, connect: Connect) -> None:
    """A restart keeps where the slowest was: there begins who is not known. It stands in consumerOffset.json."""
    proxy, client = await connect(broker, "proxy"), await connect(broker, "client")
    await proxy.send(*(send("T", b"%d" % number) for number in range(10)))
    assert await begins(proxy, -1, "client") == 0, "a new group of a young topic begins at the first message"
    assert len(bodies(await pull(proxy, 0, "client"))) == 10
    await pull(proxy, 6, "client")
    data = ConsumerData("g", message_model=BROADCASTING, subscriptions=[Subscription("T")])
    await client.ask(Heartbeat("client", [], [data]))
    assert await begins(client, 0) == 6
    assert len(bodies(await pull(client, 6))) == 4
    assert bodies(await pull(client, 8)) == [b"8", b"9"], "it keeps its own offsets, also back"
    await pull(client, 10)
    assert await begins(proxy, -1, "client") == 10
    await pull(proxy, 3, "another")
    await broker.clock.advance_until(lambda: kept(broker) == {0: 3})
    async with JavaClient.connect(broker.address) as java:
        ask = Pull("g", "T", 0, -1, sys_flag=SUBSCRIBED, request_source=1, proxy_client_id="third")
        header, _ = await java.ask(ask)
        assert (header.code, header.ext["nextBeginOffset"]) == (R.PULL_OFFSET_MOVED, "3")
    await broker.stop_broker()
    said = orjson.loads((broker.store_dir / "config" / "consumerOffset.json").read_bytes())
    assert said["offsetTable"][NAME] == {"0": 3}
    await broker.start_broker()
    assert await begins(await connect(broker), -1, "client") == 3
    peer = await connect(broker)
    await peer.ask(DeleteTopic("T"))
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    assert kept(broker) is None
    assert await begins(peer, -1, "client") == 0


async def test_groups_that_share_queues_are_left_alone(broker: LocalBroker, peer: Peer) -> None:
    await peer.send(send("T"), send("T"))
    assert (await pull(peer, -1)).next_begin_offset == 0
    assert len(bodies(await pull(peer, 1))) == 1
    await broker.clock.advance(6)
    assert kept(broker) is None


async def test_the_next_leader_knows_the_slowest(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        for _ in range(5):
            await leader.ask(send("T"))
        assert await begins(leader, -1, "client") == 0
        await pull(leader, 4, "client")
        cursors = group.nodes[(await group.followers())[0]].serving.tables.cursors
        await group.clock.advance_until(lambda: cursors.of("broadcastOffset").get(NAME) == {0: 4})
        await group.stop(first)
        assert await begins(await group.connect(await group.leader(but=first)), -1, "new") == 4
