"""Lite topics at the door for gRPC clients."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rmq.client import Client
from rmq.client.admin import calls as admin
from rmq.codes import ResponseCode
from rmq.errors import Refusal, no_group
from rmq.grpc.lites import MOST_LITES
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.model import GroupConfig
from rmq.net.commands.groups import GetGroupConfig
from rmq.net.commands.lites import COMPLETE_ADD, DeclareLites, LiteChange, LitePopAnswer, PopLite
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import LocalBroker, until
from tests.client.scripted import Broker, route_at
from tests.door.caller import HERE, Caller, door, ms, subscribing

Code, Action = v2.Code, v2.LiteSubscriptionAction


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(light_queues=True, light_dispatch=True) as broker:
        async with broker.client() as client:
            await admin.update_topic(client, "Rooms", broker=broker.address, attributes="+message.type=LITE")
            for group, model in (("readers", "Shared"), ("owners", "Exclusive")):
                attributes = {"+lite.bind.topic": "Rooms", "+lite.sub.model": model}
                await admin.update_group(client, GroupConfig(group, attributes=attributes), broker=broker.address)
        yield broker


@pytest.fixture
async def port(broker: LocalBroker) -> AsyncIterator[int]:
    async with door(broker) as port:
        yield port


def settings(group: str = "readers") -> Any:
    found = subscribing(group, "Rooms")
    found.client_type = v2.ClientType.LITE_PUSH_CONSUMER
    return found


async def wants(caller: Caller, *lites: str, action: int = Action.PARTIAL_ADD, group: str = "readers", **others: Any) -> int:
    fields = {"topic": v2.Resource(name="Rooms"), "group": v2.Resource(name=group), "lite_topic_set": lites}
    return int((await caller.ask("SyncLiteSubscription", action=action, **fields, **others)).status.code)


async def test_more_lite_topics_than_a_request_may_name(port: int) -> None:
    """Two million fit into one: nobody else was served for a second."""
    async with Caller(port) as caller, caller.telemetry(settings()):
        assert await wants(caller, *["a"] * MOST_LITES) == Code.OK
        assert await wants(caller, *["a"] * (MOST_LITES + 1)) == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED


async def send(caller: Caller, lite: str, body: bytes) -> None:
    assert (await caller.send("Rooms", body, v2.MessageType.LITE, lite_topic=lite)).status.code == Code.OK


async def acked(caller: Caller, message: Any) -> int:
    system = message.system_properties
    entry = v2.AckMessageEntry(message_id=system.message_id, receipt_handle=system.receipt_handle, lite_topic=system.lite_topic)
    fields = {"group": v2.Resource(name="readers"), "topic": v2.Resource(name="Rooms")}
    return int((await caller.ask("AckMessage", entries=[entry], **fields)).status.code)


async def test_what_a_client_wants_comes_in_order(port: int) -> None:
    async with Caller(port) as caller, caller.telemetry(settings()) as (_, answer):
        limits = answer.settings.subscription
        assert (limits.lite_subscription_quota, limits.max_lite_topic_size) == (2000, 64)
        assert await wants(caller, "a") == Code.OK
        for number in range(3):
            await send(caller, "a", b"a%d" % number)
            await send(caller, "b", b"b%d" % number)
        _, found = await caller.receive("readers", "Rooms", batch_size=2)
        assert [(one.body, one.system_properties.lite_topic) for one in found] == [(b"a0", "a"), (b"a1", "a")]
        assert {one.system_properties.message_type for one in found} == {v2.MessageType.LITE}
        assert (await caller.receive("readers", "Rooms", long_polling_timeout=ms(0)))[1] == []
        assert [await acked(caller, one) for one in found] == [Code.OK] * 2
        _, (last,) = await caller.receive("readers", "Rooms")
        changed = await caller.ask(
            "ChangeInvisibleDuration",
            group=v2.Resource(name="readers"),
            topic=v2.Resource(name="Rooms"),
            receipt_handle=last.system_properties.receipt_handle,
            invisible_duration=ms(100),
            lite_topic="a",
        )
        assert changed.status.code == Code.OK
        _, (again,) = await caller.receive("readers", "Rooms")
        assert (again.body, again.system_properties.delivery_attempt) == (b"a2", 2)
        assert await wants(caller, "a", action=Action.PARTIAL_REMOVE) == Code.OK
        assert await wants(caller, action=Action.COMPLETE_REMOVE) == Code.OK


async def test_a_client_without_a_stream_gets_of_its_lite_topics_alone(broker: LocalBroker, port: int) -> None:
    """As at a door that stops, or was just started: it was given all of the topic by an ordinary pop, also what others want, and
    what it had done."""
    async with Caller(port) as caller:
        async with caller.telemetry(settings()):
            assert await wants(caller, "a") == Code.OK
            await send(caller, "b", b"of others")
            await send(caller, "a", b"a0")
            _, (first,) = await caller.receive("readers", "Rooms")
            assert await acked(caller, first) == Code.OK
            await send(caller, "a", b"a1")
        async with door(broker) as other, Caller(other) as there:
            assert [one.body for one in (await there.receive("readers", "Rooms"))[1]] == [b"a1"]
        async with door(broker) as other, Caller(other, "never heard of") as there:
            code, found = await there.receive("readers", "Rooms", long_polling_timeout=ms(0))
            assert (code, found) == (Code.MESSAGE_NOT_FOUND, [])


async def test_a_client_that_wants_nothing_so_far_waits(port: int) -> None:
    """As at RocketMQ's proxy: it was refused (50001) at once, each time, and its log was full of it."""
    async with Caller(port) as caller, caller.telemetry(settings()):
        nothing = Code.MESSAGE_NOT_FOUND, []
        assert await caller.receive("readers", "Rooms", long_polling_timeout=ms(0)) == nothing
        receiving = asyncio.create_task(caller.receive("readers", "Rooms", long_polling_timeout=ms(15_000)))
        await send(caller, "a", b"a0")
        assert await wants(caller, "a") == Code.OK
        assert [one.body for one in (await receiving)[1]] == [b"a0"]
        assert await wants(caller, action=Action.COMPLETE_REMOVE) == Code.OK
        assert await caller.receive("readers", "Rooms", long_polling_timeout=ms(0)) == nothing


