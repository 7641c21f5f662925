"""What brokers of all kinds tell a nameserver, over real sockets: long lists, RocketMQ's own bytes, and what cannot be right."""

import asyncio
import base64
import json
import struct
import zlib
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from rmq.broker.features import register
from rmq.broker.features.register import FIRST_PAUSE_S, Registration
from rmq.broker.replication.directory import Directory
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import TopicConfig
from rmq.nameserver.node import Nameserver
from rmq.net.commands import GetClusterInfo, GetRoute, GetTopicList
from rmq.net.commands.access import AclInfo, ShareAccess
from rmq.net.transport.dialer import Dialer
from rmq.routing.parts import cut
from rmq.testing import TestClock, until
from tests.broker.toolcalls import Tool
from tests.nameserver.test_nameserver import SETTINGS, World, a_broker, ask, leaders, until_leaders
from tests.relaying import relay

# As RocketMQ 5.5.0 spells it: RegisterBrokerBody.encode(true) of T1 (4, 5, 6, an attribute) and T2 (1, 1, 4).
DEFLATED = (
    "eNpjYGCwqFZKzi/NK0ktUrIy0FEqLkksSQ1LLSrOzM8DC5Rk5qYCBXMLlKwMzS1NjY3MDIwtjcwsahkYGJiAWC/EUMFEwVTBTCHY08/dxzU+xNFdoVpJG6irODE9"
    "Va+ksiBVyUrJzz/I19FHCaRLLMRIwVABpAtZB9i86FggyQAA/yQl4A=="
)


@pytest.fixture
async def world():
    async with AsyncExitStack() as parts:
        yield World(parts)


async def java(world, node, body, *, broker_id=0, address="10.0.0.7:10911", name="java", **ext):
    """RocketMQ's request 103, through a connection that stays: the header of the answer."""
    host, _, port = node.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    told = {
        "brokerName": name,
        "brokerAddr": address,
        "clusterName": "C",
        "haServerAddr": "",
        "brokerId": str(broker_id),
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        **ext,
    }
    writer.write(frame({"code": 103, "opaque": 7, "extFields": told}, body))
    world.parts.callback(writer.close)
    header, _ = await answered(reader)
    return header


def frame(fields, body):
    common = {"flag": 0, "language": "JAVA", "version": 513, "serializeTypeCurrentRPC": "JSON"}
    header = json.dumps(common | fields).encode()
    return struct.pack(">ii", len(header) + 4 + len(body), len(header)) + header + body


async def answered(reader):
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
    size = int.from_bytes(answer[1:4])
    return json.loads(answer[4 : 4 + size]), answer[4 + size :]


def java_body(topics):
    rows = {name: {"topicName": name, "readQueueNums": many, "writeQueueNums": many, "perm": 6} for name, many in topics.items()}
    version = {"counter": 1, "timestamp": 2, "stateVersion": 0}
    return json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": rows}}).encode()


async def test_a_list_too_long_for_a_frame(world):
    """N5: nobody sees half of it, and nothing of it is lost."""
    node = await world.nameserver()
    broker, client = await world.connect(node), await world.connect(node)
    topics = [TopicConfig(f"{number:0100d}") for number in range(10_000)]
    lists = list(cut(topics))
    assert len(lists) > 3
    for number, part in enumerate(lists):
        assert await leaders(client, topics[0].name) == {}
        await ask(broker, a_broker(topics=part)._replace(part=number, parts=len(lists)))
    assert (await ask(client, GetTopicList())).topics == [one.name for one in topics]


def trouble(registration: Registration) -> str:
    """What keeps it from being registered."""
    return str(dict(registration.facts())["registrationTrouble"])


async def test_a_broker_with_many_topics_registers(world):
    """As the broker does it: 60 000 topics were refused before, 2 MiB being the most of a request."""
    node = await world.nameserver()
    topics = [TopicConfig(f"topic-of-some-length-{number}") for number in range(60_000)]
    registration = Registration([node.address], lambda _names: a_broker(topics=topics), Dialer(world.clock))
    await registration.start()
    assert not trouble(registration)
    client = await world.connect(node)
    assert len((await ask(client, GetTopicList())).topics) == 60_000
    await registration.stop()
    assert (await ask(client, GetClusterInfo())).brokers == []


