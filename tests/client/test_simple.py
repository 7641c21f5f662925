"""Simple consumers: any number of them on any number of queues; acknowledged is done, the rest comes back."""

import asyncio
from collections import Counter
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from rmq.background import cancel
from rmq.client import ClientSettings, Closed, InvalidArgument, Message, Refusal, Unreachable
from rmq.client.admin import calls as admin
from rmq.client.shared.routes import AT_ONCE
from rmq.model import TopicConfig
from rmq.net.commands import GetRoute, Ping, RegisterBroker, UpdateTopic
from rmq.net.commands.pop import Pop, PopAnswer
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import LocalBroker, TestClock, rmq_broker, until
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, route_at

__all__ = ["rmq_broker"]


async def fill(broker: LocalBroker | LocalGroup, count: int, topic: str = "T") -> list[bytes]:
    sent = [b"%d" % number for number in range(count)]
    async with broker.client() as client, client.producer() as producer:
        for body in sent:
            await producer.send(Message(topic, body, tags="even" if int(body) % 2 == 0 else "odd"))
    return sent


async def test_more_consumers_than_queues_share_the_work(rmq_broker: LocalBroker) -> None:
    """C1, C10: each message to one of them."""
    await rmq_broker.create_topic("T", 1)
    sent = await fill(rmq_broker, 30)
    got: Counter[bytes] = Counter()

    async def work() -> None:
        async with rmq_broker.client() as client, client.simple_consumer("g", "T", start="first") as consumer:
            while messages := await consumer.receive(2, wait_seconds=0.5):
                for message in messages:
                    got[message.body] += 1
                    await consumer.ack(message)
                    await consumer.ack(message)

    await asyncio.gather(*(work() for _ in range(5)))
    assert got == Counter(sent)


async def test_what_is_not_acknowledged_comes_back(rmq_broker: LocalBroker) -> None:
    await rmq_broker.create_topic("T", 4)
    await fill(rmq_broker, 4)
    async with rmq_broker.client() as client, client.simple_consumer("g", {"T": "even"}, start="first") as consumer:
        one, two = sorted(await consumer.receive(invisible_seconds=5), key=lambda message: message.body)
        assert (one.body, two.body, one.topic, one.reconsume_times) == (b"0", b"2", "T", 0)
        await consumer.change_invisible(one, 3600)
        await rmq_broker.clock.advance(7)
        [back] = await consumer.receive()
        assert (back.body, back.topic, back.tags, back.reconsume_times) == (b"2", "T", "even", 1)
        with pytest.raises(Refusal):
            await consumer.change_invisible(two, 5)
        await consumer.change_invisible(back, 0)
        await rmq_broker.clock.advance(2)
        [again] = await consumer.receive()
        assert (again.body, again.reconsume_times) == (b"2", 2)
        await consumer.ack(again)
        await consumer.ack(one)
        await rmq_broker.clock.advance(100)
        assert await consumer.receive(wait_seconds=0) == []


async def test_waiting_for_several_topics(rmq_broker: LocalBroker) -> None:
    for topic in ("T", "U"):
        await rmq_broker.create_topic(topic, 2)
    async with rmq_broker.client() as client, client.simple_consumer("g", ["T", "U"], start="first") as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_seconds=60))
        await fill(rmq_broker, 1, "U")
        [message] = await asyncio.wait_for(waiting, 10)
        assert message.topic == "U"
        await consumer.ack(message)
        await fill(rmq_broker, 3, "T")
        bodies = []
        async for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 3:
                break
        assert sorted(bodies) == [b"0", b"1", b"2"]
        await rmq_broker.clock.advance(61)
        [last] = await consumer.receive()
        assert last.body == bodies[-1], "the others were acknowledged"


