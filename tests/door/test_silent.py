"""A broker that stands still, behind a door: what others serve goes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from rmq.client import Client
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.statuses import Code
from rmq.grpc.visitors import OneForAll
from rmq.model import GroupConfig, Route, TopicConfig
from rmq.net.commands import GetTopicConfig
from rmq.net.commands.groups import GetGroupConfig
from rmq.net.commands.pop import Pop, PopAnswer
from rmq.net.transport.server import LATER
from tests.client.scripted import Broker
from tests.door.caller import HERE, Caller


class Two(NamedTuple):
    """Brokers `silent` and `well` with topic T, in this order in its route."""

    silent: Broker
    well: Broker


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    silent, well = await Broker("0").start(), await Broker("a").start()
    for each in (silent, well):
        each.topics["T"] = 1
    first, second = silent.own_route("T"), well.own_route("T")
    well.route = lambda topic: Route([*first.brokers, *second.brokers], [*first.queues, *second.queues])
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