async def test_users_that_a_nameserver_does_not_take_keep_no_broker_from_its_routes(world, caplog):
    """It closes a connection with such a frame."""
    node = await world.nameserver()
    too_large = ShareAccess("b", [], [AclInfo("User:" + "x" * 3_000_000)])
    registration = Registration([node.address], lambda _names: a_broker(), Dialer(world.clock), lambda: [too_large])
    await registration.start()
    assert not trouble(registration)
    assert "does not take this broker's users and policies" in caplog.text
    assert await leaders(await world.connect(node)) == {"b": "10.0.0.1:1"}
    await registration.stop()


async def test_an_open_nameserver_takes_no_users(world):
    """D18: nobody is asked for any there, and any stranger could fill it with them."""
    stranger = await world.connect(await world.nameserver())
    with pytest.raises(Refusal) as refused:
        await ask(stranger, ShareAccess("b", [], [AclInfo("User:u")]))
    assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_bad_entry_is_left_out_and_said(world, caplog):
    """S9: one name took the broker's whole registration, and after 120 s all its topics, away."""
    node = await world.nameserver()
    topics = [TopicConfig("T"), TopicConfig("%RETRY%" + "g" * 120 + "_" + "T" * 127), TopicConfig("Q", 2**31 - 1)]
    registration = Registration([node.address], lambda _names: a_broker(topics=topics), Dialer(world.clock))
    await registration.start()
    client = await world.connect(node)
    assert (await ask(client, GetTopicList())).topics == sorted(one.name for one in topics[:2])
    assert not trouble(registration)
    assert "'Q' has 2147483647" in dict(registration.facts())["topicsLeftOut"]
    registration.changed()
    await registration.stop()
    assert len([one for one in caplog.records if "'Q' has" in one.getMessage()]) == 2, "by each of them, once"


class Changing:
    """What a broker has, and how often it was asked for all of it."""

    def __init__(self):
        self.topics = {"T": TopicConfig("T")}
        self.version = self.whole = 0

    def describe(self, names):
        self.whole += names is None
        found = [self.topics[name] for name in (self.topics if names is None else names) if name in self.topics]
        return a_broker(topics=found, counter=self.version)

    def change(self, registration, name, queues=0):
        self.version += 1
        self.topics.pop(name, None)
        if queues:
            self.topics[name] = TopicConfig(name, queues, queues)
        registration.on_topic_changed(name)


async def test_topics_that_change_are_told_alone(world):
    """What it takes to make one topic does not grow with the topics that are there."""
    node, broker = await world.nameserver(), Changing()
    client = await world.connect(node)
    registration = Registration([node.address], broker.describe, Dialer(world.clock))
    await registration.start()
    for number in range(20):
        broker.change(registration, f"new-{number}", 1 + number)
        await registration.told()
        (row,) = (await ask(client, GetRoute(f"new-{number}"))).queues
        assert row.read_queue_nums == 1 + number
    broker.change(registration, "T")
    await registration.told()
    with pytest.raises(Refusal, match="No topic route info"):
        await ask(client, GetRoute("T"))
    assert broker.whole == 1, "at its start"
    for second in range(2 * int(register.PERIOD_S) + 1):
        broker.change(registration, "U", 1 + second)
        await registration.told()
        await world.clock.advance(1)
    assert broker.whole == 3, "of all every 30 s, though others come before"
    await world.clock.advance(register.PERIOD_S)
    await until(lambda: broker.whole == 4)
    await registration.stop()


async def test_many_that_change_at_once_are_told_with_all_others(world):
    node, broker = await world.nameserver(), Changing()
    registration = Registration([node.address], broker.describe, Dialer(world.clock))
    await registration.start()
    for number in range(register.MOST_CHANGES + 1):
        broker.change(registration, f"new-{number:03d}", 1)
    await registration.told()
    assert broker.whole == 2
    assert (await ask(await world.connect(node), GetTopicList())).topics == ["T", *sorted(broker.topics)[1:]] != ["T"]
    await registration.stop()


async def test_a_nameserver_that_cannot_take_a_change_is_told_of_all(world):
    """It was told otherwise meanwhile, through another connection; one of an earlier release refuses changes, too."""
    node, broker = await world.nameserver(), Changing()
    registration = Registration([node.address], broker.describe, Dialer(world.clock))
    await registration.start()
    other = await world.connect(node)
    await ask(other, a_broker(topics=[TopicConfig("Other")], counter=1))
    broker.version = 2
    broker.change(registration, "U", 1)
    await registration.told()
    assert not trouble(registration)
    assert broker.whole == 2
    assert (await ask(other, GetTopicList())).topics == ["T", "U"]
    await registration.stop()