async def test_a_topic_is_waited_for_and_the_others_are_served(rmq_broker: LocalBroker) -> None:
    """Nameservers hear of a new topic a moment after its first message was stored."""
    async with rmq_broker.client() as client, client.simple_consumer("g", ["T", "Later"], start="first") as consumer:
        with pytest.raises(Refusal, match="T, Later does not exist"):
            await consumer.receive(wait_seconds=0)
        waiting = asyncio.create_task(consumer.receive(wait_seconds=60))
        await rmq_broker.clock.advance(5)
        assert not waiting.done()
        await fill(rmq_broker, 1, "T")
        await rmq_broker.clock.advance_until(waiting.done)
        [message] = waiting.result()
        assert message.topic == "T"
        await consumer.ack(message)
        assert await consumer.receive(wait_seconds=0) == [], "Later is missing, which is no error"
        waiting = asyncio.create_task(consumer.receive(wait_seconds=60))
        await fill(rmq_broker, 1, "Later")
        await rmq_broker.clock.advance_until(waiting.done)
        assert [message.topic for message in waiting.result()] == ["Later"]


async def test_a_topic_that_is_deleted_and_made_again(rmq_broker: LocalBroker) -> None:
    await rmq_broker.create_topic("T", 1)
    async with rmq_broker.client() as client, client.simple_consumer("g", "T", start="first") as consumer:
        await fill(rmq_broker, 3)
        for message in await consumer.receive():
            await consumer.ack(message)
        waiting = asyncio.create_task(consumer.receive(wait_seconds=600))
        await admin.delete_topic(client, "T", cluster="DefaultCluster")
        await rmq_broker.clock.advance(12)
        await rmq_broker.create_topic("T", 1)
        await fill(rmq_broker, 2)
        await rmq_broker.clock.advance_until(waiting.done)
        assert waiting.result()[0].queue_offset == 0


async def test_wrong_wishes(rmq_broker: LocalBroker) -> None:
    await rmq_broker.create_topic("T", 1)
    async with rmq_broker.client() as client:
        consumer = client.simple_consumer("g", "T")
        wrongs: list[dict[str, Any]] = [{"max_messages": 0}, {"max_messages": 33}, {"wait_seconds": -1}, {"wait_seconds": nan}]
        for wrong in [*wrongs, {"invisible_seconds": -1}, {"invisible_seconds": nan}, {"invisible_seconds": 300_000}]:
            with pytest.raises(InvalidArgument):
                await consumer.receive(**wrong)
        with pytest.raises(InvalidArgument):
            client.simple_consumer("g", {"T": "||"})
        with pytest.raises(InvalidArgument):
            client.simple_consumer("g", "T", start="middle")  # type: ignore[arg-type]
        with pytest.raises(Refusal):
            await client.simple_consumer("g", "Nowhere").receive(wait_seconds=0)
        await consumer.close()
        with pytest.raises(Closed):
            await consumer.receive()


async def test_a_change_of_leaders_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """C10, story 41: what was acknowledged stays away, what was not comes back once."""
    async with LocalGroup(tmp_path) as group, group.client() as client:
        first = await group.leader()
        await (await group.connect(first)).ask(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4))
        sent = await fill(group, 20)
        consumer = client.simple_consumer("g", "T", start="first")
        done: list[bytes] = []
        held = await consumer.receive(8, invisible_seconds=3600)
        for message in held[:4]:
            await consumer.ack(message)
            done.append(message.body)
        stopping = asyncio.create_task(group.stop(first))
        for message in held[4:]:
            await consumer.ack(message)
            done.append(message.body)
        await stopping
        while messages := await consumer.receive(wait_seconds=1):
            for message in messages:
                await consumer.ack(message)
                done.append(message.body)
        assert Counter(done) == Counter(sent)


async def test_what_was_decided_while_nobody_led_holds() -> None:
    """Acknowledgements waited for the next leader; a changed time, and a recall, failed at once."""
    async with LocalBroker(recall_messages=True) as broker, broker.client() as client:
        await broker.create_topic("T", 1)
        producer, consumer = client.producer(), client.simple_consumer("g", "T", start="first")
        await producer.send(Message("T", b"again"))
        [held] = await consumer.receive(invisible_seconds=3600)
        waits = await producer.send(Message("T", b"recalled", delay_s=60))
        await broker.stop_broker()
        deciding = asyncio.gather(consumer.change_invisible(held, 0), producer.recall(waits))
        await broker.start_broker()
        await deciding
        [again] = await consumer.receive()
        await consumer.ack(again)
        await broker.clock.advance(90)
        assert await consumer.receive(wait_seconds=0) == []


