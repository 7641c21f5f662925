"""What administrators change at several brokers, where one of them refuses: it is done at the others, and said where."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from rmq.client import Client, Refusal, Unknown
from rmq.client.admin import access, calls, configuration, lites, lookups, members, resets, topics
from rmq.codes import ResponseCode as R
from rmq.model import BrokerAddresses, GroupConfig, MessageQueue, QueueData, Route, TopicConfig
from rmq.net.commands import (
    DeleteGroup,
    DeleteTopic,
    GetRoute,
    GetTopicConfig,
    GetTopicList,
    GetTopicStats,
    Goodbye,
    GroupList,
    Ping,
    QueryMessage,
    QueryMessageAnswer,
    QueryTopicConsumeByWho,
    RegisterBroker,
    TopicList,
    TopicStats,
    UpdateGroup,
    UpdateTopic,
    UpdateTopics,
)
from rmq.net.commands.access import CreateUser, ListUsers, UserInfo, UserInfos
from rmq.net.commands.clients import GetProducerConnection, ProducerConnection
from rmq.net.commands.lites import GetParentTopicInfo, ParentTopicInfo, TriggerLiteDispatch
from rmq.net.commands.resets import ResetOffset
from rmq.net.commands.routes import ClusterInfo, GetClusterInfo
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.support import Peer
from tests.client.scripted import Broker, route_at
from tests.ports import free_port

CLUSTER = "DefaultCluster"


@pytest.fixture
async def refusing() -> AsyncIterator[tuple[Client, LocalBroker, Broker]]:
    """A good broker, and one that refuses each change, with a client that knows both."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", 1)
        other = await Broker("0-other").start()
        other.also(GetTopicConfig, lambda request, call: TopicConfig("T", 1, 1))
        for kind in (UpdateTopic, UpdateTopics, UpdateGroup, CreateUser):
            other.also(kind, refuses)
        registering = await Peer.connect(broker.nameserver)
        await registering.ask(RegisterBroker(CLUSTER, "0-other", 0, other.address, 0, [TopicConfig("T")]))
        yield client, broker, other
        await registering.close()
        await other.stop()


def refuses(request: object, call: Call) -> Later:
    call.refuse(Refusal(R.SYSTEM_BUSY, "by the test"))
    return LATER


CHANGES: dict[str, Callable[[Client], Awaitable[object]]] = {
    "topic": lambda client: calls.update_topic(client, "New", cluster=CLUSTER),
    "group": lambda client: calls.update_group(client, GroupConfig("g"), cluster=CLUSTER),
    "user": lambda client: access.change(client, CLUSTER, "", CreateUser("ann", UserInfo("ann", "correct horse", "Normal"))),
    "perm": lambda client: topics.update_perm(client, "T", 4, cluster=CLUSTER),
}


@pytest.mark.parametrize("kind", CHANGES)
async def test_a_change_is_made_at_the_others(kind: str, refusing: tuple[Client, LocalBroker, Broker]) -> None:
    client, broker, other = refusing
    with pytest.raises(Refusal, match=f"by the test; done at {broker.address}, not at {other.address}"):
        await CHANGES[kind](client)
    done = {
        "topic": await calls.topic_config(client, "New", broker.address) if kind == "topic" else None,
        "group": "g" in {each.name for each in await calls.group_configs(client, broker.address)},
        "user": "ann" in {each.username for each in await access.users_at(client, broker.address)},
        "perm": (await calls.topic_config(client, "T", broker.address)).perm == 4,
    }
    assert done[kind]


async def test_of_one_broker_nothing_more_is_said(refusing: tuple[Client, LocalBroker, Broker]) -> None:
    client, _, other = refusing
    with pytest.raises(Refusal) as refused:
        await calls.update_topic(client, "New", broker=other.address)
    assert refused.value.remark == "by the test"


async def test_of_two_nameservers_one_is_away() -> None:
    async with LocalBroker() as broker:
        away = f"127.0.0.1:{free_port()}"
        async with Client([broker.nameserver, away]) as client:
            with pytest.raises(Unknown, match=f"; done at {broker.nameserver}, not at {away}"):
                await configuration.put(client, "N", "key", "value")
            assert await configuration.get(client, "N", "key") == "value"


async def test_what_one_may_have_done_while_nobody_reached_another() -> None:
    """That nobody could be reached was said, as if nothing were done."""

    def cut(request: object, call: Call) -> Later:
        call.connection.abort("cut by the test")
        return LATER

    other = await Broker("a").start()
    other.also(UpdateTopic, cut)
    other.also(ResetOffset, cut)
    away = BrokerAddresses("c", "0-away", {0: f"127.0.0.1:{free_port()}"})
    brokers = [away, BrokerAddresses("c", "a", {0: other.address})]
    other.route = lambda topic: Route(brokers, [QueueData("0-away", 1, 1, 6), QueueData("a", 1, 1, 6)])
    async with Client(other.address) as client:
        with pytest.raises(Unknown, match="; done at none of them, not at "):
            await calls.at_each(
                [away.addresses[0], other.address], partial(client.session.connections.request, request=UpdateTopic("T"))
            )
        moves = [resets.Move(MessageQueue("T", name, 0), 0, 1, None, 1) for name in ("0-away", "a")]
        with pytest.raises(Unknown, match="; 0 of 2 queues were set"):
            await resets.reset(client, "g", moves)
    await other.stop()


