"""Who produces, who may do what, and what is set for a group."""

import asyncio
from pathlib import Path

from rmq.client import Message
from rmq.client.admin import access, calls
from rmq.model import GroupConfig, TopicConfig
from rmq.net.commands import GetAllGroupConfig, GroupConfigs, RegisterBroker, UpdateTopic
from rmq.net.commands.routes import WipeWritePerm
from rmq.scram import Credentials
from rmq.testing import LocalBroker
from tests.broker.groups import LocalGroup, OwnDisk
from tests.broker.pair import Pair
from tests.broker.support import Peer
from tests.broker.test_access import ROOT, SETTINGS
from tests.client.scripted import Broker
from tests.dashboard.test_pages import NASTY, until_shown
from tests.dashboard.visitor import visiting


async def test_producers_are_listed_with_where_they_are_connected(tmp_path: Path) -> None:
    async with LocalBroker() as broker, visiting(broker.nameserver, tmp_path) as visitor:
        assert "No producer is connected" in await visitor.get("/producers")
        async with broker.client() as client, client.producer("sellers") as producer:
            await producer.send(Message("Orders", b"1"))
            await until_shown(visitor, "/producers", "sellers")
            assert f"sellers {client.client_id} 127.0.0.1:" in visitor.text
            assert "PYTHON 5.5.0 broker-a" in visitor.text
            assert "sellers" in await visitor.get("/producers", topic="Orders", q="SELL")
            assert "sellers" not in await visitor.get("/producers", q="buyers")
            assert "TOPIC_NOT_EXIST" in await visitor.get("/producers", topic="Nowhere")


async def test_users_and_policies_are_made_changed_and_deleted(tmp_path: Path) -> None:
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        assert "No users" in await visitor.get("/users")
        user = {"name": "ann", "password": "correct horse", "kind": "Normal", "status": "enable", "broker": "broker-a"}
        assert "User ann is saved at broker-a" in await visitor.post("/users/save", **user)
        assert "correct horse" not in visitor.page
        assert "At broker-a nobody has to log in" in visitor.text
        await visitor.get("/users", user="ann")
        assert "Change ann" in visitor.text
        await visitor.post("/users/save", **user | {"password": "", "status": "disable"})
        (known,) = await access.users_at(client, broker.address)
        assert (known.user_status, known.user_type) == ("disable", "Normal")
        policy = {"user": "ann", "resources": "Topic:Orders, Topic:ship*", "action": ["Pub", "Sub"], "sources": "10.0.0.0/8"}
        assert "is saved at broker-a" in await visitor.post("/users/policy/save", **policy, decision="Deny", broker="broker-a")
        assert "User:ann Custom Topic:Orders Pub, Sub 10.0.0.0/8 Deny broker-a" in visitor.text
        assert "Topic:ship*" in visitor.text
        gone = {"subject": "User:ann", "kind": "Custom", "resource": "Topic:Orders", "broker": "broker-a"}
        assert "no longer told" in await visitor.post("/users/policy/delete", **gone)
        assert "Topic:Orders Pub" not in visitor.text
        assert "Refused" in await visitor.post("/users/save", **user | {"name": NASTY})
        assert "tick at least one broker" in await visitor.post("/users/save", **user | {"broker": "nobody"})
        assert "type the name" in await visitor.post("/users/delete", name="ann", typed="Ann", broker="broker-a")
        assert "User ann is deleted" in await visitor.post("/users/delete", name="ann", typed="ann", broker="broker-a")
        assert await access.users_at(client, broker.address) == []


async def test_users_where_access_is_on(tmp_path: Path) -> None:
    """With the rights that the dashboard itself has; to another one the page says why it shows nothing."""
    async with LocalBroker(**SETTINGS) as broker:
        async with visiting(broker.nameserver, tmp_path / "root", who=ROOT) as visitor:
            await until_shown(visitor, "/users", "root Super yes broker-a")
            assert "nobody has to say" not in visitor.text
            assert "every user may do everything" not in visitor.text
            user = {"name": "ann", "password": "correct horse", "kind": "Normal", "broker": "broker-a"}
            assert "User ann is saved" in await visitor.post("/users/save", **user)
            policy = {"user": "ann", "resources": "Cluster:*", "action": ["Get", "List"], "broker": "broker-a"}
            await visitor.post("/users/policy/save", **policy)
            assert "User:ann Custom Cluster:*" in visitor.text
        async with visiting(broker.nameserver, tmp_path / "ann", who=Credentials("ann", "correct horse")) as visitor:
            await until_shown(visitor, "/users", "ann Normal yes broker-a")
            await visitor.post("/users/delete", name="root", typed="root", broker="broker-a")
            assert visitor.status == 409
        async with visiting(broker.nameserver, tmp_path / "nobody") as visitor:
            for path in ("/", "/users", "/topics", "/nameservers"):
                assert "RMQ_USER" in await visitor.get(path), "that it has to log in was told as 'no broker is registered'"


async def test_settings_of_a_group_are_shown_and_changed(tmp_path: Path) -> None:
    """What the form does not have stays as it was."""
    policy = '{"customizedRetryPolicy":{"next":[1000,5000,10000]},"type":"CUSTOMIZED"}'
    config = GroupConfig("g", group_sys_flag=3, retry_max_times=5)
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        await calls.update_group(client, config, broker="broker-a")
        shown = await visitor.get("/group", name="g")
        assert "Times that a failed message comes again 5" in shown
        changed = {"consume": "no", "retries": "-1", "timeout": "3", "policy": policy}
        assert "Group g is saved" in await visitor.post("/group/save", name="g", broker="broker-a", **changed)
        expected = config._replace(consume_enable=False, retry_max_times=-1, consume_timeout_minute=3, retry_policy=policy)
        assert await calls.group_config(client, "g", broker.address) == expected
        assert "It may not consume at broker-a" in visitor.text
        assert policy in visitor.text
        assert "Refused" in await visitor.post("/group/save", name="g", policy="{}}", broker="broker-a")
        await visitor.post("/group/save", name="g", policy="", broker="broker-a")
        assert await calls.group_config(client, "g", broker.address) == expected._replace(retry_policy="")


