"""Messages that the door keeps hidden for push consumers, where brokers fail meanwhile."""

import asyncio

import pytest

from rmq.grpc import service
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import OneForAll
from rmq.testing import LocalBroker, until
from tests.door.caller import HERE, Caller, door, ms, subscribing
from tests.relaying import relay

OK = v2.Code.OK


async def nothing_comes(caller: Caller) -> None:
    assert (await caller.receive("g", "T", auto_renew=True, long_polling_timeout=ms(200)))[1] == []


async def received(caller: Caller, broker: LocalBroker) -> v2.Message:
    """One that is kept hidden, and was hidden again once."""
    await nothing_comes(caller)
    await caller.send("T", b"slow")
    _, (message,) = await caller.receive("g", "T", auto_renew=True)
    await broker.clock.advance(46)
    await nothing_comes(caller)
    return message


async def test_a_message_stays_hidden_and_its_ack_counts_although_a_renewal_failed() -> None:
    """Its broker was started again just then. The acknowledgement, in time, was answered with OK, and the message came again."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        async with caller.telemetry(subscribing("g", "T")):
            message = await received(caller, broker)
            await broker.stop_broker()
            await broker.clock.advance(46)
            await broker.start_broker()
            async with asyncio.timeout(30):
                while (await caller.send("T2", b"x")).status.code != OK:
                    continue
            for _ in range(3):  # tried again by now
                await broker.clock.advance(1)
                await nothing_comes(caller)
            for _ in range(3):
                await broker.clock.advance(25)
                await nothing_comes(caller)
            assert await caller.ack("g", "T", message) == [OK]
            for _ in range(3):
                await broker.clock.advance(25)
                await nothing_comes(caller)


async def test_an_ack_in_time_counts_although_nothing_renews_any_more() -> None:
    """The client's stream had ended when its message was to be renewed: the receipt that held was forgotten 15 s too early."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        async with caller.telemetry(subscribing("g", "T")):
            message = await received(caller, broker)
        await nothing_comes(caller)
        await broker.clock.advance(46)
        assert await caller.ack("g", "T", message) == [OK]
        for _ in range(3):
            await broker.clock.advance(25)
            await nothing_comes(caller)


async def test_what_a_client_had_that_vanished_without_a_word_comes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine or its network is gone. Its stream stayed open for two hours more, and so long its messages were hidden."""
    monkeypatch.setattr(service, "PING_MS", 200)
    monkeypatch.setattr(service, "ANSWER_MS", 200)
    goes_on = asyncio.Event()
    goes_on.set()
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T")
        inside = OneForAll(client)
        async with (
            served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port,
            relay(f"{HERE}:{port}", goes_on=goes_on) as address,
            Caller(int(address.rpartition(":")[2]), "vanished") as vanished,
            Caller(port) as caller,
            vanished.telemetry(subscribing("g", "T")),
        ):
            await nothing_comes(vanished)
            await caller.send("T", b"slow")
            assert (await vanished.receive("g", "T", auto_renew=True))[1]
            goes_on.clear()
            await until(lambda: not any(each.streams for each in inside))
            await broker.clock.advance(46)
            await nothing_comes(caller)
            await broker.clock.advance(30)
            _, (message,) = await caller.receive("g", "T", auto_renew=True)
            assert message.body == b"slow"
            goes_on.set()


async def test_what_renews_a_message_ends_with_its_ack() -> None:
    """It slept on for 45 s, with 2.4 KB for each message: 250 MB where 2 400 a second were acknowledged."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T")
        async with caller.telemetry(subscribing("g", "T")):
            await nothing_comes(caller)
            for body in (b"acknowledged", b"given back", b"dead"):
                await caller.send("T", body)
            found: list[v2.Message] = []
            while len(found) < 3:
                found += (await caller.receive("g", "T", auto_renew=True))[1]
            assert len(renewals()) == 3
            where = {"group": v2.Resource(name="g"), "topic": v2.Resource(name="T")}
            given_back, dead = (one.system_properties for one in found[1:])
            assert await caller.ack("g", "T", found[0]) == [OK]
            await caller.ask(
                "ChangeInvisibleDuration", receipt_handle=given_back.receipt_handle, invisible_duration=ms(60_000), **where
            )
            about = {"receipt_handle": dead.receipt_handle, "message_id": dead.message_id}
            await caller.ask("ForwardMessageToDeadLetterQueue", **about, **where)
            await until(lambda: not renewals())


def renewals() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("renew for")]
