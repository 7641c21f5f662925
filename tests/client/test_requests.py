"""Questions and their replies: at one broker, at two, through a change of leaders, and when nobody is there."""

import asyncio
import math
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.client import Client, ClientSettings, Consumer, Message, ReceivedMessage, Unknown, Unreachable
from rmq.clock import SystemClock
from rmq.codes import ResponseCode as R
from rmq.config.settings import NodeSettings
from rmq.log.records import record
from rmq.model import BrokerAddresses, QueueData, Route
from rmq.net.commands import GetRoute, GetTopicConfig, Heartbeat, Send, SendAnswer, UpdateTopic
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.net.commands.replies import CORRELATION_ID, REPLY_TO_CLIENT, TTL, PushReply, SendReply
from rmq.net.commands.retries import SendBack
from rmq.net.transport.server import LATER, Call
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.support import BORN, Peer, everything
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker as Scripted, never_answer, route_at


async def shout(message: ReceivedMessage) -> bytes:
    return message.body.upper()


async def answering(stack: AsyncExitStack, client: Client, topic: str = "T", answer: object = shout) -> Consumer:
    """A member that answers until the test ends."""
    consumer = await stack.enter_async_context(client.consumer("answerers", topic, start="first"))
    running = asyncio.create_task(consumer.run(consumer.reply(answer)))  # type: ignore[arg-type]
    stack.callback(running.cancel)
    return consumer


async def noting(stack: AsyncExitStack) -> tuple[LocalBroker, Peer, list[bytes]]:
    """A broker, somebody who asks, and the questions that somebody else has handled."""
    broker = await stack.enter_async_context(LocalBroker())
    await broker.create_topic("T", 1)
    client = await stack.enter_async_context(broker.client())
    handled: list[bytes] = []

    async def answer(message: ReceivedMessage) -> bytes:
        handled.append(message.body)
        return b"reply"

    await answering(stack, client, answer=answer)
    peer = await Peer.connect(broker.address)
    stack.push_async_callback(peer.close)
    return broker, peer, handled


async def test_questions_are_answered() -> None:
    """Many at once, each with its own reply; a plain message is handled and not answered."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        await broker.create_topic("T", 2)
        asker, other = [await stack.enter_async_context(broker.client(instance=name)) for name in ("a", "b")]
        await answering(stack, other)
        await asker.producer().send(Message("T", b"no question"))
        replies = await asyncio.gather(*(asker.request(Message("T", b"word %d" % each), timeout=20) for each in range(20)))
        assert [each.body for each in replies] == [b"WORD %d" % each for each in range(20)]
        assert replies[0].properties["MSG_TYPE"] == "reply"
        peer = await Peer.connect(broker.address)
        stack.push_async_callback(peer.close)
        await peer.ask(UpdateTopic("Silent", read_queue_nums=1, write_queue_nums=1))
        stored = await everything(peer, "DefaultCluster_REPLY_TOPIC")
        assert sorted(each.body for each in stored) == sorted(each.body for each in replies)
        asking = asyncio.create_task(asker.request(Message("Silent", b"anybody?"), timeout=5))
        await broker.clock.advance_until(asking.done)
        with pytest.raises(Unknown, match="no reply within 5 s"):
            await asking


async def test_a_question_makes_its_topic() -> None:
    """As any first message does where brokers allow it."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        asker, other = [await stack.enter_async_context(broker.client(instance=name)) for name in ("a", "b")]
        asking = asyncio.create_task(asker.request(Message("Young", b"anybody?"), timeout=3600))
        await answering(stack, other, "Young")
        await broker.clock.advance_until(asking.done)
        assert (await asking).body == b"ANYBODY?"
        assert (await asker.request(Message("Young", b"again"), timeout=math.inf)).body == b"AGAIN"