async def test_who_waits_for_ever_waits(rmq_broker: LocalBroker) -> None:
    """It was an OverflowError."""
    await rmq_broker.create_topic("T", 1)
    async with rmq_broker.client() as client, client.simple_consumer("g", "T", start="first") as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_seconds=inf))
        await rmq_broker.clock.advance(10)
        sent = await fill(rmq_broker, 1)
        assert [message.body for message in await waiting] == sent


async def test_a_broker_that_stands_still_holds_up_the_others_once(rmq_broker: LocalBroker) -> None:
    """Every other time it was asked first, for as long as a request may take: 3 s for what another one had at hand."""
    await rmq_broker.create_topic("T", 1)
    sent = await fill(rmq_broker, 12)
    still, asked, well = await Broker("still", {"T": 1}).start(), list[Pop](), False

    def pop(request: Pop, _call: Call) -> PopAnswer | Later:
        asked.append(request)
        return PopAnswer(1, 1, 0, 0, status=210) if well else LATER

    still.also(Pop, pop)
    registering = await Peer.connect(rmq_broker.nameserver)
    await registering.ask(RegisterBroker("DefaultCluster", "still", 0, still.address, 0, [TopicConfig("T")]))
    settings = ClientSettings(request_timeout_s=0.3)
    async with rmq_broker.client(settings=settings) as client, client.simple_consumer("g", "T", start="first") as consumer:
        got = [one.body for _ in sent for one in await consumer.receive(1)]
        assert sorted(got) == sorted(sent)
        assert len(asked) == 1
        well = True
        await rmq_broker.clock.advance(10)
        assert await consumer.receive(1, wait_seconds=0) == []
        assert len(asked) == 2, "it is asked again"
    await registering.close()
    await still.stop()


async def test_a_broker_that_stands_still_is_asked_once_for_many_topics(rmq_broker: LocalBroker) -> None:
    """Each of its topics waited for it, as long as a request may take, again and again."""
    topics = ["T0", "T1", "T2", "T3"]
    still, asked = await Broker("still", dict.fromkeys(topics, 1)).start(), list[Pop]()
    still.also(Pop, lambda request, call: asked.append(request) or LATER)  # type: ignore[func-returns-value]
    for topic in topics:
        await rmq_broker.create_topic(topic, 1)
    registering = await Peer.connect(rmq_broker.nameserver)
    configs = [TopicConfig(topic) for topic in topics]
    await registering.ask(RegisterBroker("DefaultCluster", "still", 0, still.address, 0, configs))
    settings = ClientSettings(request_timeout_s=0.3)
    async with rmq_broker.client(settings=settings) as client, client.simple_consumer("g", topics) as consumer:
        assert await consumer.receive(1, wait_seconds=0) == []
        assert len(asked) == 1
        await rmq_broker.clock.advance(10)
        assert await consumer.receive(1, wait_seconds=0) == []
        assert len(asked) == 2, "it is asked again"
    await registering.close()
    await still.stop()


async def test_iteration_ends_when_somebody_closes_it(rmq_broker: LocalBroker) -> None:
    """As that of other consumers; it raised Closed."""
    await rmq_broker.create_topic("T", 1)
    async with rmq_broker.client() as client, client.simple_consumer("g", "T") as consumer:
        got = list[bytes]()

        async def iterate() -> None:
            async for message in consumer:
                got.append(message.body)

        iterating = asyncio.create_task(iterate())
        await fill(rmq_broker, 1)
        await until(lambda: got)
        await consumer.close()
        await rmq_broker.clock.advance_until(iterating.done, 5)
        await iterating
        with pytest.raises(Closed):
            await consumer.receive()


