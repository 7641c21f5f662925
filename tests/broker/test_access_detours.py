"""Ways around policies: a request that its sender may make, and that reaches what belongs to others (S1, S2)."""

import asyncio
import shutil
from collections.abc import AsyncIterator

import pytest

from rmq.broker.startup import opening
from rmq.client import Decision, Message
from rmq.codes import RequestCode, ResponseCode as R
from rmq.log.records import record
from rmq.model import DELAY_TOPIC, HALF_TOPIC, STATE_TOPIC, GroupConfig
from rmq.net.commands import (
    GetConsumeStats,
    GetRoute,
    GetRuntimeInfo,
    GetTopicConfig,
    GetTopicList,
    Heartbeat,
    Ping,
    Pull,
    QueryMessage,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
    ViewMessage,
)
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.clients import GetTopicsOfGroup
from rmq.net.commands.configuration import GetNameserverConfig, UpdateNameserverConfig
from rmq.net.commands.pop import Peek
from rmq.net.commands.questions import ConsumeDirectly
from rmq.net.commands.registration import PutSetting
from rmq.net.commands.replies import REPLY_TO_CLIENT, PushReply, SendReply
from rmq.net.commands.retries import SendBack
from rmq.net.commands.routes import GetTopicsOfCluster
from rmq.testing import LocalBroker
from tests.broker.support import SUBSCRIBED, Peer, send
from tests.broker.test_access import SETTINGS, Signer, asked, login, make_user, nameserver_permits
from tests.broker.test_lights import LIGHT, light
from tests.broker.test_rebuilding import connected
from tests.broker.transactions import COMMIT, ROLLBACK, checks, end, half, stored
from tests.net.java_peer import BODIES


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(transaction_timeout_ms=1000, transaction_check_interval_ms=1000, **SETTINGS) as broker:
        yield broker


@pytest.fixture
async def root(local: LocalBroker) -> AsyncIterator[Peer]:
    """`bob` has the topic `T`, `eve` has `mine`; each has a group."""
    peer = await login(local, "root", "root-secret")
    for topic in ("T", "mine"):
        await peer.ask(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1))
    for group in ("g", "g_x"):
        await peer.ask(UpdateGroup(GroupConfig(group)))
    await make_user(peer, "bob", PolicyEntry("Topic:T", ["Pub", "Sub"]), PolicyEntry("Group:g_x", ["Sub"]))
    await make_user(peer, "eve", PolicyEntry("Topic:mine", ["Pub", "Sub"]), PolicyEntry("Group:g", ["Sub"]))
    yield peer
    await peer.close()


async def test_a_failed_message_that_is_another_topics(local: LocalBroker, root: Peer) -> None:
    """Who gives a message back names an offset of the log, and its group gets what stands there."""
    [secret] = await root.send(send("T", b"secret"))
    [own] = await root.send(send("mine", b"own"))
    eve, java = await login(local, "eve", "eve-secret"), Signer(local.address, "eve", "eve-secret")
    assert await eve.refusal(SendBack(secret.physical_offset, "g", 1)) == R.NO_PERMISSION
    fields = {"offset": f"{secret.physical_offset}", "group": "g", "delayLevel": "1", "originTopic": "mine"}
    assert (await asked(java, RequestCode.CONSUMER_SEND_MSG_BACK, fields))[0] == R.NO_PERMISSION
    await eve.ask(SendBack(own.physical_offset, "g", 1))
    java.close()
    await eve.close()


async def test_a_transaction_of_another_topic(local: LocalBroker, root: Peer) -> None:
    """It is ended only by who may send to its topic; and only such a producer is asked after it, which shows the message."""
    bob, eve = await login(local, "bob", "bob-secret"), await login(local, "eve", "eve-secret")
    java = {name: Signer(local.address, name, f"{name}-secret") for name in ("bob", "eve")}
    for name, peer in (("bob", bob), ("eve", eve)):
        await peer.ask(Heartbeat(f"{name}-1", ["p"]))
        assert (await asked(java[name], RequestCode.HEART_BEAT, {}, BODIES[Heartbeat](Heartbeat(f"{name}-2", ["j"], []))))[0] == 0
    sent = await bob.send(*(half(b"%d" % number) for number in range(4)), half(b"for java", PGROUP="j"))
    for how in (COMMIT, ROLLBACK):
        for topic in ("mine", "T"):
            assert await eve.refusal(end(sent[0], how, topic=topic)) == R.NO_PERMISSION
    await local.clock.advance_until(lambda: len({one.msg_id for one in checks(bob)}) == 4)
    question, _ = await asyncio.to_thread(java["bob"].frame)
    assert (question.code, question.ext["topic"]) == (RequestCode.CHECK_TRANSACTION_STATE, "T")
    assert not checks(eve)
    assert (await asked(java["eve"], 31, {"topic": "mine", "queueId": "0"}))[0] == 0
    assert not java["eve"].questions
    for one in checks(bob)[-4:]:
        await bob.ask(end(one, topic="mine"))  # what it names means nothing: clients leave their namespace out there
    assert len(await stored(root, "T")) == 4
    for each in (bob, eve):
        await each.close()
    for signer in java.values():
        signer.close()