@pytest.mark.parametrize("ttl_ms", ["abc", "1" + "0" * 12, "-1", "1" * 40])
async def test_a_question_whose_asker_is_gone_holds_up_nobody_for_long(ttl_ms: str) -> None:
    """Whoever sent it says for how long it waits: its answer was stored again and again meanwhile, or the question came again."""
    async with AsyncExitStack() as stack:
        broker, peer, handled = await noting(stack)
        said = {CORRELATION_ID: "1", REPLY_TO_CLIENT: "nobody@1", "TTL": ttl_ms, "CLUSTER": "DefaultCluster"}
        now_ms = broker.clock.wall_ms()
        for properties in (said, {}):
            draft = record.draft("T", b"x", record.properties_to_bytes(properties), born_timestamp=now_ms, born_host=BORN)
            await peer.ask(Send("p", "T", 0, draft))
        await broker.clock.advance_until(lambda: len(handled) == 2)
        await broker.clock.advance(30)
        assert len(handled) == 2
        assert len(await everything(peer, "DefaultCluster_REPLY_TOPIC")) < 12


async def test_replies_to_nobody_are_refused() -> None:
    """They are stored all the same, as RocketMQ does."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        peer = await Peer.connect(broker.address)
        stack.push_async_callback(peer.close)
        topic = "DefaultCluster_REPLY_TOPIC"

        def reply(**properties: str) -> SendReply:
            raw = record.properties_to_bytes(properties)
            return SendReply("p", topic, -1, record.draft(topic, b"x", raw, born_timestamp=1, born_host=BORN))

        asking = asyncio.create_task(peer.refusal(reply(**{CORRELATION_ID: "1", REPLY_TO_CLIENT: "gone"})))
        await broker.clock.advance_until(asking.done)
        assert await asking == R.SYSTEM_ERROR
        assert await peer.refusal(reply()) == R.SYSTEM_ERROR
        assert len(await everything(peer, topic)) == 2
        await peer.ask(Heartbeat("me", ["p"]))
        await peer.ask(reply(**{CORRELATION_ID: "1", REPLY_TO_CLIENT: "me"}))
        [push] = [each for each in peer.pushed if isinstance(each, PushReply)]
        assert (push.topic, push.message, push.born_timestamp) == (topic, b"x", 1)
        assert await peer.refusal(reply()._replace(topic="nowhere")) == R.TOPIC_NOT_EXIST
        assert await peer.refusal(reply()._replace(queue_id=1)) == R.INVALID_PARAMETER
        twice = reply()
        assert await peer.refusal(twice._replace(records=twice.records * 2)) == R.MESSAGE_ILLEGAL
        assert await peer.refusal(reply(DELAY="3")) == R.MESSAGE_ILLEGAL


async def test_a_reply_of_a_client_with_a_namespace() -> None:
    """Java's client (setNamespace) says it before the topic, too, which is made as a send makes it, if topics are."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        peer = await Peer.connect(broker.address)
        stack.push_async_callback(peer.close)
        await peer.ask(Heartbeat("me", ["p"]))
        said = record.properties_to_bytes({CORRELATION_ID: "1", REPLY_TO_CLIENT: "me"})

        def reply(topic: str, queue_id: int) -> SendReply:
            return SendReply("p", topic, queue_id, record.draft(topic, b"x", said, born_timestamp=1, born_host=BORN))

        topic = "one%DefaultCluster_REPLY_TOPIC"
        await peer.ask(reply(topic, 3))
        [push] = [each for each in peer.pushed if isinstance(each, PushReply)]
        assert (push.topic, push.message) == (topic, b"x")
        assert (await peer.ask(GetTopicConfig(topic))).write_queue_nums == 4
        assert await peer.refusal(reply("one%elsewhere_REPLY_TOPIC", 0)) == R.TOPIC_NOT_EXIST
        await peer.ask(UpdateBrokerConfig("autoCreateTopicEnable=false"))
        await peer.ask(reply(topic, 3))
        assert await peer.refusal(reply("two%DefaultCluster_REPLY_TOPIC", 0)) == R.TOPIC_NOT_EXIST


