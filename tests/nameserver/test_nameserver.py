"""Nameservers over real sockets. Their clock is moved by the tests."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.model import DataVersion, TopicConfig
from rmq.nameserver.node import Nameserver
from rmq.net.commands import (
    DeleteTopicInNameserver,
    GetClusterInfo,
    GetRoute,
    GetRuntimeInfo,
    GetTopicList,
    Hello,
    Ping,
    RegisterBroker,
    UnregisterBroker,
)
from rmq.net.commands.routes import WipeWritePerm
from rmq.testing import TestClock
from tests.dialing import dial

SETTINGS = NodeSettings(role="nameserver", namesrv_port=0, idle_timeout_ms=3_600_000)
T = TopicConfig("T", 4, 4)


class World:
    """Starts nameservers and connections, and stops them at the end of the test."""

    def __init__(self, parts):
        self.parts = parts
        self.clock = TestClock(running=False)

    async def nameserver(self):
        node = Nameserver(SETTINGS, self.clock)
        await node.start()
        self.parts.push_async_callback(node.stop)
        return node

    async def connect(self, node):
        channel = await dial(node.address, Hello(1, "test"))
        self.parts.push_async_callback(channel.close)
        return channel


@pytest.fixture
async def world():
    async with AsyncExitStack() as parts:
        yield World(parts)


def a_broker(name="b", port=1, *, epoch=1, topics=(T,), counter=0):
    """Of a group of three."""
    group = [f"store-{number}" for number in (1, 2, 3)]
    address, version = f"10.0.0.1:{port}", DataVersion(counter)
    return RegisterBroker("C", name, 0, address, epoch, list(topics), version, f"store-{port}", group)


async def ask(channel, request):
    return await channel.request(request, 5.0)


async def leaders(channel, topic="T"):
    """Broker name -> leader's address; {} if the topic is unknown."""
    try:
        route = await ask(channel, GetRoute(topic))
    except Refusal as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return {}
    return {group.name: group.addresses[0] for group in route.brokers}


async def until_leaders(channel, expected):
    """The end of a connection takes its own time to be noticed; asking goes on until it is."""
    async with asyncio.timeout(5):
        while await leaders(channel) != expected:
            pass


async def test_register_ask_leave(world):
    node = await world.nameserver()
    broker, client = await world.connect(node), await world.connect(node)
    assert await ask(client, Ping()) is None
    assert await leaders(client) == {}
    await ask(broker, a_broker())
    route = await ask(client, GetRoute("T"))
    assert [(data.broker_name, data.read_queue_nums, data.perm) for data in route.queues] == [("b", 4, 6)]
    assert (await ask(client, GetTopicList())).topics == ["T"]
    assert [group.name for group in (await ask(client, GetClusterInfo())).brokers] == ["b"]
    await ask(client, DeleteTopicInNameserver("T"))
    assert (await ask(client, GetTopicList())).topics == []
    await ask(broker, a_broker())
    assert (await ask(client, GetTopicList())).topics == ["T"], "the broker still has it, though nothing changed there"
    await ask(broker, UnregisterBroker("C", "b", 0, "10.0.0.1:1"))
    assert (await ask(client, GetClusterInfo())).brokers == []


async def test_a_lost_connection_removes_the_broker(world):
    """N1: long before its expiry; the clock stands still here."""
    node = await world.nameserver()
    broker, client = await world.connect(node), await world.connect(node)
    await ask(broker, a_broker())
    await broker.close()
    await until_leaders(client, {})


async def test_a_broker_that_reconnected_stays(world):
    """N1, N5: the end of the old connection comes after the registration through the new one."""
    node = await world.nameserver()
    old, new, other, client = [await world.connect(node) for _ in range(4)]
    await ask(old, a_broker())
    await ask(other, a_broker("witness"))
    await ask(new, a_broker())
    await old.close()
    await other.close()
    await until_leaders(client, {"b": "10.0.0.1:1"})  # the witness has gone, so the old connection's end was seen too


async def test_a_silent_broker_leaves_within_expiry_and_scan(world):
    """N1: its connection stays open, as behind a pulled cable."""
    node = await world.nameserver()
    broker, client = await world.connect(node), await world.connect(node)
    await ask(broker, a_broker())
    await world.clock.advance(90.0)
    await ask(broker, a_broker())
    await world.clock.advance(119.0)
    assert await leaders(client) == {"b": "10.0.0.1:1"}
    await world.clock.advance(11.0)
    assert await leaders(client) == {}


async def test_a_jump_of_the_wall_clock_moves_nobody(world):
    """N1, T1: only the monotonic clock counts."""
    node = await world.nameserver()
    broker, client = await world.connect(node), await world.connect(node)
    await ask(broker, a_broker())
    world.clock.jump_wall(10 * 365 * 86_400_000)
    await world.clock.advance(20.0)
    assert await leaders(client) == {"b": "10.0.0.1:1"}


async def test_the_larger_epoch_stays(world):
    """N2: and the refusal names the leader (N4)."""
    node = await world.nameserver()
    old, new, client = [await world.connect(node) for _ in range(3)]
    await ask(old, a_broker(port=1, epoch=1))
    await ask(new, a_broker(port=2, epoch=2))
    with pytest.raises(Refusal) as refused:
        await ask(old, a_broker(port=1, epoch=1))
    assert refused.value.hint == "10.0.0.1:2"
    assert await leaders(client) == {"b": "10.0.0.1:2"}


