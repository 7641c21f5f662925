"""Messages as gRPC's clients get them, and those that others stored."""

from typing import Any

import pytest

from rmq.client.admin import calls as admin, lookups
from rmq.client.shared.message import Message, ReceivedMessage
from rmq.grpc.messages import written
from rmq.grpc.schema import v2
from rmq.log.records import record
from rmq.model import PERM_WRITE, GroupConfig
from rmq.net.commands import Send
from rmq.testing import LocalBroker
from tests.door.caller import Caller, door, ms


@pytest.mark.parametrize("born_ms", [-(1 << 63), -1, (1 << 63) - 1])
@pytest.mark.parametrize("timer", ["", "abc", "9" * 18, "\u0663"])
async def test_times_that_are_none(born_ms: int, timer: str) -> None:
    """Whoever sends says when it was; and stores of Apache RocketMQ may hold anything. One such message must not keep a group
    from the others."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T")
        sent = await client.producer().send(Message("T", b"x"))
        async with client.simple_consumer("g", "T", start="first") as consumer:
            (message,) = await consumer.receive(wait_seconds=10)
    assert message.message_id == sent.message_id
    properties = message.stored.properties + f"TIMER_OUT_MS\x01{timer}\x02".encode() if timer else message.stored.properties
    odd = ReceivedMessage(message.stored._replace(born_timestamp=born_ms, properties=properties), message.queue)
    found = v2.Message.FromString(written(odd).SerializeToString())
    assert (found.body, found.system_properties.message_id) == (b"x", sent.message_id)
    assert 0 <= found.system_properties.born_timestamp.ToMilliseconds() <= 253_402_300_799_999


@pytest.mark.parametrize("times", [-(1 << 31), -1, (1 << 31) - 1])
async def test_tries_that_are_none(times: int) -> None:
    """Whoever sends says how often it was tried, too. The good messages beside such a one came again for ever, although they were
    acknowledged, and those behind it not at all."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        async with broker.client() as client:
            tried_for_ever = GroupConfig("g", retry_max_times=2**31 - 1)  # else it is a dead letter at once
            await admin.update_group(client, tried_for_ever, broker=broker.address)
            await caller.receive("g", "T", long_polling_timeout=ms(0))
            await client.session.routes.get("T")
            for body, tried in ((b"1", 0), (b"odd", times), (b"2", 0)):
                host = record.host_bytes("127.0.0.1", 1)
                draft = record.draft("T", body, b"", born_timestamp=1, born_host=host, reconsume_times=tried)
                await client.session.leaders.request("broker-a", Send("p", "T", 0, draft, tried), 5.0)
        found: list[Any] = []
        while len(found) < 3:
            found += (await caller.receive("g", "T", long_polling_timeout=ms(1_000)))[1]
        assert [message.body for message in found] == [b"1", b"odd", b"2"]
        assert [message.system_properties.delivery_attempt for message in found] == [1, max(1, times), 1]
        assert await caller.ack("g", "T", *found) == [v2.Code.OK] * 3


async def test_a_tag_with_spaces_around_it() -> None:
    """RocketMQ's proxy takes it, and hands it to who wants all. It was refused."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        assert (await caller.send("T", b"x", tag=" a ", keys=["k"])).status.code == v2.Code.OK
        for wrong in (" ", "a\n", " a\x01b"):
            assert (await caller.send("T", b"x", tag=wrong)).status.code == v2.Code.ILLEGAL_MESSAGE_TAG
        _, (message,) = await caller.receive("g", "T")
        assert (message.system_properties.tag, [*message.system_properties.keys]) == (" a ", ["k"])


async def test_what_is_urgent_says_how_much() -> None:
    """Java's client tells its program (`getPriority`)."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        async with broker.client() as client:
            await admin.update_topic(client, "T", broker=broker.address, attributes="+message.type=PRIORITY")
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await caller.send("T", b"urgent", v2.MessageType.PRIORITY, priority=7)
        _, (message,) = await caller.receive("g", "T")
    assert (message.system_properties.message_type, message.system_properties.priority) == (v2.MessageType.PRIORITY, 7)


