"""Messages that fail as often as their group allows: the door makes dead letters of them, also where no client asks for it."""

from typing import Any

import pytest

from rmq.client import Client
from rmq.client.admin import calls as admin
from rmq.grpc.schema import v2
from rmq.log.records.delays import DELAYS_S as LEVELS
from rmq.model import GroupConfig
from rmq.testing import LocalBroker
from tests.door.caller import Caller, door, handle_of, ms, subscribing

ASKED = {"group": v2.Resource(name="g"), "topic": v2.Resource(name="T")}


EXPONENTIAL = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":2000,"max":60000,"multiplier":3}}'
LIST = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,2000,7000]}}'


@pytest.mark.parametrize(
    ("policy", "retries", "times_s"),
    [(LIST, 16, [1, 2, 7]), (LIST, 0, [1, 2, 7]), ("", 0, [*LEVELS]), (EXPONENTIAL, 5, []), (EXPONENTIAL, 0, [])],
)
async def test_a_push_consumer_hears_the_times_of_its_group(policy: str, retries: int, times_s: list[int]) -> None:
    """As from RocketMQ's proxy. Java's client does not start with a list that has none, and it had none where a group allows no
    retry."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        async with broker.client() as client:
            config = GroupConfig("g", retry_max_times=retries, retry_policy=policy)
            await admin.update_group(client, config, broker=broker.address)
        async with caller.telemetry(subscribing("g", "T")) as (_, answer):
            told = answer.settings.backoff_policy
    assert (told.max_attempts, [one.seconds for one in told.customized_backoff.next]) == (retries + 1, times_s)
    growing = told.exponential_backoff
    assert [growing.initial.seconds, growing.max.seconds, growing.multiplier] == ([0, 0, 0] if times_s else [2, 60, 3])


async def failed(caller: Caller, attempt: int, **others: Any) -> None:
    """The next message comes, and fails."""
    _, (message,) = await caller.receive("g", "T", long_polling_timeout=ms(20_000))
    assert message.system_properties.delivery_attempt == attempt
    fields = {"receipt_handle": handle_of(message), "invisible_duration": ms(100), **ASKED, **others}
    assert (await caller.ask("ChangeInvisibleDuration", **fields)).status.code == v2.Code.OK


async def dead_letter(client: Client) -> bytes:
    async with client.simple_consumer("looker", "%DLQ%g", start="first") as dead:
        (found,) = await dead.receive(wait_seconds=20)
        return found.body


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_that_failed_as_often_as_its_group_allows_is_a_dead_letter(ordered: bool) -> None:
    """Push consumers of Java and Python say only that it failed: it came again for ever."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller, broker.client() as client:
        await broker.create_topic("T")
        config = GroupConfig("g", retry_max_times=1, consume_message_orderly=ordered)
        await admin.update_group(client, config, broker=broker.address)
        await caller.send("T", b"hard")
        await failed(caller, 1)
        await failed(caller, 2)
        assert (await caller.receive("g", "T", long_polling_timeout=ms(20_000)))[1] == []
        assert await dead_letter(client) == b"hard"
        await caller.send("T", b"easy")
        _, (message,) = await caller.receive("g", "T", long_polling_timeout=ms(20_000))  # also where the queue was closed
        assert message.body == b"easy"


async def test_so_is_one_of_a_lite_topic() -> None:
    broker = LocalBroker(light_queues=True, light_dispatch=True)
    async with broker, door(broker) as port, Caller(port) as caller, broker.client() as client:
        await admin.update_topic(client, "T", broker=broker.address, attributes="+message.type=LITE")
        config = GroupConfig("g", retry_max_times=1, attributes={"+lite.bind.topic": "T"})
        await admin.update_group(client, config, broker=broker.address)
        settings = subscribing("g", "T")
        settings.client_type = v2.ClientType.LITE_PUSH_CONSUMER
        async with caller.telemetry(settings):
            adding = {"action": v2.LiteSubscriptionAction.PARTIAL_ADD, "lite_topic_set": ["a"]}
            assert (await caller.ask("SyncLiteSubscription", **adding, **ASKED)).status.code == v2.Code.OK
            await caller.send("T", b"hard", v2.MessageType.LITE, lite_topic="a")
            await failed(caller, 1, lite_topic="a")
            await failed(caller, 2, lite_topic="a")
            assert (await caller.receive("g", "T", long_polling_timeout=ms(20_000)))[1] == []
        assert await dead_letter(client) == b"hard"