async def test_a_nameserver_that_comes_back_empty_knows_all_after_one_heartbeat(world):
    """N3: nameservers know nothing of each other and keep nothing."""
    first, second = await world.nameserver(), await world.nameserver()
    for node in (first, second):
        await ask(await world.connect(node), a_broker("a"))
        await ask(await world.connect(node), a_broker("b", 2))
    await first.stop()
    assert await leaders(await world.connect(second)) == {"a": "10.0.0.1:1", "b": "10.0.0.1:2"}
    again = await world.nameserver()
    client = await world.connect(again)
    assert await leaders(client) == {}
    for broker in (a_broker("a"), a_broker("b", 2)):
        await ask(await world.connect(again), broker)
    assert await leaders(client) == {"a": "10.0.0.1:1", "b": "10.0.0.1:2"}


async def test_a_topic_stays_while_one_of_its_brokers_does(world):
    """N5."""
    node = await world.nameserver()
    one, two, client = [await world.connect(node) for _ in range(3)]
    await ask(one, a_broker("a"))
    await ask(two, a_broker("b", 2))
    await one.close()
    await until_leaders(client, {"b": "10.0.0.1:2"})


async def test_a_registration_with_a_bad_name_changes_nothing(world):
    """S9."""
    node = await world.nameserver()
    channel = await world.connect(node)
    with pytest.raises(Refusal) as refused:
        await ask(channel, a_broker("../../etc"))
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(Refusal) as refused:
        await ask(channel, a_broker(port="9" * 5000))
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert (await ask(channel, GetClusterInfo())).brokers == []


async def test_what_a_nameserver_does_not_serve_is_refused(world):
    """S7: and the connection goes on."""
    channel = await world.connect(await world.nameserver())
    with pytest.raises(Refusal) as refused:
        await ask(channel, GetRuntimeInfo())
    assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert await ask(channel, Ping()) is None


async def test_rocketmqs_own_tools_ask_on_the_same_port(world):
    """A route asked for as mqadmin asks: a JSON header, no body."""
    node = await world.nameserver()
    await ask(await world.connect(node), a_broker())
    host, _, port = node.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    header, body = await ask_in_json(reader, writer, {"code": 105, "opaque": 7, "extFields": {"topic": "T"}})
    assert (header["code"], header["opaque"]) == (0, 7)
    route = json.loads(body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:1"}
    assert route["queueDatas"][0]["readQueueNums"] == 4
    header, _ = await ask_in_json(reader, writer, {"code": 105, "opaque": 8, "extFields": {"topic": "U"}})
    assert (header["code"], header["opaque"]) == (ResponseCode.TOPIC_NOT_EXIST, 8)
    writer.close()
    await writer.wait_closed()


async def ask_in_json(reader, writer, fields):
    common = {"flag": 0, "language": "JAVA", "version": 513, "serializeTypeCurrentRPC": "JSON"}
    header = json.dumps(common | fields).encode()
    writer.write((len(header) + 4).to_bytes(4) + len(header).to_bytes(4) + header)
    total = int.from_bytes(await reader.readexactly(4))
    answer = await reader.readexactly(total)
    header_size = int.from_bytes(answer[1:4])
    return json.loads(answer[4 : 4 + header_size]), answer[4 + header_size :]


async def test_a_group_changes_its_leader(world):
    """N2, N4: a leader dies, another one is elected, the dead one comes back; RocketMQ's ids: 0 leads, others have theirs."""
    node = await world.nameserver()
    nodes = [await world.connect(node) for _ in range(3)]

    async def register(number, broker_id, epoch):
        broker = a_broker(port=number + 1, epoch=epoch)._replace(broker_id=broker_id)
        await nodes[number].request(broker, 1.0)

    async def seen():
        by_route = (await asker.request(GetRoute("T"), 1.0)).brokers[0]
        by_cluster = (await asker.request(GetClusterInfo(), 1.0)).brokers[0]
        assert by_route == by_cluster
        return {broker_id: int(address[-1]) - 1 for broker_id, address in by_route.addresses.items()}

    asker = await world.connect(node)
    for number, broker_id in ((0, 0), (1, 2), (2, 3)):
        await register(number, broker_id, 1)
    assert await seen() == {0: 0, 2: 1, 3: 2}
    await nodes[0].close()
    await until_it_noticed(asker)
    assert await seen() == {2: 1, 3: 2}  # no leader: still read from its followers
    await register(1, 0, 2)
    assert await seen() == {0: 1, 3: 2}
    nodes[0] = await world.connect(node)
    with pytest.raises(Refusal) as refused:
        await register(0, 0, 1)
    assert refused.value.hint == "10.0.0.1:2"
    with pytest.raises(Refusal, match="already leads in epoch 2"):
        await register(0, 0, 2)
    await register(0, 1, 2)
    assert await seen() == {0: 1, 1: 0, 3: 2}
    await register(1, 2, 2)  # it hands over: nobody leads for a moment
    await register(2, 0, 3)
    assert await seen() == {0: 2, 1: 0, 2: 1}


async def until_it_noticed(asker):
    """Until the nameserver knows of the lost connection."""
    while 0 in (await asker.request(GetRoute("T"), 1.0)).brokers[0].addresses:
        await asyncio.sleep(0)


async def test_a_name_that_nobody_has_is_no_line_of_the_log(world, caplog):
    """Strangers filled the disk: each question was a line of up to 2 MB, which took 0.3 s to write."""
    names = await world.connect(await world.nameserver())
    assert (await ask(names, WipeWritePerm("x" * 1_000_000))).wipe_topic_count == 0
    await ask(names, a_broker())
    assert (await ask(names, WipeWritePerm("b"))).wipe_topic_count == 1
    lines = [one.getMessage() for one in caplog.records if "may not be written" in one.getMessage()]
    assert lines == ["routes say of 1 topics of b that they may not be written"]
