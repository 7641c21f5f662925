"""Heartbeats that brokers refuse."""

from typing import NoReturn

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.commands import Heartbeat
from rmq.net.transport.server import Call
from rmq.testing import TestClock
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker


async def test_one_that_is_refused_for_good_is_repeated_less_and_less_often(broker: Broker, make_client: MakeClient) -> None:
    """As of more groups than a connection may have: two in a second, with all their names, and as many lines of a log."""
    clock, came = TestClock(), list[float]()

    def refuse(request: Heartbeat, call: Call) -> NoReturn:
        came.append(clock.monotonic())
        raise Refusal(ResponseCode.SYSTEM_BUSY, "not all of this heartbeat was taken in")

    broker.also(Heartbeat, refuse)
    client = make_client(clock=clock)
    client.producer("g")
    await client.session.routes.get("T")
    await clock.advance_until(lambda: len(came) >= 10)
    assert came[9] - came[0] > 35  # 0.5, 1, 2, 4, 8, 8, ... s
