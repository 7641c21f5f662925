"""Readers of light queues before a scripted broker."""

import asyncio
from typing import NoReturn

import pytest

from rmq.codes import ResponseCode
from rmq.errors import Closed, Refusal
from rmq.net.commands import GetMaxOffset, OffsetAnswer
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, never_answer


async def test_a_reader_of_what_comes_next_has_begun_when_it_is_entered(broker: Broker, make_client: MakeClient) -> None:
    """It asked where the queue ends only then: who said that it listens now missed the answers."""
    asked: list[Call] = []

    def hold(request: GetMaxOffset, call: Call) -> Later:
        asked.append(call)
        return LATER

    broker.also(GetMaxOffset, hold)
    reader = make_client().light_consumer("g", "room", "T", start="last")
    entering = asyncio.create_task(reader.__aenter__())
    await until(lambda: asked)
    assert not entering.done()
    asked[0].answer(OffsetAnswer(0))
    await entering
    await reader.close()


async def test_a_client_that_is_closed_meanwhile_keeps_nobody_waiting(broker: Broker, make_client: MakeClient) -> None:
    broker.faults[GetMaxOffset] = [never_answer]
    client = make_client()
    entering = asyncio.create_task(client.light_consumer("g", "room", "T", start="last").__aenter__())
    await until(lambda: broker.seen(GetMaxOffset))
    await client.close()
    with pytest.raises(Closed):
        await (await entering).receive()


async def test_a_broker_that_cannot_say_where_to_begin_keeps_no_reader_from_the_others(
    broker: Broker, make_client: MakeClient
) -> None:
    def refuse(request: GetMaxOffset, call: Call) -> NoReturn:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "by the test")

    broker.also(GetMaxOffset, refuse)
    async with make_client().light_consumer("g", "room", "T", start="last"):
        pass