async def test_keys_of_several_words_and_properties_without_a_value() -> None:
    """RocketMQ's proxy takes them: the words are keys, and such a property is none."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        system = v2.SystemProperties(message_type=v2.MessageType.NORMAL, keys=["order 42", "", "shop"])
        own = {"empty": "", "own": "1"}
        message = v2.Message(topic=v2.Resource(name="T"), body=b"x", user_properties=own, system_properties=system)
        assert (await caller.ask("SendMessage", messages=[message])).status.code == v2.Code.OK
        _, (found,) = await caller.receive("g", "T")
        assert [*found.system_properties.keys] == ["order", "42", "shop"]
        assert dict(found.user_properties) == {"own": "1"}


@pytest.mark.parametrize("key", ["a\u3000b", "a\u00a0b", "a\u2028b"])
async def test_a_space_that_is_not_the_usual_one_is_part_of_a_key(key: str) -> None:
    """As the index, and RocketMQ's proxy, have it: the key was stored as two others, and nobody found the message by it."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller, broker.client() as client:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await caller.send("T", b"x", keys=[key, "k"])
        _, (found,) = await caller.receive("g", "T")
        assert [*found.system_properties.keys] == [key, "k"]
        (looked_up,) = (await lookups.by_key(client, "T", key)).messages
        assert looked_up.keys == [key, "k"]


@pytest.mark.parametrize("key", [" ", "\t", "a\tb", "a\nb", "a\x1fb", "a\x85b", "a\x01b"])
async def test_a_key_that_is_blank_or_has_control_characters_is_refused(key: str) -> None:
    """As by RocketMQ's proxy: the message was stored without that key, or with others, and the sender heard nothing of it."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        system = v2.SystemProperties(message_type=v2.MessageType.NORMAL, keys=["k", key])
        message = v2.Message(topic=v2.Resource(name="T"), body=b"x", system_properties=system)
        assert (await caller.ask("SendMessage", messages=[message])).status.code == v2.Code.ILLEGAL_MESSAGE_KEY


async def test_who_asks_for_more_than_a_pop_gives_gets_that_many() -> None:
    """As at RocketMQ's proxy: `receive(100, ...)` of a simple consumer."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        for number in range(40):
            await caller.send("T", b"%d" % number)
        code, found = await caller.receive("g", "T", batch_size=100)
        assert (code, len(found)) == (v2.Code.OK, 32)
        assert (await caller.receive("g", "T", batch_size=0))[0] == v2.Code.BAD_REQUEST


async def test_a_topic_that_may_not_be_read_has_no_assignment() -> None:
    """As at RocketMQ's proxy: a push consumer's log says why nothing comes."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        async with broker.client() as client:
            await admin.update_topic(client, "T", broker=broker.address, perm=PERM_WRITE)
        asked = {"topic": v2.Resource(name="T"), "group": v2.Resource(name="g"), "endpoints": caller.endpoints}
        answer = await caller.ask("QueryAssignment", **asked)
        assert (answer.status.code, len(answer.assignments)) == (v2.Code.FORBIDDEN, 0)
        assert "may not be read" in answer.status.message


async def test_who_sends_while_nobody_takes_messages_hears_it_in_time() -> None:
    """Only who had more patience than the proxy heard it, which Java's client has not: its time was over (DEADLINE_EXCEEDED)."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        system = v2.SystemProperties(message_type=v2.MessageType.NORMAL)
        message = v2.Message(topic=v2.Resource(name="T"), body=b"x", system_properties=system)
        assert (await caller.ask("SendMessage", messages=[message])).status.code == v2.Code.OK
        await broker.stop_broker()
        answer = await caller.ask("SendMessage", 1.0, messages=[message])
        assert (answer.status.code, len(answer.entries)) == (v2.Code.HA_NOT_AVAILABLE, 1)