async def test_a_quota_that_is_larger_than_an_answer_can_say(broker: LocalBroker, port: int) -> None:
    attributes = {"+lite.bind.topic": "Rooms", "+lite.sub.client.quota": str(2**63 - 1)}
    async with broker.client() as client:
        await admin.update_group(client, GroupConfig("hungry", attributes=attributes), broker=broker.address)
    async with Caller(port) as caller, caller.telemetry(settings("hungry")) as (_, answer):
        assert answer.settings.subscription.lite_subscription_quota == 2**31 - 1


async def test_a_client_hears_that_its_quota_is_full(broker: LocalBroker, port: int) -> None:
    """By the code that RocketMQ's proxy gives; it was an error of the server."""
    attributes = {"+lite.bind.topic": "Rooms", "+lite.sub.client.quota": "1"}
    async with broker.client() as client:
        await admin.update_group(client, GroupConfig("modest", attributes=attributes), broker=broker.address)
    async with Caller(port) as caller, caller.telemetry(settings("modest")):
        assert await wants(caller, "a", group="modest") == Code.OK
        assert await wants(caller, "b", group="modest") == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED


async def test_a_broker_that_was_started_again_is_told(broker: LocalBroker, port: int) -> None:
    """It keeps in memory only who wants what."""
    async with Caller(port) as caller, caller.telemetry(settings()):
        assert await wants(caller, "a", action=Action.COMPLETE_ADD) == Code.OK
        await broker.stop_broker()
        await broker.start_broker()
        async with asyncio.timeout(30):
            while (await caller.send("Rooms", b"x", v2.MessageType.LITE, lite_topic="a")).status.code != Code.OK:
                continue
        code, found = await caller.receive("readers", "Rooms")
        assert (code, found[0].body) == (Code.OK, b"x")


async def test_a_client_hears_that_another_one_has_its_lite_topic(port: int) -> None:
    async with (
        Caller(port, "first") as first,
        Caller(port, "second") as second,
        first.telemetry(settings("owners")) as (stream, _),
    ):
        assert await wants(first, "a", group="owners") == Code.OK
        assert await wants(second, "a", group="owners") == Code.OK
        told = await asyncio.wait_for(stream.read(), 20)
        assert told.notify_unsubscribe_lite_command.lite_topic == "a"


async def test_a_lite_topic_that_another_one_took_stays_that_ones(broker: LocalBroker, port: int) -> None:
    """A broker that was started again heard from the door that the first one wants it. The second one was told that it lost it,
    and the first one did not know of it: nobody had its messages any more."""
    async with (
        Caller(port, "first") as first,
        Caller(port, "second") as second,
        first.telemetry(settings("owners")) as (stream, _),
        second.telemetry(settings("owners")),
    ):
        assert await wants(first, "a", "b", group="owners", action=Action.COMPLETE_ADD) == Code.OK
        assert await wants(second, "a", group="owners") == Code.OK
        assert (await asyncio.wait_for(stream.read(), 20)).notify_unsubscribe_lite_command.lite_topic == "a"
        await broker.stop_broker()
        await broker.start_broker()
        async with asyncio.timeout(30):
            while (await second.send("Rooms", b"x", v2.MessageType.LITE, lite_topic="a")).status.code != Code.OK:
                continue
        assert (await first.receive("owners", "Rooms", long_polling_timeout=ms(0)))[1] == []
        assert [one.body for one in (await second.receive("owners", "Rooms"))[1]] == [b"x"]