async def test_a_message_that_is_named_by_its_place(local: LocalBroker, root: Peer) -> None:
    """What counts is the topic of the message, whatever topic the request names, or if it names none. Who may look at the
    cluster, as for metrics, may not read all messages."""
    [secret], [own] = await root.send(send("T", b"secret")), await root.send(send("mine", b"own"))
    everything = [
        PolicyEntry("Topic:*", ["Pub", "Sub"]),
        PolicyEntry("Group:*", ["Sub"]),
        PolicyEntry("Topic:T", ["All"], [], "Deny"),
    ]
    await make_user(root, "most", *everything)
    await make_user(root, "ops", PolicyEntry("Cluster:*", ["Get"]))
    most, ops = await login(local, "most", "most-secret"), await login(local, "ops", "ops-secret")
    await most.ask(ViewMessage(own.physical_offset))
    for peer in (most, ops):
        assert await peer.refusal(ViewMessage(secret.physical_offset)) == R.NO_PERMISSION
    message_id = record.message_id(record.host_bytes("127.0.0.1", 1), secret.physical_offset)
    assert await most.refusal(ConsumeDirectly("g", "c", message_id)) == R.NO_PERMISSION
    bob, eve = await login(local, "bob", "bob-secret"), await login(local, "eve", "eve-secret")
    await bob.ask(Heartbeat("bob-1", ["p"]))
    [open_half] = await bob.send(half(b"secret"))
    for topic in ("", HALF_TOPIC):
        for peer in (most, eve):
            for how in (COMMIT, ROLLBACK):
                assert await peer.refusal(end(open_half, how, topic=topic)) == R.NO_PERMISSION
    await bob.ask(end(open_half, COMMIT, topic=""))  # as old clients do
    for peer in (most, ops, bob, eve):
        await peer.close()


async def test_topics_where_messages_of_all_topics_wait(local: LocalBroker, root: Peer) -> None:
    """Who may read them may read everything."""
    await make_user(root, "most", PolicyEntry("Topic:*", ["Sub"]), PolicyEntry("Group:*", ["Sub"]))
    most = await login(local, "most", "most-secret")
    for topic in (HALF_TOPIC, DELAY_TOPIC):
        for request in (Pull("g", topic, 0, 0), QueryMessage(topic, "key", 1, 0, 1)):
            assert await most.refusal(request) == R.NO_PERMISSION
        await root.pull(topic, 0)
    await most.close()