async def test_across_two_brokers(tmp_path: Path) -> None:
    """Who answers may send its reply to any broker of the cluster that takes replies: the asker is known at each."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(LocalBroker())
        settings = NodeSettings(
            role="broker",
            broker_name="broker-b",
            store_dir=tmp_path,
            namesrv_addresses=(broker.nameserver,),
            listen_port=0,
            segment_bytes=1 << 23,
            index_slots=1000,
            index_entries=4000,
            vip_port=False,
        )
        second = Broker(settings, broker.clock)
        await second.start()
        stack.push_async_callback(second.stop)
        await broker.create_topic("T", 1)  # only at the first
        asker, other = [await stack.enter_async_context(broker.client(instance=name)) for name in ("a", "b")]
        await answering(stack, other)
        assert (await asker.request(Message("T", b"word"), timeout=20)).body == b"WORD"
        peer = await Peer.connect(second.address)
        stack.push_async_callback(peer.close)
        topic = "DefaultCluster_REPLY_TOPIC"
        properties = record.properties_to_bytes({CORRELATION_ID: "unknown", REPLY_TO_CLIENT: asker.client_id})
        draft = record.draft(topic, b"x", properties, born_timestamp=1, born_host=BORN)
        await peer.ask(SendReply("p", topic, 0, draft))  # at the other broker


async def test_through_a_change_of_leaders(tmp_path: Path) -> None:
    """The leader stops while the question is being answered: the reply comes by the next one."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slowly(message: ReceivedMessage) -> bytes:
        begun.set()
        await go.wait()
        return message.body.upper()

    async with LocalGroup(tmp_path) as group, AsyncExitStack() as stack:
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        asker, other = [await stack.enter_async_context(group.client()) for _ in range(2)]
        await answering(stack, other, answer=slowly)
        asking = asyncio.create_task(asker.request(Message("T", b"word"), timeout=3600))
        await group.clock.advance_until(begun.is_set)
        await group.stop(name)
        go.set()
        await group.clock.advance_until(asking.done)
        assert (await asking).body == b"WORD"


async def test_a_question_that_no_broker_of_the_zone_takes() -> None:
    """As a send; it was an IndexError."""
    async with LocalBroker() as broker:
        await broker.create_topic("T", 1)
        async with broker.client(settings=ClientSettings(zone="elsewhere")) as asker:
            with pytest.raises(Unreachable, match="no broker takes messages for T now"):
                await asker.request(Message("T", b"anybody?"), timeout=1)


def replied(request: Send, call: Call) -> None:
    """By a broker that stores the question and has the reply at once."""
    asked = record.bytes_to_properties(record.decode(request.records).properties)
    said = record.properties_to_bytes({CORRELATION_ID: asked[CORRELATION_ID]}).decode()
    call.connection.push(PushReply("g", "c_REPLY_TOPIC", "", 0, 0, 0, 1, 0, said, 0, False, "", "", 1, b"reply"))
    call.answer(SendAnswer(0, 0, 0))