async def test_a_client_that_came_from_another_proxy_keeps_what_it_said_there(broker: LocalBroker, port: int) -> None:
    """It says all it wants each half minute. What it had added meanwhile was told as all of it, as where a change was refused."""
    async with Caller(port) as caller, caller.telemetry(settings()):
        assert await wants(caller, "a", action=Action.COMPLETE_ADD) == Code.OK
    async with door(broker) as other, Caller(other) as there, there.telemetry(settings()):
        assert await wants(there, "b") == Code.OK
        assert await wants(there, "x" * 65) != Code.OK
        assert await wants(there, "b") == Code.OK  # behind what was told again
        await send(there, "a", b"a0")
        assert [one.body for one in (await there.receive("readers", "Rooms"))[1]] == [b"a0"]


async def test_what_is_refused(port: int) -> None:
    async with Caller(port) as caller, caller.telemetry(settings()):
        assert await wants(caller, "no such name!") not in (Code.OK, 0)
        assert await wants(caller, "a", action=9) == Code.BAD_REQUEST
        assert await wants(caller, "a", offset_option=v2.OffsetOption(timestamp=5)) == Code.NOT_IMPLEMENTED
        assert await wants(caller, "a", offset_option=v2.OffsetOption(tail_n=1)) == Code.OK
        entry = v2.AckMessageEntry(receipt_handle="0 0 0 0 999 0 broker-a 0 0", lite_topic="no such name!")
        fields = {"group": v2.Resource(name="readers"), "topic": v2.Resource(name="Rooms")}
        assert (await caller.ask("AckMessage", entries=[entry], **fields)).status.code == Code.ILLEGAL_LITE_TOPIC


async def test_what_a_client_wanted_that_went_while_the_brokers_were_told_is_forgotten() -> None:
    """They may take long, as while they elect. The door kept its lite topics, and told the next broker of them, for ever."""
    told: list[Call] = []

    def hold(request: Any, call: Call) -> Later:
        told.append(call)
        return LATER

    def no_group_here(request: Any, call: Call) -> None:
        raise no_group(request.group)

    def never_told(request: Any, call: Call) -> None:
        raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "by the test")

    scripted = await Broker(topics={"Rooms": 1}).start()
    scripted.also(DeclareLites, hold)
    scripted.also(GetGroupConfig, no_group_here)
    scripted.also(PopLite, never_told)
    async with Client(scripted.address) as client:
        inside = OneForAll(client)
        (door,) = inside
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            async with caller.telemetry(settings()):
                wanting = asyncio.create_task(wants(caller, "a", action=Action.COMPLETE_ADD))
                await until(lambda: told)
            await until(lambda: door.streams == 0)
            told[0].answer(None)
            assert await wanting == Code.OK
            async with caller.telemetry(settings()):
                assert (await caller.receive("readers", "Rooms"))[0] == Code.INTERNAL_SERVER_ERROR
            assert len(told) == 1
    await scripted.stop()


async def test_what_is_added_is_in_the_whole_set_at_once() -> None:
    """A broker that had taken it was told the set from before, while another one was still to be told: it forgot it again."""
    told: list[LiteChange] = []
    held: list[Call] = []

    def no_group_here(request: Any, call: Call) -> None:
        raise no_group(request.group)

    def declared(request: DeclareLites, call: Call) -> None:
        told.append(request.changes[0])

    def hold(request: DeclareLites, call: Call) -> Later:
        held.append(call)
        return LATER

    def pop(request: PopLite, call: Call) -> LitePopAnswer:
        if told[-1].action != COMPLETE_ADD:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "by the test")
        return LitePopAnswer(1, 60_000, 0, status=ResponseCode.POLLING_TIMEOUT)

    quick, slow = await Broker("a", {"Rooms": 1}).start(), await Broker("0", {"Rooms": 1}).start()
    for each in (quick, slow):
        each.also(GetGroupConfig, no_group_here)
        each.also(DeclareLites, declared)
    quick.also(PopLite, pop)
    quick.route = lambda _: route_at("Rooms", quick, slow)
    async with Client(quick.address) as client:
        inside = OneForAll(client)
        serving = served(inside, Listening(HERE, 0), Seen(client, inside, "door"))
        async with serving as port, Caller(port) as caller, caller.telemetry(settings()):
            assert await wants(caller, "a") == Code.OK
            slow.also(DeclareLites, hold)
            adding = asyncio.create_task(wants(caller, "b"))
            await until(lambda: held)
            queue = v2.MessageQueue(topic=v2.Resource(name="Rooms"), broker=v2.Broker(name="a"))
            assert (await caller.receive("readers", "Rooms", message_queue=queue))[0] == Code.MESSAGE_NOT_FOUND
            held[0].answer(None)
            assert await adding == Code.OK
            assert (told[-1].action, told[-1].lite_topics) == (COMPLETE_ADD, ["a", "b"])
    await slow.stop()
    await quick.stop()