async def test_what_is_made_one_after_another_and_ends_in_the_midst() -> None:
    """That nobody could be reached was said, as if nothing were done."""
    node, made = await Broker("a").start(), list[str]()

    def make(request: CreateUser, call: Call) -> Later | None:
        if made:
            call.connection.push(Goodbye())
            call.connection.close()
            return LATER
        made.append(request.username)
        return None

    node.also(ListUsers, lambda request, call: UserInfos([]))
    node.also(CreateUser, make)
    async with Client(node.address) as client:
        with pytest.raises(Unknown, match="; 1 of 2 are done"):
            await access.save_users(client, node.address, [UserInfo("bob", "x"), UserInfo("eve", "x")])
    await node.stop()


async def test_lite_topics_are_handed_out_at_the_others() -> None:
    good, other = await Broker("a", {"P": 1}).start(), await Broker("0-other", {"P": 1}).start()
    good.also(TriggerLiteDispatch, lambda request, call: None)
    other.also(TriggerLiteDispatch, refuses)
    good.route = lambda _: route_at("P", other, good)
    async with Client(good.address) as client:
        with pytest.raises(Refusal, match=f"by the test; done at {good.address}, not at {other.address}"):
            await lites.trigger(client, "P", "g")
    await other.stop()
    await good.stop()


async def test_a_group_that_is_deleted_while_what_it_failed_cannot_be() -> None:
    """Who deleted it heard that nobody could be reached, and so that nothing was done."""
    broker = await Broker("a", {"T": 1}).start()
    stopping: list[asyncio.Task[None]] = []

    def last(request: DeleteGroup, call: Call) -> Later:
        call.answer(None)
        stopping.append(asyncio.create_task(broker.stop()))
        return LATER

    broker.also(DeleteGroup, last)
    async with Client(broker.address) as client:
        with pytest.raises(Unknown, match="; group g is deleted, but not all that it failed"):
            await topics.delete_group_with_failed(client, "g", [broker.address], broker=broker.address, clean_offsets=True)
    await asyncio.gather(*stopping)


async def test_a_group_is_deleted_where_nobody_says_what_it_popped_and_failed() -> None:
    """It was called done: retries of its pops stayed without a word, and came to the next group of that name."""
    broker, gone = await Broker("a", {"T": 1}).start(), list[str]()
    broker.also(DeleteGroup, lambda request, call: None)
    broker.also(DeleteTopic, lambda request, call: gone.append(request.topic))
    async with Client(broker.address) as client:
        with pytest.raises(Refusal, match="not supported.*; group g is deleted, but not all that it failed"):
            await topics.delete_group_with_failed(client, "g", [broker.address], broker=broker.address, clean_offsets=True)
    assert gone == ["%RETRY%g", "%DLQ%g"]
    await broker.stop()


async def test_a_cluster_is_what_all_nameservers_know_of_it() -> None:
    """The first one to answer decided, also one that was just started: a change was made at some brokers, and called done."""
    first, second = BrokerAddresses("C", "a", {0: "a:1"}), BrokerAddresses("C", "b", {0: "b:1"})
    young, old, still = [await Broker().start() for _ in range(3)]
    held, clock = list[Call](), TestClock(running=False)
    young.also(GetClusterInfo, lambda request, call: ClusterInfo([first]))
    old.also(GetClusterInfo, lambda request, call: held.append(call) or LATER)  # type: ignore[func-returns-value]
    still.also(GetClusterInfo, lambda request, call: LATER)
    async with Client([young.address, old.address, still.address], clock=clock) as client:
        asking = asyncio.create_task(calls.broker_addresses(client, cluster="C"))
        await until(lambda: held)
        await client.session.connections.request(young.address, Ping())  # whose answer comes behind that one
        held[0].answer(ClusterInfo([first._replace(epoch=1), second]))
        await client.session.connections.request(old.address, Ping())
        await clock.advance_until(asking.done, step_s=0.1)
        assert await asking == ["a:1", "b:1"]
        assert clock.monotonic() < 1  # one stands still
    for nameserver in (young, old, still):
        await nameserver.stop()


LOOKS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "key": lambda client: lookups.by_key(client, "T", "k"),
    "status": lambda client: calls.topic_stats(client, "T"),
    "groups": lambda client: calls.groups_of_topic(client, "T"),
    "lites": lambda client: lites.parent_topic(client, "T"),
    "producers": lambda client: members.producers(client, "p", "T"),
    "list": calls.topic_list,
}