async def test_a_nameserver_that_stands_still_holds_a_change_up_once_and_for_a_moment(world):
    """And all of it is told when it goes on."""
    node, broker = await world.nameserver(), Changing()
    goes_on = asyncio.Event()
    goes_on.set()
    address = await world.parts.enter_async_context(relay(node.address, goes_on=goes_on))
    registration = Registration([address], broker.describe, Dialer(world.clock))
    await registration.start()
    goes_on.clear()
    broker.change(registration, "U", 1)
    began, waiting = world.clock.monotonic(), asyncio.create_task(registration.told())
    await world.clock.advance_until(waiting.done)
    assert world.clock.monotonic() - began < register.TOLD_S + 1
    await world.clock.advance_until(lambda: trouble(registration))
    broker.change(registration, "V", 1)
    await asyncio.wait_for(registration.told(), 5)  # it is not waited for any more
    goes_on.set()
    await world.clock.advance_until(lambda: not trouble(registration))
    assert (await ask(await world.connect(node), GetTopicList())).topics == ["T", "U", "V"]
    await registration.stop()


async def test_a_link_that_swallows_everything_is_opened_anew(world):
    """Its connection looks open, as behind a firewall that was started again; others get through."""
    node, broker = await world.nameserver(), Changing()
    gates = [asyncio.Event()]
    gates[0].set()
    address = await world.parts.enter_async_context(relay(node.address, gates=gates))
    registration = Registration([address], broker.describe, Dialer(world.clock))
    world.parts.push_async_callback(registration.stop)
    world.parts.callback(gates[0].set)
    await registration.start()
    gates[0].clear()
    gates.append(asyncio.Event())
    gates[1].set()
    broker.change(registration, "U", 1)
    await world.clock.advance_until(lambda: trouble(registration), step_s=FIRST_PAUSE_S / 2)
    began = world.clock.monotonic()
    await world.clock.advance_until(lambda: not trouble(registration))
    assert world.clock.monotonic() - began < 5, "not only when the other side closes what is idle: nobody would hear of that"
    assert (await ask(await world.connect(node), GetTopicList())).topics == ["T", "U"]


async def test_a_slave_looks_for_its_master_over_another_link_too(world):
    node = await world.nameserver()
    broker = await world.connect(node)
    await ask(broker, a_broker()._replace(broker_addr="127.0.0.1:1"))  # where nobody listens
    gates, heard = [asyncio.Event()], []
    gates[0].set()
    address = await world.parts.enter_async_context(relay(node.address, gates=gates))
    directory = Directory([address], "b", ("n1", "127.0.0.1:2"), Dialer(world.clock), heard.append)
    await directory.look()
    assert len(heard) == 1
    gates[0].clear()
    gates.append(asyncio.Event())
    gates[1].set()
    for _ in range(2):
        looking = asyncio.create_task(directory.look())
        await world.clock.advance_until(looking.done)
    assert len(heard) == 2
    await directory.stop()
    gates[0].set()


async def test_nobody_steals_a_route(world):
    """N2: with whatever epoch, from a broker that is there."""
    node = await world.nameserver()
    broker, thief, client = [await world.connect(node) for _ in range(3)]
    await ask(broker, a_broker())
    for claim in (a_broker(port=6, epoch=2**63 - 1), a_broker(port=1, epoch=7)._replace(store="x", topics=[])):
        with pytest.raises(Refusal, match="did not name"):
            await ask(thief, claim)
    assert await leaders(client) == {"b": "10.0.0.1:1"}


async def test_a_nameserver_that_was_started_again_knows_at_once(world):
    """N3: brokers notice that the connection ended, and try until it is back; the clock moves as little as that takes."""
    node = await world.nameserver()
    registration = Registration([node.address], lambda _names: a_broker(), Dialer(world.clock))
    await registration.start()
    await node.stop()
    again = Nameserver(replace(SETTINGS, namesrv_port=int(node.address.rpartition(":")[2])), world.clock)
    await until(lambda: trouble(registration))
    began = world.clock.monotonic()
    await again.start()
    world.parts.push_async_callback(again.stop)
    await world.clock.advance_until(lambda: not trouble(registration), 0.1)
    assert world.clock.monotonic() - began <= 2 * register.AWAY_PAUSE_S
    assert await leaders(await world.connect(again)) == {"b": "10.0.0.1:1"}
    await registration.stop()


