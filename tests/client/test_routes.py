"""What is known of routes, and how long."""

import asyncio

import pytest

from rmq.client import Refusal, Unreachable
from rmq.client.routes import merge, parse_addresses
from rmq.model import BrokerAddresses, QueueData, Route
from rmq.net.commands import GetRoute
from rmq.testing import TestClock
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, never_answer


def group(name: str, epoch: int = 0) -> BrokerAddresses:
    return BrokerAddresses("c", name, {0: f"{name}:1"}, epoch)


def test_addresses_are_read_in_every_usual_form() -> None:
    assert parse_addresses("a:1; b:2,a:1;") == ["a:1", "b:2"]
    assert parse_addresses(["a:1", "[::1]:2"]) == ["a:1", "[::1]:2"]


def test_answers_are_merged_to_all_that_any_nameserver_knows() -> None:
    """N5: a nameserver that has just started knows some of the brokers only."""
    young = Route([group("b")], [QueueData("b", 4, 4, 6)])
    old = Route([group("a"), group("b")], [QueueData("a", 8, 8, 6), QueueData("b", 2, 2, 6)], "a:8")
    merged = merge([young, old], {"a": group("a"), "b": group("b", 3)})
    assert merged == Route([group("a"), group("b", 3)], [QueueData("a", 8, 8, 6), QueueData("b", 4, 4, 6)], "a:8")


async def test_many_who_ask_share_one_question(broker: Broker, make_client: MakeClient) -> None:
    routes = make_client().session.routes
    await asyncio.gather(*(routes.get("T") for _ in range(50)))
    assert len(broker.seen(GetRoute)) == 1


async def test_a_silent_nameserver_delays_little(broker: Broker, make_client: MakeClient) -> None:
    silent = await Broker().start()
    silent.faults[GetRoute] = [never_answer] * 9
    clock = TestClock(running=False)
    client = make_client(f"{silent.address};{broker.address}", clock=clock)
    asking = asyncio.create_task(client.session.routes.get("T"))
    await clock.advance_until(asking.done, 0.05)
    assert (await asking).queues
    assert clock.monotonic() < 1
    await silent.stop()


async def test_a_topic_nobody_knows_any_more_is_kept_for_120_s(broker: Broker, make_client: MakeClient) -> None:
    """N3: a nameserver that restarted empty does not take away what a client knows; N1: but not for ever."""
    clock = TestClock()
    client = make_client(clock=clock)
    routes = client.session.routes
    await routes.get("T")
    began = clock.monotonic()
    del broker.topics["T"]
    with pytest.raises(Refusal):
        await routes.refresh("T")
    assert routes.known("T") is not None
    await clock.advance_until(lambda: routes.known("T") is None, 1)
    assert 120 <= clock.monotonic() - began < 160
    assert routes.brokers() == {}


async def test_a_group_without_a_leader_is_unreachable(broker: Broker, make_client: MakeClient) -> None:
    broker.route = lambda topic: Route([BrokerAddresses("c", "a", {1: broker.address})], [QueueData("a", 1, 1, 6)])
    routes = make_client().session.routes
    await routes.get("T")
    with pytest.raises(Unreachable, match="no leader"):
        routes.leader("a")