async def test_a_broker_that_cannot_be_told_holds_up_no_other() -> None:
    """While one of several gave no answer a client could not begin, nor want other lite topics. That one hears of the whole set
    before it is asked for messages."""

    def no_group_here(request: Any, call: Call) -> None:
        raise no_group(request.group)

    told: list[list[str]] = []
    heard: list[Any] = []  # by the one that was silent

    def nothing(request: PopLite, call: Call) -> LitePopAnswer:
        heard.append(request)
        return LitePopAnswer(1, 60_000, 0, status=ResponseCode.POLLING_TIMEOUT)

    healthy, silent = await Broker("a", {"Rooms": 1}).start(), await Broker("0", {"Rooms": 1}).start()
    silent.also(DeclareLites, lambda request, call: LATER)
    healthy.also(DeclareLites, lambda request, call: told.append(request.changes[0].lite_topics))
    for each in (healthy, silent):
        each.also(GetGroupConfig, no_group_here)
    silent.also(PopLite, nothing)
    healthy.route = lambda _: route_at("Rooms", healthy, silent)
    async with Client(healthy.address) as client:
        inside = OneForAll(client)
        serving = served(inside, Listening(HERE, 0), Seen(client, inside, "door"))
        async with serving as port, Caller(port) as caller, caller.telemetry(settings()):
            assert await wants(caller, "a", action=Action.COMPLETE_ADD, timeout_s=2) == Code.OK
            assert await wants(caller, "b", timeout_s=2) == Code.OK
            assert told == [["a"], ["b"]]
            silent.also(DeclareLites, lambda request, call: heard.append(request))
            queue = v2.MessageQueue(topic=v2.Resource(name="Rooms"), broker=v2.Broker(name="0"))
            for _ in range(2):
                assert (await caller.receive("readers", "Rooms", message_queue=queue))[0] == Code.MESSAGE_NOT_FOUND
            declared, *pops = heard
            assert (declared.changes[0].action, declared.changes[0].lite_topics) == (COMPLETE_ADD, ["a", "b"])
            assert [type(each) for each in pops] == [PopLite, PopLite]
    await silent.stop()
    await healthy.stop()


async def test_a_broker_that_tells_nothing_is_told_of_in_time() -> None:
    """It was told again behind the client's patience, who heard no reason."""
    silent = await Broker(topics={"Rooms": 1}).start()
    silent.also(DeclareLites, lambda request, call: LATER)
    async with Client(silent.address) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            assert await wants(caller, "a", timeout_s=1.2) == Code.PROXY_TIMEOUT
    await silent.stop()


async def test_what_one_broker_refuses_is_taken_back_at_the_others() -> None:
    """Who added it saw an error, and got its messages from there until it told its whole set."""
    told: list[list[str]] = []

    def no_group_here(request: Any, call: Call) -> None:
        raise no_group(request.group)

    def refuses(request: DeclareLites, _call: Call) -> None:
        if "b" in request.changes[0].lite_topics:
            raise Refusal(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, "by the test")

    roomy, full = await Broker("a", {"Rooms": 1}).start(), await Broker("0", {"Rooms": 1}).start()
    roomy.also(DeclareLites, lambda request, call: told.append(request.changes[0].lite_topics))
    full.also(DeclareLites, refuses)
    for each in (roomy, full):
        each.also(GetGroupConfig, no_group_here)
    roomy.route = lambda _: route_at("Rooms", roomy, full)
    async with Client(roomy.address) as client:
        inside = OneForAll(client)
        serving = served(inside, Listening(HERE, 0), Seen(client, inside, "door"))
        async with serving as port, Caller(port) as caller, caller.telemetry(settings()):
            assert await wants(caller, "a", action=Action.COMPLETE_ADD) == Code.OK
            assert await wants(caller, "b") == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
            await until(lambda: told == [["a"], ["b"], ["a"]])
    await full.stop()
    await roomy.stop()