async def test_a_broker_registers_at_once_behind_a_sleep_of_its_machine(world):
    """A nameserver elsewhere has forgotten it meanwhile. It was in no route for half a minute more."""
    node, clock = await world.nameserver(), TestClock(running=False)
    registration = Registration([node.address], lambda _names: a_broker(), Dialer(clock))
    await registration.start()
    client = await world.connect(node)
    await world.clock.advance(150)
    assert await leaders(client) == {}
    clock.suspend(150)
    await clock.advance(1)
    await until_leaders(client, {"b": "10.0.0.1:1"})
    await registration.stop()


async def test_a_refused_broker_tries_again_soon_and_says_why(world, caplog):
    """A lone broker that was moved to an empty store: it waited for 120 s, and nobody was told but a log."""
    node = await world.nameserver()
    old = await world.connect(node)
    await ask(old, a_broker(epoch=57)._replace(members=[]))
    moved = Registration([node.address], lambda _names: a_broker(port=2, epoch=1)._replace(members=[]), Dialer(world.clock))
    await moved.start()
    assert "10.0.0.1:1 already leads" in trouble(moved) or "is over" in trouble(moved)
    await world.clock.advance_until(lambda: any(one.name == "rmq.register" for one in caplog.records), 0.1)
    assert [one.levelname for one in caplog.records if one.name == "rmq.register"] == ["ERROR"]
    await old.close()
    await world.clock.advance_until(lambda: not trouble(moved), 0.1)
    assert world.clock.monotonic() < 10, "seconds"
    assert await leaders(await world.connect(node)) == {"b": "10.0.0.1:2"}
    await moved.stop()


# --- RocketMQ's brokers


@pytest.mark.parametrize(("deflated", "said"), [(True, True), (True, False), (False, False)])
async def test_rocketmqs_body_deflated_or_not(world, deflated, said):
    """5.5.0 with compressedRegister=true deflates it and says that it did not."""
    node = await world.nameserver()
    body = base64.b64decode(DEFLATED) if deflated else java_body({"T1": 4, "T2": 1})
    header = await java(world, node, body, compressed=str(said).lower())
    assert (header["code"], header.get("extFields", {})) == (0, {})
    client = await world.connect(node)
    route = await ask(client, GetRoute("T1"))
    assert [(row.read_queue_nums, row.write_queue_nums, row.perm) for row in route.queues] == [(4, 5 if deflated else 4, 6)]
    assert (await ask(client, GetTopicList())).topics == ["T1", "T2"]


async def test_a_deflated_body_inflates_to_so_much_and_no_more(world):
    """S7: 100 MB in 100 kB."""
    node = await world.nameserver()
    body = zlib.compress(b"\0" * (100 << 20), 9)
    header = await java(world, node, body, compressed="true")
    assert header["code"] != 0
    assert "inflates to more" in header["remark"]
    for bad in (zlib.compress(b"\0\0\0\x05{}"), zlib.compress(b""), b"", b"x", zlib.compress(struct.pack(">i2si", 2, b"{}", 9))):
        assert (await java(world, node, bad, compressed="true"))["code"] != 0


async def test_pieces_of_rocketmqs_add_up(world):
    """[enableSplitRegistration]"""
    node = await world.nameserver()
    for name in ("A", "B"):
        assert (await java(world, node, java_body({name: 4})))["code"] == 0
    assert (await ask(await world.connect(node), GetTopicList())).topics == ["A", "B"]


async def test_a_broker_that_registers_only_what_changed(world):
    """forceRegister=false: it asks (322) every 30 s, and left the routes after 120 s when nobody answered that."""
    node = await world.nameserver()
    tool = await Tool.connect(node.address, "dashboard")
    me = {"brokerName": "java", "brokerAddr": "10.0.0.7:10911", "clusterName": "C", "brokerId": 0}
    version, newer = (json.dumps({"counter": counter, "stateVersion": 0, "timestamp": 2}).encode() for counter in (1, 2))
    assert (await tool.ask(322, me, version)).fields["changed"] == "true", "it is not known at all"
    assert (await tool.ask(103, {**me, "haServerAddr": ""}, java_body({"T": 4}))).code == 0
    for _ in range(5):
        await world.clock.advance(60)
        assert (await tool.ask(322, me, version)).fields["changed"] == "false"
    assert "java" in await leaders(await world.connect(node))
    assert (await tool.ask(322, me, newer)).fields["changed"] == "true"
    other = await Tool.connect(node.address, "dashboard")
    assert (await other.ask(322, me, version)).fields["changed"] == "true", "it would leave with its old connection"
    assert (await other.ask(322, {**me, "brokerId": "x"}, b"{")).code != 0
    await tool.close()
    await other.close()


