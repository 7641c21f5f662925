"""Clients of gRPC cross a change of leaders: a broker that is away for a moment, and one that stays away."""

import asyncio

from rmq.grpc.schema import v2
from rmq.testing import LocalBroker
from tests.door.caller import Caller, door, ms


async def test_who_receives_and_acknowledges_crosses_a_change_of_leaders() -> None:
    """Both failed at once (HA_NOT_AVAILABLE), which a simple consumer gets to hear as an exception."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await caller.send("T", b"1")
        _, held = await caller.receive("g", "T")
        await caller.send("T", b"2")
        await broker.stop_broker()
        acknowledging = asyncio.create_task(caller.ack("g", "T", *held))
        receiving = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(10_000)))
        await broker.start_broker()
        assert await acknowledging == [v2.Code.OK]
        code, found = await receiving
        assert (code, [message.body for message in found]) == (v2.Code.OK, [b"2"])


async def test_who_receives_hears_of_a_broker_that_stays_away() -> None:
    """Its group is waited for once, for as long as an election may take; other brokers may have something."""
    async with LocalBroker() as broker, door(broker) as port, Caller(port) as caller:
        await broker.create_topic("T", 1)
        await caller.receive("g", "T", long_polling_timeout=ms(0))
        await broker.stop_broker()
        began_s = broker.clock.monotonic()
        for _ in range(2):
            receiving = asyncio.create_task(caller.receive("g", "T", long_polling_timeout=ms(30_000)))
            await broker.clock.advance_until(receiving.done)
            assert (await receiving)[0] == v2.Code.HA_NOT_AVAILABLE
        assert broker.clock.monotonic() - began_s < 15