async def test_why_nothing_can_be_sent_is_said(tmp_path: Path) -> None:
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        await broker.create_topic("Orders", 2)
        assert "Nothing can be sent" not in await visitor.get("/topic", name="Orders")
        await calls.update_topic(client, "Orders", broker="broker-a", perm=4)
        assert "Nothing can be sent to it at broker-a : the topic may not be written there" in await visitor.get(
            "/topic", name="Orders"
        )
        await calls.update_topic(client, "Orders", broker="broker-a", perm=6)
        names = await Peer.connect(broker.nameserver)
        await names.ask(WipeWritePerm("broker-a"))
        await until_shown(visitor, "/topic?name=Orders", "the nameservers tell clients not to send there")
        assert visitor.text.count("the nameservers tell clients not to send there") == 1
        assert "Not healthy broker-a: the nameservers tell clients not to send there" in await visitor.get("/")
        await names.close()


async def test_a_full_disk_and_a_missing_majority_are_said_where_somebody_looks_for_a_topic(tmp_path: Path) -> None:
    disks = {name: OwnDisk() for name in ("n0", "n1", "n2")}
    for name in disks:  # the machine is asked how large it is
        (tmp_path / "nodes" / name).mkdir(parents=True)
    async with LocalGroup(tmp_path / "nodes", disks=disks) as group, visiting(group.nameserver, tmp_path) as visitor:
        leader = await group.leader()
        peer = await group.connect(leader)
        await peer.ask(UpdateTopic("Orders", read_queue_nums=1, write_queue_nums=1))
        await peer.close()
        await until_shown(visitor, "/topic?name=Orders", "0 messages ever")
        assert "takes no messages" not in visitor.text
        for name, disk in disks.items():
            disk.used = 0.97
            await group.clock.advance_until(group.nodes[name].waits_for)
        for path in ("/topic?name=Orders", "/"):
            await until_shown(visitor, path, "takes no messages: disk full: the disk with ")
            assert "is 97% full; free space" in visitor.text
        for disk in disks.values():
            disk.used = 0.1
        await group.clock.advance_until(lambda: not any(node.waits_for() for node in group.nodes.values()))
        await group.stop(*await group.followers())
        for path in ("/topic?name=Orders", "/"):
            await until_shown(visitor, path, "nobody leads: it takes no messages until a majority")


async def test_missing_slaves_are_said_where_somebody_looks_for_a_topic(tmp_path: Path) -> None:
    """What a master stored alone is not acknowledged as its producers expect."""
    pair = Pair(tmp_path / "nodes")
    await pair.begin()
    master = await pair.start(0, "SYNC_MASTER", in_sync_replicas=2)
    peer = await Peer.connect(master.address)
    making = asyncio.create_task(peer.ask(UpdateTopic("Orders", read_queue_nums=1, write_queue_nums=1)))
    await pair.clock.advance_until(making.done)
    async with visiting(pair.nameserver.address, tmp_path) as visitor:
        for path in ("/topic?name=Orders", "/"):
            await until_shown(visitor, path, "answered by SLAVE_NOT_AVAILABLE: 2 nodes are to have each message")
    await peer.close()
    await pair.stop(0)
    await pair.nameserver.stop()


async def test_who_may_send_is_said_where_somebody_looks_for_a_topic(tmp_path: Path) -> None:
    async with LocalBroker(**SETTINGS) as broker, visiting(broker.nameserver, tmp_path, who=ROOT) as visitor:
        await until_shown(visitor, "/users", "root Super yes broker-a")
        await visitor.post("/topic/save", name="Orders", broker="broker-a", perm="6")
        assert "only super users may send to it" in visitor.text
        await visitor.post("/users/save", name="ann", password="correct horse", kind="Normal", broker="broker-a")
        rule = {"user": "ann", "action": ["Pub"], "broker": "broker-a"}
        await visitor.post("/users/policy/save", **rule, resources="Topic:Ord*", decision="Deny")
        await visitor.post("/users/policy/save", **rule, resources="Topic:Payments Group:Orders", decision="Allow")
        assert "User:ann Topic:Ord* Pub anywhere Deny broker-a" in await visitor.get("/topic", name="Orders")
        assert "Payments" not in visitor.text
        assert "Group:Orders" not in visitor.text


async def test_what_one_broker_refuses_is_done_at_the_others(tmp_path: Path) -> None:
    """Those behind it were not asked, and nobody was told which."""
    async with LocalBroker() as broker, broker.client() as client:
        other = await Broker("0-other").start()
        other.also(GetAllGroupConfig, lambda request, call: GroupConfigs([]))
        registering = await Peer.connect(broker.nameserver)
        await registering.ask(RegisterBroker("C", "0-other", 0, other.address, 0, [TopicConfig("T", 1, 1)]))
        async with visiting(broker.nameserver, tmp_path) as visitor:
            await visitor.get("/groups")
            said = await visitor.post("/group/save", name="new", broker=["0-other", "broker-a"])
            assert "; done at broker-a, not at 0-other" in said
            assert "new" in {each.name for each in await calls.group_configs(client, broker.address)}
        await registering.close()
        await other.stop()