async def test_a_broker_that_stands_still_holds_up_no_question_to_another_one() -> None:
    """Both were waited for, for three seconds and more: longer than anybody waits for a reply."""
    async with AsyncExitStack() as stack:
        quiet: list[asyncio.StreamWriter] = []
        silent = await stack.enter_async_context(
            await asyncio.start_server(lambda _, writer: quiet.append(writer), "127.0.0.1", 0)
        )
        stack.callback(lambda: [writer.close() for writer in quiet])
        broker = await Scripted().start()
        stack.push_async_callback(broker.stop)
        there = BrokerAddresses("c", "a", {0: broker.address})
        still = BrokerAddresses("c", "b", {0: f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"})
        of_t, of_replies = [
            Route(groups, [QueueData(one.name, 1, 1, 6) for one in groups]) for groups in ([there], [there, still])
        ]
        broker.route = lambda topic: of_t if topic == "T" else of_replies
        broker.faults[Send] = [replied] * 2
        client = await stack.enter_async_context(Client(broker.address))
        clock = client.session.clock
        for _ in range(2):
            began = clock.monotonic()
            assert (await client.request(Message("T", b"word"), timeout=3)).body == b"reply"
            assert clock.monotonic() - began < 3
            assert quiet


async def test_the_time_of_a_question_holds_for_the_nameserver_too(make_client: MakeClient, broker: Scripted) -> None:
    broker.faults[GetRoute] = [never_answer] * 100
    client = make_client()
    clock = client.session.clock
    began = clock.monotonic()
    with pytest.raises(Unreachable, match="where T lives"):
        await client.request(Message("T", b"word"), timeout=0.2)
    assert clock.monotonic() - began < 2


async def test_a_clock_that_is_set_back_does_not_hold_up_who_answers() -> None:
    """It tried to bring the reply until the clock was where it had been: for an hour nothing else was handled."""
    async with AsyncExitStack() as stack:
        broker, peer, handled = await noting(stack)
        said = {CORRELATION_ID: "1", REPLY_TO_CLIENT: "nobody@1", "TTL": "3000", "CLUSTER": "DefaultCluster"}
        for properties in (said, {}):
            raw, now_ms = record.properties_to_bytes(properties), broker.clock.wall_ms()
            await peer.ask(Send("p", "T", 0, record.draft("T", b"x", raw, born_timestamp=now_ms, born_host=BORN)))
        await broker.clock.advance_until(lambda: handled)
        broker.clock.jump_wall(-3_600_000)
        began = broker.clock.monotonic()
        await broker.clock.advance_until(lambda: len(handled) == 2, 1)
        assert broker.clock.monotonic() - began < 60


@pytest.mark.parametrize("how", ["away", "still"])
async def test_a_question_is_asked_while_no_nameserver_answers(broker: Scripted, make_client: MakeClient, how: str) -> None:
    """N3: the first one of a client that knows the topic asked where replies go, of nameservers alone, and ended with that."""
    nameserver = await Scripted().start()
    nameserver.route = broker.own_route
    client = make_client(nameserver.address, connect_timeout_s=0.3, request_timeout_s=3.0)
    await client.producer().send(Message("T", b"first"))
    if how == "away":
        await nameserver.stop()
    else:
        nameserver.also(GetRoute, lambda request, call: LATER)
    with pytest.raises(Unknown, match="no reply within 1 s"):
        await client.request(Message("T", b"question"), timeout=1.0)
    assert [record.decode(one.records).body for one in broker.seen(Send)] == [b"first", b"question"]
    await nameserver.stop()


async def test_questions_wait_once_for_nameservers_that_stand_still(broker: Scripted, make_client: MakeClient) -> None:
    """Each waited half of its time before it was sent."""
    nameserver, clock = await Scripted().start(), TestClock(running=False)
    nameserver.route = broker.own_route
    client = make_client(nameserver.address, clock=clock)
    await client.producer().send(Message("T", b"first"))
    nameserver.also(GetRoute, lambda request, call: LATER)
    asking = [asyncio.create_task(client.request(Message("T", b"%d" % number), timeout=60.0)) for number in range(2)]
    await clock.advance_until(lambda: len(broker.seen(Send)) == 3)
    asking.append(asyncio.create_task(client.request(Message("T", b"2"), timeout=60.0)))
    await until(lambda: len(broker.seen(Send)) == 4)
    await client.close()
    assert [type(each) for each in await asyncio.gather(*asking, return_exceptions=True)] == [Unknown] * 3
    await nameserver.stop()


async def test_a_reply_goes_to_the_broker_of_the_question_while_no_nameserver_answers(
    broker: Scripted, make_client: MakeClient
) -> None:
    """N3: the handler failed, so the question came again, to be handled once more."""
    taken, nameserver = list[SendReply](), await Scripted().start()
    broker.also(SendReply, lambda request, call: taken.append(request))
    nameserver.route = broker.own_route
    client = make_client(nameserver.address, connect_timeout_s=0.3, request_timeout_s=0.3)
    async with AsyncExitStack() as stack:
        await answering(stack, client)
        await nameserver.stop()
        said = {CORRELATION_ID: "1", REPLY_TO_CLIENT: "me", TTL: "10000", "CLUSTER": "c"}
        raw = record.properties_to_bytes(said)
        broker.append("T", 0, record.draft("T", b"word", raw, born_timestamp=SystemClock().wall_ms(), born_host=BORN))
        broker.put("T", 1, 1)
        await until(lambda: taken)
        assert record.decode(taken[0].records).body == b"WORD"
    assert broker.seen(SendBack) == []


async def test_a_reply_that_no_broker_takes_is_not_sent(broker: Scripted, make_client: MakeClient) -> None:
    """It ended the connection, with all that the client had asked there, again and again for 10 s."""
    lost, client = list[str](), make_client()
    client.session.connections.on_lost.append(lost.append)
    said = {CORRELATION_ID: "1", REPLY_TO_CLIENT: "me", TTL: "10000", "CLUSTER": "c"}
    raw = record.properties_to_bytes(said)
    broker.append("T", 0, record.draft("T", b"word", raw, born_timestamp=SystemClock().wall_ms(), born_host=BORN))
    async with AsyncExitStack() as stack:
        await answering(stack, client, answer=lambda message: bytes(17 << 20))
        broker.put("T", 1, 1)
        await until(lambda: broker.seen(SendBack))
        assert lost == []


async def test_a_reply_waits_for_no_nameserver_that_stands_still(broker: Scripted, make_client: MakeClient) -> None:
    """Each one waited as long as a request may take, and the first of each client where one of several stood still; who asked
    had gone by then."""
    taken, nameserver = list[SendReply](), await Scripted().start()

    def take(request: SendReply, call: Call) -> SendAnswer:
        taken.append(request)
        return SendAnswer(0, 0, 0)

    broker.also(SendReply, take)
    nameserver.route = broker.own_route
    client = make_client(nameserver.address, request_timeout_s=600.0)
    async with AsyncExitStack() as stack:
        await answering(stack, client)
        nameserver.also(GetRoute, lambda request, call: LATER)
        said = {CORRELATION_ID: "1", REPLY_TO_CLIENT: "me", TTL: "10000", "CLUSTER": "c"}
        raw = record.properties_to_bytes(said)
        broker.append("T", 0, record.draft("T", b"word", raw, born_timestamp=client.session.clock.wall_ms(), born_host=BORN))
        broker.put("T", 1, 1)
        await until(lambda: taken)
    await client.close()
    await nameserver.stop()


async def test_questions_wait_once_for_a_broker_that_stands_still(broker: Scripted, make_client: MakeClient) -> None:
    """Each waited a second for it before it was sent."""
    still, clock = await Scripted("b", {"c_REPLY_TOPIC": 1}).start(), TestClock(running=False)
    broker.topics["c_REPLY_TOPIC"] = 1
    still.also(Heartbeat, lambda request, call: LATER)
    broker.route = lambda topic: broker.own_route("T") if topic == "T" else route_at(topic, broker, still)
    broker.faults[Send] = [replied] * 3
    client = make_client(clock=clock)
    first = asyncio.create_task(client.request(Message("T", b"word"), timeout=60.0))
    await clock.advance_until(first.done)
    for _ in range(2):
        asking = asyncio.create_task(client.request(Message("T", b"word"), timeout=60.0))
        await until(asking.done)
        assert (await asking).body == b"reply"
    await client.close()
    await still.stop()
