"""The door before a broker that refuses what it asks."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rmq.client import Client
from rmq.errors import Refusal, no_group
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.log.records import record
from rmq.model import GroupConfig
from rmq.net.commands.groups import GetGroupConfig
from rmq.net.commands.pop import Ack, Pop, PopAnswer
from rmq.net.commands.retries import SendBack
from rmq.net.commands.timers import Recall, RecallAnswer
from rmq.net.transport.server import LATER, Call, Later
from tests.client.scripted import STORE_HOST, Broker, route_at
from tests.door.caller import HERE, Caller

OK = v2.Code.OK
G, T = v2.Resource(name="g"), v2.Resource(name="T")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = await Broker(topics={"T": 1}).start()
    broker.also(Ack, refused)
    yield broker
    await broker.stop()


@pytest.fixture
async def caller(broker: Broker) -> AsyncIterator[Caller]:
    async with Client(broker.address) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port, Caller(port) as caller:
            yield caller


def refused(request: Any, call: Call) -> None:
    raise Refusal(1, "by the test")


def unknown_group(request: Any, call: Call) -> None:
    raise no_group(request.group)


async def test_a_dead_letter_whose_message_could_not_be_acknowledged(broker: Broker, caller: Caller) -> None:
    """It is one. The client was told that it is none, and made another one."""
    asked = {"group": G, "topic": T, "receipt_handle": "0 0 0 60000 0 0 a 0 0"}
    answer = await caller.ask("ForwardMessageToDeadLetterQueue", **asked)
    assert (answer.status.code, len(broker.seen(SendBack))) == (OK, 1)


async def test_what_a_receipt_is_used_for_ends_in_the_clients_time(broker: Broker, caller: Caller) -> None:
    """It was tried for 2.5 s, and a dead letter for twice that: who waits for less heard nothing, and made another one."""
    asked = {"group": G, "topic": T, "receipt_handle": "0 0 0 60000 0 0 a 0 0"}
    broker.also(Ack, lambda request, call: LATER)
    answer = await caller.ask("ForwardMessageToDeadLetterQueue", **asked, timeout_s=1.5)
    assert (answer.status.code, len(broker.seen(SendBack))) == (OK, 1)
    entry = v2.AckMessageEntry(receipt_handle=asked["receipt_handle"])
    answer = await caller.ask("AckMessage", group=G, topic=T, entries=[entry], timeout_s=1.5)
    assert answer.status.code == v2.Code.PROXY_TIMEOUT


def popped(request: Pop, call: Call) -> PopAnswer:
    """Two messages, whose tags have one hash."""
    properties = [record.properties_to_bytes({"TAGS": tag}) for tag in ("BB", "Aa")]
    drafts = [bytearray(record.draft("T", b"x", each, born_timestamp=1, born_host=bytes(8))) for each in properties]
    for number, draft in enumerate(drafts):
        record.stamp(draft, [(0, [len(draft)], 0, number)], number * 1000, bytes(8) + STORE_HOST)
    return PopAnswer(1, 60_000, 0, 0, "0 0 0", "0 0 0,1", messages=b"".join(drafts))


async def test_one_that_the_filter_leaves_out_and_cannot_be_acknowledged(broker: Broker, caller: Caller) -> None:
    """The wanted ones beside it were hidden until their time was over."""
    broker.also(Pop, popped)
    broker.also(GetGroupConfig, unknown_group)
    wanted = v2.FilterExpression(type=v2.FilterType.TAG, expression="Aa")
    code, found = await caller.receive("g", "T", filter_expression=wanted)
    assert (code, [message.system_properties.tag for message in found]) == (OK, ["Aa"])
    async with Client(broker.address) as client, client.simple_consumer("g", {"T": "Aa"}) as consumer:
        assert [message.tags for message in await consumer.receive(wait_seconds=0)] == ["Aa"]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_pop_that_had_no_answer_is_repeated_by_the_same_attempt(broker: Broker, caller: Caller, ordered: bool) -> None:
    """As where its leader dies. In order what was in the answer came after a minute, and its queues stood still; in no order who
    received heard of it (50400)."""
    asked: list[Pop] = []

    def pop(request: Pop, call: Call) -> PopAnswer | Later:
        asked.append(request)
        if len(asked) == 1:
            call.connection.abort("cut by the test")
            return LATER
        return popped(request, call)

    broker.also(Pop, pop)
    broker.also(GetGroupConfig, lambda request, call: GroupConfig(request.group, consume_message_orderly=ordered))
    code, found = await caller.receive("g", "T")
    assert (code, len(found), len(asked)) == (OK, 2, 2)
    assert asked[1] == asked[0]._replace(poll_time=0 if ordered else asked[1].poll_time)
    assert asked[0].attempt_id


async def test_a_message_is_recalled_where_it_waits(broker: Broker, caller: Caller) -> None:
    """Another group of brokers was asked before, by the order of their names: nothing was recalled while that one was away."""
    silent = await Broker("0", {"T": 1}).start()
    silent.also(Recall, lambda request, call: LATER)
    broker.also(Recall, lambda request, call: RecallAnswer("id"))
    broker.route = lambda _: route_at("T", broker, silent)
    handle = base64.urlsafe_b64encode(b"v1 T a 1800000000000 id").decode()
    answer = await caller.ask("RecallMessage", timeout_s=2, topic=T, recall_handle=handle)
    assert (answer.status.code, answer.message_id) == (OK, "id")
    await silent.stop()
