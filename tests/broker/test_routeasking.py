"""A broker asks where the queues of a topic are; any client may name the topic."""

import asyncio

import pytest

from rmq.broker.pending import routeasking
from rmq.broker.pending.routeasking import FORGET_AFTER_S, KEPT_S, RouteAsking
from rmq.errors import no_topic
from rmq.net.commands import GetRoute
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.server import LATER, Call
from rmq.testing import TestClock, entries, until
from tests.client.scripted import Broker, never_answer


async def test_what_is_remembered_is_bounded_in_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routeasking, "MAX_KEPT", 20)
    nameserver = await Broker(topics={f"T{number}": 4 for number in range(30)}).start()
    asking = RouteAsking([nameserver.address], "b", Dialer(TestClock(running=False)))
    await asking.queues("unknown")
    other = entries(asking) - 1
    for number in range(30):
        assert len(await asking.queues(f"T{number}") or ()) == 4
        assert entries(asking) <= 20 + other
    before = len(nameserver.seen(GetRoute))
    await asking.queues("T29")
    assert len(nameserver.seen(GetRoute)) == before, "it is still known"
    for number in range(50):
        assert await asking.queues(f"unknown{number}") is None
    assert (full := entries(asking)) <= 20 + other
    assert await asking.queues("x" * 100_000) == []
    assert entries(asking) == full
    await asking.close()
    await nameserver.stop()


async def test_all_that_ask_at_once_share_a_connection() -> None:
    """Each had its own, and all but one stayed open for ever. Who stops waiting does not take it from the others; a broker that
    stops meanwhile leaves none behind."""
    nameserver = await Broker(topics={f"T{number}": 4 for number in range(30)}).start()
    asking = RouteAsking([nameserver.address], "b", Dialer(TestClock(running=False)))
    waiting = [asyncio.create_task(asking.queues(f"T{number}")) for number in range(30)]
    await asyncio.sleep(0)
    waiting.pop(0).cancel()
    assert {len(found or ()) for found in await asyncio.gather(*waiting)} == {4}
    assert nameserver.connected == 1
    await asking.close()
    late = asyncio.create_task(asking.queues("T0"))
    await asyncio.sleep(0)
    await asking.close()
    assert await late is None
    await until(lambda: not nameserver.connected)
    await nameserver.stop()


async def test_all_nameservers_are_asked_at_once() -> None:
    """The first one decided, also where it was just started and knew nothing, so that members got no queues; and where it stood
    still, each question waited two seconds."""
    young, still, old = [await Broker(topics=topics).start() for topics in ({}, {}, {"T": 4})]
    still.also(GetRoute, lambda request, call: LATER)
    clock = TestClock(running=False)
    for first, topic, count in ((young, "T", 4), (still, "T", 4), (young, "other", 0)):
        asking = RouteAsking([first.address, old.address], "b", Dialer(clock))
        waiting = asyncio.create_task(asking.queues(topic))
        if first is still:
            await until(lambda: old.seen(GetRoute))
            await clock.advance_until(waiting.done, step_s=0.1)
        assert len(await waiting or ()) == count
        assert clock.monotonic() < 2
        await asking.close()
    asking = RouteAsking([still.address], "b", Dialer(clock))
    waiting = asyncio.create_task(asking.queues("T"))
    await clock.advance_until(waiting.done)
    assert (await waiting, await asking.queues("T")) == (None, None)  # at once, for a while
    await asking.close()
    asking = RouteAsking([old.address], "b", Dialer(clock))
    assert len(await asking.queues("T") or ()) == 4
    old.also(GetRoute, lambda request, call: LATER)
    await clock.advance(KEPT_S + 1)
    waiting = asyncio.create_task(asking.queues("T"))
    await clock.advance_until(waiting.done)
    assert len(await waiting or ()) == 4  # N3
    await asking.close()
    for each in (young, still, old):
        await each.stop()