async def test_topics_that_are_known_are_served_while_no_nameserver_answers(rmq_broker: LocalBroker) -> None:
    """N3: one that did not exist yet kept the others back."""
    await rmq_broker.create_topic("T", 1)
    settings = ClientSettings(request_timeout_s=0.3, connect_timeout_s=0.3)
    async with rmq_broker.client(settings=settings) as client, client.simple_consumer("g", ["Missing", "T"]) as consumer:
        assert await consumer.receive(1, wait_seconds=0) == []
        sent = await fill(rmq_broker, 1)
        await rmq_broker.stop_nameserver()
        await rmq_broker.clock.advance(1)
        assert [message.body for message in await consumer.receive(1)] == sent
    async with rmq_broker.client(settings=settings) as client, client.simple_consumer("g", ["Missing", "T"]) as consumer:
        with pytest.raises(Unreachable):
            await consumer.receive(1, wait_seconds=0)


@pytest.mark.parametrize("count", [3, 200])
async def test_a_nameserver_that_stands_still_holds_up_known_topics_once(rmq_broker: LocalBroker, count: int) -> None:
    """For each topic that did not exist yet each `receive` waited for it as long as a request may take; of many, for each 64."""
    await rmq_broker.create_topic("T", 1)
    settings, asked = ClientSettings(request_timeout_s=0.3), list[GetRoute]()
    wanted = ["T", *(f"Missing{number}" for number in range(count))]
    async with rmq_broker.client(settings=settings) as client, client.simple_consumer("g", wanted) as consumer:
        assert await consumer.receive(1, wait_seconds=0) == []
        sent = await fill(rmq_broker, 4)
        await rmq_broker.stop_nameserver()
        still = await Broker("still").start(int(rmq_broker.nameserver.rpartition(":")[2]))
        still.also(GetRoute, lambda request, call: asked.append(request) or LATER)  # type: ignore[func-returns-value]
        await rmq_broker.clock.advance(1)
        for body in sent:
            [message] = await consumer.receive(1)
            assert message.body == body
        assert [one.topic for one in asked] == wanted[1:][:AT_ONCE]
        await rmq_broker.clock.advance(10)
        assert await consumer.receive(1, wait_seconds=0) == []
        assert len(asked) > min(count, AT_ONCE), "it is asked again"
    await still.stop()


async def test_a_connection_that_swallows_everything_is_opened_anew(broker: Broker, make_client: MakeClient) -> None:
    """As members and producers notice by their heartbeats. Who has none asked there until the system gave it up, for a quarter of
    an hour."""
    there, first, served = await Broker("b", {"T": 1}).start(), list[int](), list[Pop]()

    def swallowed(call: Call) -> bool:
        first.append(call.connection.id)
        return call.connection.id == first[0]

    def pop(request: Pop, call: Call) -> PopAnswer | Later:
        if swallowed(call):
            return LATER
        served.append(request)
        return PopAnswer(1, 60_000, 0, 0, status=210)

    there.also(Pop, pop)
    there.also(Ping, lambda request, call: LATER if swallowed(call) else None)
    broker.route = lambda _: route_at("T", there)
    clock = TestClock(running=False)
    async with make_client(clock=clock).simple_consumer("g", "T") as consumer:
        receiving = asyncio.create_task(consumer.receive(wait_seconds=900))
        await clock.advance_until(lambda: served or clock.monotonic() > 100, 0.25)
        assert served
        receiving.cancel()
    await there.stop()


async def test_many_topics_are_looked_for_some_at_a_time(broker: Broker, make_client: MakeClient) -> None:
    """As by members and producers: all at once, thousands held the client's loop up, and some were given up."""
    asked = list[Call]()
    broker.also(GetRoute, lambda request, call: asked.append(call) or LATER)  # type: ignore[func-returns-value]
    client = make_client(clock=TestClock(running=False))
    async with client.simple_consumer("g", [f"T{number}" for number in range(200)]) as consumer:
        receiving = asyncio.create_task(consumer.receive(wait_seconds=60))
        await until(lambda: len(asked) >= AT_ONCE)
        for _ in range(3):
            await client.session.connections.request(broker.address, Ping())  # behind all that was asked before
        assert len(asked) == AT_ONCE
        await cancel(receiving)