async def test_the_log_of_the_tables_is_read_by_nobody(local: LocalBroker, root: Peer) -> None:
    """S12: its records hold the keys of passwords, and passwords that are sealed."""
    await make_user(root, "most", PolicyEntry("*", ["All"]))
    most, stranger = await login(local, "most", "most-secret"), await login(local, "", "")
    for request in (Pull("g", STATE_TOPIC, 0, 0), QueryMessage(STATE_TOPIC, "key", 1, 0, 1), Peek("g", STATE_TOPIC, 0, 1)):
        for peer in (most, root, stranger):
            assert await peer.refusal(request) == R.NO_PERMISSION
    java = Signer(local.address, "most", "most-secret")
    fields = {"consumerGroup": "g", "topic": STATE_TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4"}
    rest = {"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        assert (await asked(java, code, fields | rest))[0] == R.NO_PERMISSION
    java.close()
    for peer in (most, stranger):
        await peer.close()


async def test_light_queues_of_others() -> None:
    """A message goes also to those that it names: its sender needs the right to send there."""
    async with LocalBroker(**SETTINGS, **LIGHT) as local:
        root = await login(local, "root", "root-secret")
        await root.ask(UpdateTopic("mine", read_queue_nums=1, write_queue_nums=1))
        await make_user(root, "eve", PolicyEntry("Topic:mine", ["Pub"]), PolicyEntry("Topic:%LMQ%eve*", ["Pub"]))
        eve = await login(local, "eve", "eve-secret")
        assert await eve.refusal(light("%LMQ%bob", topic="mine")) == R.NO_PERMISSION
        assert await eve.refusal(light("%LMQ%eve,%LMQ%bob", topic="mine")) == R.NO_PERMISSION
        await eve.ask(light("%LMQ%eve", topic="mine"))
        for peer in (root, eve):
            await peer.close()


async def test_replies_for_the_client_id_of_another(local: LocalBroker, root: Peer) -> None:
    """Everybody may give himself a client id; replies go to who had it first."""
    bob, eve = await login(local, "bob", "bob-secret"), await login(local, "eve", "eve-secret")
    for peer in (bob, eve):
        await peer.ask(Heartbeat("bob-1", ["p"]))
    topic = "DefaultCluster_REPLY_TOPIC"
    draft = record.draft(
        topic, b"secret", record.properties_to_bytes({REPLY_TO_CLIENT: "bob-1"}), born_timestamp=1, born_host=bytes(8)
    )
    await root.ask(SendReply("p", topic, 0, draft))
    assert [each.message for each in bob.pushed if isinstance(each, PushReply)] == [b"secret"]
    assert not [each for each in eve.pushed if isinstance(each, PushReply)]
    for peer in (bob, eve):
        await peer.close()


async def test_a_client_of_ours_may_end_its_own_transactions(local: LocalBroker, root: Peer) -> None:
    await local.clock.advance_until(lambda: nameserver_permits(local, "bob"))
    async with (
        local.client(user="bob", password="bob-secret") as client,
        client.transaction_producer(lambda _message: Decision.COMMIT) as producer,
    ):
        await producer.send_in_transaction(Message("T", b"body"), lambda _sent: Decision.COMMIT)
    assert [one.body for one in await stored(root, "T")] == [b"body"]


async def test_lists_hold_what_the_asker_may_see(local: LocalBroker, root: Peer) -> None:
    """Also those about a group, and those of a whole cluster."""
    await make_user(
        root, "ops", PolicyEntry("Cluster:*", ["Get"]), PolicyEntry("Group:g", ["Get"]), PolicyEntry("Topic:mine", ["Get"])
    )
    for topic in ("T", "mine"):
        await root.ask(UpdateConsumerOffset("g", topic, 0, 0))
    ops = await login(local, "ops", "ops-secret")
    assert {row.queue.topic for row in (await ops.ask(GetConsumeStats("g"))).queues} == {"mine"}
    assert await ops.refusal(GetConsumeStats("g", "T")) == R.NO_PERMISSION
    assert (await ops.ask(GetTopicsOfGroup("g"))).topics == ["mine"]
    await local.clock.advance_until(lambda: nameserver_permits(local, "ops"))
    there = await login(local, "ops", "ops-secret", local.nameserver)
    assert (await there.ask(GetTopicsOfCluster("DefaultCluster"))).topics == ["mine"]
    for peer in (ops, there):
        await peer.close()


async def test_who_may_read_a_topic_finds_it_though_he_may_not_send(local: LocalBroker, root: Peer) -> None:
    """One right is enough to see a topic; a Deny of another one stood before it."""
    await make_user(
        root,
        "reader",
        PolicyEntry("Topic:*", ["Sub"]),
        PolicyEntry("Topic:T", ["Pub"], [], "Deny"),
        PolicyEntry("Group:g", ["Sub"]),
    )
    await local.clock.advance_until(lambda: nameserver_permits(local, "reader"))
    there, here = [await login(local, "reader", "reader-secret", each) for each in (local.nameserver, local.address)]
    assert (await there.ask(GetRoute("T"))).brokers
    assert "T" in (await there.ask(GetTopicList())).topics
    assert (await here.ask(GetTopicConfig("T"))).name == "T"
    await here.ask(Pull("g", "T", 0, 0, sys_flag=SUBSCRIBED))
    assert await here.refusal(send("T")) == R.NO_PERMISSION
    for peer in (there, here):
        await peer.close()


async def test_a_nameserver_that_knows_no_users_yet(local: LocalBroker, root: Peer) -> None:
    """It was just started, and keeps entries of administrators on its disk: nobody but nodes is served."""
    await local.stop_broker()
    await local.stop_nameserver()
    await local.start_nameserver()
    stranger, java = await login(local, "", "", local.nameserver), Signer(local.nameserver, "root", "root-secret")
    for request in (
        PutSetting("n", "k", "v"),
        UpdateNameserverConfig("orderMessageEnable=true"),
        GetNameserverConfig(),
        GetRoute("T"),
    ):
        assert await stranger.refusal(request) == R.NO_PERMISSION
    await stranger.ask(Ping())
    for name in ("root", "nobody"):
        with pytest.raises(Exception, match="has not heard of all users"):
            await login(local, name, "root-secret", local.nameserver)
    assert (await asked(java, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))[0] == R.SYSTEM_BUSY
    node = await login(local, "node", "node-secret", local.nameserver)
    await node.ask(PutSetting("n", "k", "v"))
    java.close()
    for peer in (stranger, node):
        await peer.close()


async def test_a_broker_that_knows_no_users_yet(local: LocalBroker, root: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its queues are made anew it shows its state, and messages, to nodes only."""
    [secret] = await root.send(send("T", b"secret"))
    address = local.address
    await local.stop_broker()
    shutil.rmtree(local.store_dir / "consumequeue")
    monkeypatch.setattr(opening, "REBUILD_APART_BYTES", 1)
    starting = asyncio.create_task(local.start_broker())
    stranger = await connected(address, starting)
    node = await login(local, "node", "node-secret", address)
    for request in (GetRuntimeInfo(), ViewMessage(secret.physical_offset)):
        assert await stranger.refusal(request) == R.SYSTEM_BUSY
        await node.ask(request)
    assert not starting.done()
    await starting
    for peer in (stranger, node):
        await peer.close()