async def test_a_nameserver_that_was_started_again_takes_no_queues_away() -> None:
    """N3: until it had heard of the brokers it knew no topic, and all members lost their queues."""
    nameserver, clock = await Broker(topics={"T": 4}).start(), TestClock(running=False)
    asking = RouteAsking([nameserver.address], "b", Dialer(clock))
    assert len(await asking.queues("T") or ()) == 4
    nameserver.topics.clear()
    for _ in range(3):
        await clock.advance(KEPT_S + 1)
        assert len(await asking.queues("T") or ()) == 4
    await clock.advance(FORGET_AFTER_S)
    assert await asking.queues("T") == []  # the topic was deleted
    await asking.close()
    await nameserver.stop()


async def test_a_broker_and_a_nameserver_that_were_started_together_take_no_queues_away() -> None:
    """As when their machine was: until the other brokers had registered again, members lost the queues of all."""
    nameserver, clock = await Broker().start(), TestClock(running=False)
    asking = RouteAsking([nameserver.address], "b", Dialer(clock))
    assert await asking.queues("T") is None
    nameserver.topics["T"] = 4
    await clock.advance(KEPT_S + 1)
    assert len(await asking.queues("T") or ()) == 4
    await clock.advance(FORGET_AFTER_S)
    assert await asking.queues("no such topic") == []
    await asking.close()
    await nameserver.stop()


async def test_what_is_asked_for_again_takes_no_further_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer counted anew, so that all were forgotten now and then, in large clusters each few seconds: beside a nameserver
    that was just started again members lost their queues then."""
    monkeypatch.setattr(routeasking, "MAX_KEPT", 20)
    nameserver, clock = await Broker(topics={"T": 4, "U": 4}).start(), TestClock(running=False)
    asking = RouteAsking([nameserver.address], "b", Dialer(clock))
    assert len(await asking.queues("T") or ()) == 4
    for _ in range(5):
        assert len(await asking.queues("U") or ()) == 4
        await clock.advance(KEPT_S + 1)
    nameserver.topics.clear()
    assert len(await asking.queues("T") or ()) == 4
    await asking.close()
    await nameserver.stop()


async def test_an_answer_that_comes_late_takes_nothing_from_a_later_one() -> None:
    """Who asked before the nameserver had heard of the brokers, and was answered behind who asked later, took the queues from
    all members for some seconds."""
    nameserver, clock = await Broker(topics={"T": 4}).start(), TestClock(running=False)
    held = list[Call]()
    nameserver.faults[GetRoute] = [lambda request, call: held.append(call)]
    asking = RouteAsking([nameserver.address], "b", Dialer(clock))
    first = asyncio.create_task(asking.queues("T"))
    await until(lambda: held)
    assert len(await asking.queues("T") or ()) == 4
    held[0].refuse(no_topic("T"))
    assert len(await first or ()) == 4
    assert len(await asking.queues("T") or ()) == 4
    await asking.close()
    await nameserver.stop()


async def test_a_connection_that_swallows_questions_is_given_up() -> None:
    """It looked open, and each further question was asked there, until the system gave it up after a quarter of an hour."""
    nameserver, clock = await Broker(topics={"T": 4}).start(), TestClock(running=False)
    nameserver.also(GetRoute, lambda request, call: LATER)
    asking = RouteAsking([nameserver.address], "b", Dialer(clock))
    waiting = asyncio.create_task(asking.queues("T"))
    await clock.advance_until(waiting.done)
    await until(lambda: not nameserver.connected)
    await asking.close()
    await nameserver.stop()


async def test_a_connection_that_swallows_questions_is_given_up_also_beside_another_nameserver() -> None:
    """Nobody waited for it any more once that one had answered: the brokers that this one alone knows were left out."""
    swallowing, other = await Broker("a", {"T": 4}).start(), await Broker("b", {"T": 4}).start()
    clock = TestClock(running=False)
    swallowing.faults[GetRoute] = [never_answer]
    asking = RouteAsking([swallowing.address, other.address], "b", Dialer(clock))
    waiting = asyncio.create_task(asking.queues("T"))
    await until(lambda: swallowing.seen(GetRoute) and other.seen(GetRoute))
    await clock.advance_until(waiting.done, step_s=0.1)
    assert {queue.broker_name for queue in await waiting or ()} == {"b"}
    await clock.advance_until(lambda: not swallowing.connected)
    await asking.close()
    for each in (swallowing, other):
        await each.stop()
