"""A broker that stands still, behind a door: what others serve goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest

from rmq.client import Client, ClientSettings
from rmq.client.shared.routes import AT_ONCE
from rmq.delivery.popping import Handle
from rmq.errors import no_group
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.statuses import Code
from rmq.grpc.visitors import ForEachUser, OneForAll
from rmq.model import GroupConfig, TopicConfig
from rmq.net.commands import GetRoute, GetTopicConfig, SignedLogin, UnregisterClient
from rmq.net.commands.groups import GetGroupConfig
from rmq.net.commands.pop import Ack, Pop, PopAnswer
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import TestClock, until
from tests.client.scripted import Broker, route_at
from tests.door.caller import HERE, Caller, publishing, signed
from tests.door.test_signed import Context


class Two(NamedTuple):
    """Brokers `silent` and `well` with topic T, in this order in its route."""

    silent: Broker
    well: Broker


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    silent, well = await Broker("0").start(), await Broker("a").start()
    for each in (silent, well):
        each.topics["T"] = 1
    well.route = lambda _: route_at("T", silent, well)
    yield Two(silent, well)
    await silent.stop()
    await well.stop()


async def test_what_a_topic_takes_and_how_a_group_consumes_another_broker_says() -> None:
    """The first one of the route was asked alone: nothing was received from any broker, and no producer could begin."""
    async with two() as (silent, well):
        for kind in (GetGroupConfig, GetTopicConfig):
            silent.also(kind, lambda request, call: LATER)
        well.also(GetGroupConfig, lambda request, call: GroupConfig("g"))
        well.also(GetTopicConfig, lambda request, call: TopicConfig("T"))
        well.also(Pop, lambda request, call: PopAnswer(1, 60_000, 0, 0, status=210))
        async with Client(well.address) as client:
            inside = OneForAll(client)
            async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
                queue = v2.MessageQueue(topic=v2.Resource(name="T"), broker=v2.Broker(name="a"))
                assert (await caller.receive("g", "T", message_queue=queue))[0] == Code.MESSAGE_NOT_FOUND
                route = await caller.ask("QueryRoute", topic=v2.Resource(name="T"), endpoints=caller.endpoints, timeout_s=2.5)
                assert route.status.code == Code.OK


async def test_a_group_reads_in_order_that_one_of_the_brokers_does_not_know() -> None:
    """A new broker, or one where nobody made the group: the first one of the route decided, and the group read in no order."""
    popped = list[Pop]()

    def unknown(request: GetGroupConfig, call: Call) -> None:
        raise no_group(request.group)

    def pop(request: Pop, call: Call) -> PopAnswer:
        popped.append(request)
        return PopAnswer(1, 60_000, 0, 0, status=210)

    async with two() as (young, old):
        young.also(GetGroupConfig, unknown)
        old.also(GetGroupConfig, lambda request, call: GroupConfig("g", consume_message_orderly=True))
        old.also(Pop, pop)
        async with Client(old.address) as client:
            inside = OneForAll(client)
            async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
                queue = v2.MessageQueue(topic=v2.Resource(name="T"), broker=v2.Broker(name="a"))
                assert (await caller.receive("g", "T", message_queue=queue))[0] == Code.MESSAGE_NOT_FOUND
    assert [request.order for request in popped] == [True]


async def test_the_topics_of_a_producer_are_asked_for_together() -> None:
    """Each waited for a nameserver that stood still: with a hundred topics a producer began after 20 s."""
    topics, held = ["T0", "T1", "T2"], dict[str, Call]()
    still = await Broker(topics=dict.fromkeys(topics, 1)).start()
    still.also(GetRoute, lambda request, call: held.update({request.topic: call}) or LATER)  # type: ignore[func-returns-value]
    async with Client(still.address, clock=TestClock(running=False)) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:

            async def begin() -> int:
                async with caller.telemetry(publishing(*topics)) as (_, answer):
                    return int(answer.status.code)

            beginning = asyncio.create_task(begin())
            await until(lambda: len(held) == len(topics))
            for topic, call in held.items():
                call.answer(still.own_route(topic))
            assert await beginning == Code.OK
    await still.stop()


async def test_a_door_that_closes_tells_of_all_its_producers_at_once() -> None:
    """There is one for each topic, and each waited for a broker that stood still."""
    topics, gone = ["T0", "T1", "T2"], list[UnregisterClient]()
    still, clock = await Broker(topics=dict.fromkeys(topics, 1)).start(), TestClock(running=False)
    still.also(UnregisterClient, lambda request, call: gone.append(request) or LATER)  # type: ignore[func-returns-value]
    async with Client(still.address, clock=clock) as client, AsyncExitStack() as streams:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            await streams.enter_async_context(caller.telemetry(publishing(*topics)))
            await until(lambda: still.heartbeats and len(still.heartbeats[-1].producers) == 4)
            closing = asyncio.create_task(inside.close())
            try:
                await until(lambda: len(gone) == 4)
            finally:
                still.also(UnregisterClient, lambda request, call: None)
                still.cut_connections()
            await closing
    await still.stop()


async def test_of_a_producers_many_topics_brokers_are_told_some_at_a_time() -> None:
    """All at once, three thousand of a producer that went held everybody else up for a second."""
    broker, held, told = await Broker().start(), list[Call](), set[str]()

    def hold(request: UnregisterClient, call: Call) -> Later:
        held.append(call)
        told.add(request.producer_group)
        return LATER

    broker.topics |= {f"T{number}": 1 for number in range(200)}
    broker.also(UnregisterClient, hold)
    async with Client(broker.address) as client:
        inside, most = OneForAll(client), 0
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            async with caller.telemetry(publishing(*broker.topics)):
                await until(lambda: broker.heartbeats and len(broker.heartbeats[-1].producers) >= 200)
            while len(told) < 200:
                await until(lambda: held)
                most = max(most, len(held))
                while held:
                    held.pop().answer(None)
        assert most <= AT_ONCE
        broker.also(UnregisterClient, lambda request, call: None)
    await broker.stop()


async def test_a_nameserver_that_stands_still_is_not_asked_first_again_who_signs() -> None:
    """Its connection looked open, so each new signature waited for it."""
    still, well, asked = await Broker().start(), await Broker().start(), list[SignedLogin]()
    well.also(SignedLogin, lambda request, call: None)
    still.also(SignedLogin, lambda request, call: None)

    async with Client([still.address, well.address], settings=ClientSettings(request_timeout_s=0.3)) as asking:
        inside = ForEachUser(asking, lambda newest: Client(well.address, user=newest))
        async with inside.entered(Context(signed("u0", "s"), "here")):
            pass
        still.also(SignedLogin, lambda request, call: asked.append(request) or LATER)  # type: ignore[func-returns-value]
        for user in ("u1", "u2", "u3"):
            async with inside.entered(Context(signed(user, "s"), "here")):
                pass
        assert len(asked) == 1
        await inside.close()
    await still.stop()
    await well.stop()


async def test_users_are_looked_at_together() -> None:
    """A password that was changed ends streams. Each user waited for those before, and for a node that stood still."""
    still, asked, clock = await Broker().start(), list[SignedLogin](), TestClock(running=False)
    still.also(SignedLogin, lambda request, call: None)
    async with Client(still.address, clock=clock) as asking, AsyncExitStack() as users:
        inside = ForEachUser(asking, lambda newest: Client(still.address, user=newest, clock=clock))
        for user in ("u1", "u2", "u3"):
            await users.enter_async_context(inside.entered(Context(signed(user, "s"), "here")))
        still.also(SignedLogin, lambda request, call: asked.append(request) or LATER)  # type: ignore[func-returns-value]
        await clock.advance_until(lambda: asked != [], step_s=30.0)
        await until(lambda: len({login.user for login in asked}) == 3)
        still.cut_connections()
        await inside.close()
    await still.stop()


@pytest.mark.parametrize("what", ["receipt", "queue"])
async def test_a_broker_that_came_since_the_door_looked(what: str) -> None:
    """Another door gave the client its receipt, or its queue. For half a minute this one knew no such broker."""
    first, second = await Broker("a", {"T": 1}).start(), await Broker("b", {"T": 1}).start()
    acked = list[Ack]()
    second.also(Ack, lambda request, call: acked.append(request))
    second.also(Pop, lambda request, call: PopAnswer(1, 60_000, 0, 0, status=210))
    first.also(GetGroupConfig, lambda request, call: GroupConfig("g"))
    async with Client(first.address) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            await client.session.routes.get("T")
            first.route = lambda _: route_at("T", first, second)
            if what == "queue":
                queue = v2.MessageQueue(topic=v2.Resource(name="T"), broker=v2.Broker(name="b"))
                assert (await caller.receive("g", "T", message_queue=queue))[0] == Code.MESSAGE_NOT_FOUND
            else:
                entry = v2.AckMessageEntry(receipt_handle=f"0 {Handle(0, 1, 60_000, 0, '0', 'b', 0, 0).text()}")
                fields = {"group": v2.Resource(name="g"), "topic": v2.Resource(name="T")}
                assert (await caller.ask("AckMessage", entries=[entry], **fields)).status.code == Code.OK
    assert len(acked) == (what == "receipt")
    await second.stop()
    await first.stop()
