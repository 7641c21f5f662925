"""Sends of which tools show how long they take."""

import asyncio

from rmq.client import SendResult
from rmq.client.admin.members import all_running, producers, stuck
from rmq.client.admin.probes import ENOUGH, probes
from rmq.codes import ResponseCode
from rmq.model import ConnectionInfo
from rmq.net.commands import ConsumerConnection, GetConsumerConnection, Send
from rmq.net.commands.clients import GetProducerConnection, ProducerConnection
from rmq.net.commands.questions import ClientReport, GetRunningInfo
from rmq.net.commands.reports import HeldQueue, RunningInfo
from rmq.net.transport.server import LATER
from rmq.testing import TestClock
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, queue, refuse, route_at


async def test_a_broker_that_takes_nothing_is_not_asked_for_long(broker: Broker, make_client: MakeClient) -> None:
    """Each may take the whole time of a request: `rmq admin sendMsgStatus` said nothing for minutes."""
    client = make_client(request_timeout_s=0.5)
    async with client.producer() as producer:
        assert len([each async for each in probes(client, producer, "T", 10, 50)]) == 50
        taken = len(broker.seen(Send))
        broker.faults[Send] = [refuse(ResponseCode.MESSAGE_ILLEGAL)] * 1000
        found = [each.outcome async for each in probes(client, producer, "T", 10, 50)]
    assert taken == 50
    assert len(found) == ENOUGH
    assert not any(isinstance(outcome, SendResult) for outcome in found)


async def test_members_are_told_beside_a_broker_that_stands_still(broker: Broker, make_client: MakeClient) -> None:
    """`rmq admin consumerConnection` and consumerStatus ended, although another one lists them, and asks them all."""
    still, asked = await Broker("0-still").start(), list[object]()
    still.also(GetConsumerConnection, lambda request, call: LATER)
    still.also(GetRunningInfo, lambda request, call: asked.append(request) or LATER)  # type: ignore[func-returns-value]
    members = [ConnectionInfo(f"m{number:02d}", "h:1", "JAVA", 1) for number in range(40)]
    broker.also(GetConsumerConnection, lambda request, call: ConsumerConnection(members, "", "", "", []))
    broker.also(GetRunningInfo, lambda request, call: ClientReport(b"{}"))
    for each in (broker, still):
        each.topics["%RETRY%g"] = 1
    broker.route = lambda _: route_at("%RETRY%g", still, broker)
    clock = TestClock()
    client = make_client(clock=clock)
    running = asyncio.create_task(all_running(client, "g"))
    await clock.advance_until(running.done)
    found, silent = running.result()
    assert (list(found), silent) == ([one.client_id for one in members], {})
    assert len(asked) < len(members), "it is not waited for again"
    still.also(GetProducerConnection, lambda request, call: LATER)
    broker.also(GetProducerConnection, lambda request, call: ProducerConnection(members[:1]))
    producing = asyncio.create_task(producers(client, "p", "%RETRY%g"))
    await clock.advance_until(producing.done)
    assert producing.result() == members[:1]
    await still.stop()


def test_a_member_with_another_clock_than_the_tool() -> None:
    """By a clock that is ten minutes ahead it had handled nothing for ten minutes; by one that is behind it never stood still."""
    held = {queue("T", 0): HeldQueue(cached_msg_count=1, last_consume_timestamp=1_000_000)}
    busy = RunningInfo({"PROP_CLIENT_TIMESTAMP": "1030000"}, queues=held)
    blocked = RunningInfo({"PROP_CLIENT_TIMESTAMP": "1061000"}, queues=held)
    java = RunningInfo({}, queues=held)
    assert stuck({"m": busy}, 1_630_000) == []
    for info, now_ms in ((blocked, 461_000), (java, 1_061_000)):
        assert stuck({"m": info}, now_ms) == ["m has of T/a/0 1 messages, and handled none for 61 s"]