@pytest.mark.parametrize("kind", LOOKS)
async def test_a_look_leaves_out_no_broker_that_a_nameserver_knows(kind: str) -> None:
    """It asked those that the first one to answer knew, and said that this is all."""
    young, old = await Broker("a", {"T": 1}).start(), await Broker("b", {"T": 1}).start()
    asked, held = set[str](), list[Call]()
    answers: dict[type[Any], Any] = {
        QueryMessage: QueryMessageAnswer(),
        GetTopicStats: TopicStats([]),
        QueryTopicConsumeByWho: GroupList([]),
        GetParentTopicInfo: ParentTopicInfo("T", 0, [], 0, 0),
        GetProducerConnection: ProducerConnection([]),
    }

    def answer(broker: Broker, request: Any, call: Call) -> Any:
        asked.add(broker.name)
        return answers[type(request)]

    for each in (young, old):
        for asks in answers:
            each.also(asks, partial(answer, each))
    young.also(GetTopicList, lambda request, call: TopicList(["of a", "T"]))
    for asks in (GetRoute, GetTopicList):
        old.also(asks, lambda request, call: held.append(call) or LATER)  # type: ignore[func-returns-value]
    async with Client([young.address, old.address], clock=TestClock(running=False)) as client:
        looking = asyncio.create_task(LOOKS[kind](client))
        await until(lambda: held)
        await client.session.connections.request(young.address, Ping())  # whose answer comes behind that one
        held[0].answer(TopicList(["of b", "T"]) if kind == "list" else old.own_route("T"))
        found = await looking
    if kind == "list":
        assert found == ["T", "of a", "of b"]
    else:
        assert asked == {"a", "b"}
    for each in (young, old):
        await each.stop()


async def test_all_topics_are_those_that_any_nameserver_knows_and_one_that_is_late_is_waited_for_once() -> None:
    """consumerProgress, startMonitoring and statsAll took the first one's word: a backlog looked small, or was not there."""
    young, old, still = [await Broker().start() for _ in range(3)]
    held, clock = list[Call](), TestClock(running=False)
    young.also(GetTopicList, lambda request, call: TopicList(["%RETRY%a"]))
    old.also(GetTopicList, lambda request, call: held.append(call) or LATER)  # type: ignore[func-returns-value]
    still.also(GetTopicList, lambda request, call: LATER)
    async with Client([young.address, old.address, still.address], clock=clock) as client:
        for waited_s in (0.2, 0.0):
            before_s = clock.monotonic()
            asking = asyncio.create_task(calls.group_list(client))
            await until(lambda: held)
            await client.session.connections.request(young.address, Ping())  # whose answer comes behind that one
            held.pop().answer(TopicList(["%RETRY%a", "%RETRY%b"]))
            await client.session.connections.request(old.address, Ping())
            if waited_s:
                await clock.advance_until(asking.done, step_s=0.1)
            assert await asking == ["a", "b"]
            assert clock.monotonic() - before_s == pytest.approx(waited_s, abs=0.1)
    for nameserver in (young, old, still):
        await nameserver.stop()


async def test_a_nameserver_that_knows_nobody_does_not_decide_before_one_that_takes_longer() -> None:
    """Beside one that was just started, another one behind a slow link: no broker was registered, said each command."""
    young, old = [await Broker().start() for _ in range(2)]
    held, clock = list[Call](), TestClock(running=False)
    young.also(GetClusterInfo, lambda request, call: ClusterInfo([]))
    old.also(GetClusterInfo, lambda request, call: held.append(call) or LATER)  # type: ignore[func-returns-value]
    group = BrokerAddresses("c", "a", {0: old.address})
    async with Client([young.address, old.address], clock=clock) as client:
        asking = asyncio.create_task(calls.registered(client))
        await until(lambda: held and young.connected)
        await client.session.connections.request(young.address, Ping())  # whose answer comes behind that one
        await clock.advance(0.5)
        held.pop().answer(ClusterInfo([group]))
        assert (await asking).brokers == [group]
    for nameserver in (young, old):
        await nameserver.stop()


async def test_a_nameserver_that_refuses_does_not_decide_before_one_that_takes_longer() -> None:
    """Commands about a topic said that it does not exist, where members and producers found it."""
    young, old = [await Broker(topics=topics).start() for topics in ({}, {"T": 4})]
    held, clock = list[Call](), TestClock(running=False)
    old.also(GetRoute, lambda request, call: held.append(call) or LATER)  # type: ignore[func-returns-value]
    async with Client([young.address, old.address], clock=clock) as client:
        asking = asyncio.create_task(calls.topic_route(client, "T"))
        await until(lambda: held and young.seen(GetRoute))
        await client.session.connections.request(young.address, Ping())  # whose answer comes behind that one
        await clock.advance(0.5)
        held.pop().answer(old.own_route("T"))
        assert await asking == old.own_route("T")
    for nameserver in (young, old):
        await nameserver.stop()