async def test_rocketmqs_slaves_are_told_of_their_master(world, tmp_path):
    """For requests and for copies; all are told the orders of topics [KVTable]."""
    node = Nameserver(replace(SETTINGS, store_dir=tmp_path), world.clock)  # it keeps the orders
    await node.start()
    world.parts.push_async_callback(node.stop)
    tool = await Tool.connect(node.address, "dashboard")
    world.parts.push_async_callback(tool.close)
    one = {"brokerName": "java", "clusterName": "C"}
    master = {**one, "brokerAddr": "10.0.0.7:10911", "haServerAddr": "10.0.0.7:10912", "brokerId": 0}
    slave = {**one, "brokerAddr": "10.0.0.8:10911", "haServerAddr": "10.0.0.8:10912", "brokerId": 1}
    early = await tool.ask(103, slave, java_body({"T": 4}))
    assert (early.fields, early.body) == ({}, b"")
    assert (await tool.ask(103, master, java_body({"T": 4}))).fields == {}
    assert (await tool.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "java:4"})).code == 0
    told = await tool.ask(103, slave, java_body({"T": 4}))
    assert told.fields == {"masterAddr": "10.0.0.7:10911", "haServerAddr": "10.0.0.7:10912"}
    assert json.loads(told.body) == {"table": {"T": "java:4"}}


async def test_orders_of_any_length_keep_no_broker_from_the_routes(world, tmp_path):
    """They came with each answer, and our brokers refuse a frame with more than 2 MiB of such."""
    node = Nameserver(replace(SETTINGS, store_dir=tmp_path), world.clock)
    await node.start()
    world.parts.push_async_callback(node.stop)
    tool = await Tool.connect(node.address, "dashboard")
    world.parts.push_async_callback(tool.close)
    for number in range(40):
        entry = {"namespace": "ORDER_TOPIC_CONFIG", "key": f"T{number}", "value": "java:4;" * 9_000}
        assert (await tool.ask(100, entry)).code == 0
    registration = Registration([node.address], lambda _names: a_broker(), Dialer(world.clock))
    await registration.start()
    assert not trouble(registration)
    await registration.stop()


async def test_a_long_list_of_rocketmqs_is_read(world):
    """It sends all in one request, some 200 bytes a topic; 2 MiB were the most."""
    node = await world.nameserver()
    body = java_body({f"topic-of-some-length-{number}": 8 for number in range(25_000)})
    assert len(body) > 2 << 20
    header = await java(world, node, body)
    assert header["code"] == 0
    assert len((await ask(await world.connect(node), GetTopicList())).topics) == 25_000


async def test_clients_of_a_zone_are_sent_to_its_brokers(world):
    """Those without a leader are told to everybody: they are read from their followers [ZoneRouteRPCHook]."""
    node = await world.nameserver()
    peer = await world.connect(node)
    await ask(peer, a_broker("west")._replace(zone="west"))
    await ask(await world.connect(node), a_broker("nowhere"))
    assert (await java(world, node, java_body({"T": 4}), name="east", __ZONE_NAME="East"))["code"] == 0
    orphan = {"name": "orphan", "broker_id": 1, "address": "10.0.0.9:10911"}
    assert (await java(world, node, java_body({"T": 4}), **orphan, __ZONE_NAME="north"))["code"] == 0
    zones = [one.zone for one in (await ask(peer, GetRoute("T"))).brokers]
    assert zones == ["East", "", "north", "west"]
    near = await ask(peer, GetRoute("T", zone="east"))
    assert [one.name for one in near.brokers] == [one.broker_name for one in near.queues] == ["east", "orphan"]
    tool = await Tool.connect(node.address, "dashboard")
    for mode, wanted in {"true": ["orphan", "west"], "false": ["east", "nowhere", "orphan", "west"]}.items():
        route = (await tool.ask(105, {"topic": "T", "__ZONE_MODE": mode, "__ZONE_NAME": "West"})).json()
        assert [one["brokerName"] for one in route["brokerDatas"]] == wanted
        assert [one["brokerName"] for one in route["queueDatas"]] == wanted
        assert {one["brokerName"]: one.get("zoneName") for one in route["brokerDatas"]}["west"] == "west"
    await tool.close()
    assert (await java(world, node, java_body({"T": 4}), name="odd", __ZONE_NAME="x" * 200))["code"] != 0
