"""What a node tells of single requests: those that took long, with their stages; those it refused. Each by an id that its client
knows, too."""

import asyncio
import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Message, Refusal
from rmq.client.admin import calls, groups, one
from rmq.errors import NotThere
from rmq.model import ConsumerData
from rmq.net.codec.limits import Limits
from rmq.net.commands import GetMaxOffset, Heartbeat, Hello, OffsetAnswer, Request, UpdateTopic
from rmq.net.commands.questions import GetRunningInfo
from rmq.net.transport import requestlog
from rmq.net.transport.requestlog import RequestLog
from rmq.net.transport.server import Call, Server
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.support import send
from tests.broker.transactions import ROLLBACK, end, half
from tests.dialing import dial

Log = pytest.LogCaptureFixture


def lines(caplog: Log, beginning: str) -> list[dict[str, Any]]:
    """The extras of the lines that begin so."""
    caplog.handler.acquire()
    try:
        found = [
            record for record in caplog.records if record.name == "rmq.requests" and record.getMessage().startswith(beginning)
        ]
    finally:
        caplog.handler.release()
    return [vars(record) for record in found]


def counted(parts: Any, name: str) -> dict[tuple[str, ...], Any]:
    return {labels: value for part in parts for family in part.metrics() if family.name == name for labels, value in family.rows}


async def test_a_slow_send_is_told_with_its_stages_at_the_leader_and_at_the_follower_that_held_it_up(
    tmp_path: Path, caplog: Log
) -> None:
    """The same id in the leader's line, and in the line of each follower that flushed late."""
    disks = {name: HeldDisk() for name in ("n0", "n1", "n2")}
    caplog.set_level(logging.INFO, "rmq.requests")
    async with LocalGroup(tmp_path, disks=disks, flush="sync") as group, group.client() as client:
        producer = client.producer()
        await producer.send(Message("T", b"quick"))
        await group.level()
        caplog.clear()
        followers = await group.followers()
        for name in followers:
            disks[name].flushes.clear()
        leader = group.nodes[await group.leader()]
        log, begin = leader.serving.store.log, leader.serving.store.log.end
        sending = asyncio.create_task(producer.send(Message("T", b"slow"), timeout=20))
        await until(lambda: log.end > begin)
        sent = log.end
        making = asyncio.create_task(calls.update_topic(client, "New", broker=leader.address))
        await until(lambda: log.end > sent)
        stores = [group.nodes[name].serving.store.log for name in followers]
        await until(lambda: log.durable_end == log.end and all(each.end == log.end for each in stores))
        await group.clock.advance(0.8)
        for name in followers:
            disks[name].flushes.set()
        await asyncio.gather(sending, making)
        await until(lambda: lines(caplog, "slow Send") and len(lines(caplog, "slow copy")) >= 1)
        [slow] = lines(caplog, "slow Send")
        assert slow["flushed_ms"] < 700 < slow["replicated_ms"] <= slow["answered_ms"]
        assert 0 <= slow["queued_ms"] <= slow["appended_ms"] <= slow["flushed_ms"]
        assert (slow["log_from"], slow["log_to"], slow["messages"]) == (begin, sent, 1)
        copy = lines(caplog, "slow copy")[0]
        assert copy["id"] == slow["id"]
        assert copy["appended_ms"] < 700 < copy["flushed_ms"]
        [(address, number)] = [slow["id"].split("#")]
        assert address in {f"{host}:{port}" for host, port in (each.peer for each in leader.serving.front.server.connections)}
        assert int(number) > 0
        assert len(lines(caplog, "slow UpdateTopic")) == 1
        assert counted([leader], "rmq_slow_requests_total") == {("Send",): 1.0, ("UpdateTopic",): 1.0}


async def test_the_end_of_a_transaction_has_a_line_of_its_own(tmp_path: Path, caplog: Log) -> None:
    """It was told as a send, and so was every other request that is stored with sends."""
    disk = HeldDisk()
    caplog.set_level(logging.INFO, "rmq.requests")
    async with LocalGroup(tmp_path, count=1, disks={"n0": disk}, flush="sync") as group:
        peer = await group.connect(await group.leader())
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        [committed, rolled_back] = [(await peer.send(half(body)))[0] for body in (b"one", b"two")]
        await group.level()
        caplog.clear()
        log, begin = group.nodes["n0"].serving.store.log, group.nodes["n0"].serving.store.log.end
        disk.flushes.clear()
        asked = [end(committed), send("T", b"x"), end(rolled_back, ROLLBACK)]
        asking = asyncio.gather(*(peer.ask(request) for request in asked))
        await until(lambda: log.end > begin)
        await group.clock.advance(0.8)
        disk.flushes.set()
        await asking
        [ends], [sends] = lines(caplog, "slow EndTransaction"), lines(caplog, "slow Send")
        assert (ends["requests"], ends["messages"], sends["messages"]) == (2, 2, 1)
        assert begin <= ends["log_from"] < ends["log_to"] <= log.end
        counts = counted(group.nodes.values(), "rmq_slow_requests_total")
        assert counts == {("EndTransaction",): 2.0, ("Send",): 1.0}


async def test_a_refusal_has_the_same_id_at_both_sides(caplog: Log) -> None:
    caplog.set_level(logging.INFO, "rmq.requests")
    async with LocalBroker(auto_create_topic=False) as broker, broker.client() as client:
        await broker.create_topic("T")
        producer = client.producer()
        sent = await producer.send(Message("T", b"x"))
        with pytest.raises(Refusal, match=r"request 127.0.0.1:\d+#\d+") as refused:
            await producer.recall(sent)
        line = lines(caplog, "refused")[-1]
        assert (line["id"], line["code"]) == (refused.value.request, refused.value.code)
        assert line["id"] in str(refused.value)
        assert counted(broker.parts, "rmq_refused_requests_total")[str(refused.value.code),] >= 1


async def test_who_looks_at_everything_leaves_no_line_of_what_is_not_there(caplog: Log) -> None:
    """As the dashboard, each 15 s, at a broker that stands alone."""
    caplog.set_level(logging.INFO, "rmq.requests")
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T")
        assert await groups.group_status(client, broker.address) is None
        assert await one.counted(client, "TOPIC_PUT_NUMS", "T", broker.address) is None
        assert await one.connection(client, "g", broker.address) is None
        assert not lines(caplog, "refused")


async def test_who_waits_for_messages_is_not_slow(caplog: Log) -> None:
    caplog.set_level(logging.INFO, "rmq.requests")
    async with LocalBroker(slow_request_ms=300) as broker, broker.client() as client:
        await broker.create_topic("T", 1)
        caplog.clear()
        async with client.simple_consumer("g", ["T"]) as consumer:
            waiting = asyncio.create_task(consumer.receive(wait_seconds=10))
            for _ in range(20):
                await broker.clock.advance(1)
            assert await waiting == []
        assert not lines(caplog, "slow")


def test_a_flood_is_counted_and_few_lines_are_written(caplog: Log) -> None:
    caplog.set_level(logging.INFO, "rmq.requests")
    clock = TestClock(running=False)
    log = RequestLog(clock)
    for number in range(1000):
        log.refused(("::1", 4), number, NotThere(206, "not online, as the dashboard hears each 15 s of each such group"))
        log.refused(("::1", 5), number, Refusal(16, "no\n" + "x" * 10_000))
        log.slow("Send", [f"a:1#{number}"] * 50, {"queued": 0.1})
    refused, slow = lines(caplog, "refused"), lines(caplog, "slow")
    assert len(refused) == len(slow) == requestlog.MAX_LINES
    assert refused[3]["id"] == "[::1]:5#3"
    assert len(refused[0]["message"]) < 400
    assert (slow[0]["requests"], len(slow[0]["ids"]), slow[0]["queued_ms"]) == (50, requestlog.MAX_IDS, 100.0)
    clock.skip(11)
    log.refused(("a", 5), 1, Refusal(16, "no"))
    assert lines(caplog, "refused")[-1]["left_out"] == 1000 - requestlog.MAX_LINES
    assert {family.name: dict(family.rows) for family in log.metrics()} == {
        "rmq_slow_requests_total": {("Send",): 50_000.0},
        "rmq_refused_requests_total": {("16",): 1001.0, ("206",): 1000.0},
    }


async def test_a_handler_that_holds_the_loop_up_is_told(caplog: Log) -> None:
    clock = TestClock()

    def stuck(request: GetMaxOffset, call: Call) -> OffsetAnswer:
        clock.skip(1.0)
        return OffsetAnswer(7)

    server = Server({GetMaxOffset: stuck}, Limits(slow_seconds=0.5), clock=clock)
    host, port = await server.listen("127.0.0.1", 0)
    channel = await dial(f"{host}:{port}", Hello(1, "c"))
    caplog.clear()
    await channel.request(GetMaxOffset("T", 0), 20.0)
    [line] = lines(caplog, "slow GetMaxOffset")
    assert line["id"] == f"{channel.local[0]}:{channel.local[1]}#2"
    assert line["handled_ms"] >= 1000
    await channel.close()
    await server.close()


async def test_the_pause_after_a_send_does_not_count(tmp_path: Path, caplog: Log) -> None:
    """In a group of one node a burst is committed while it is appended: it was noted too late, and answered with the next one."""
    async with LocalGroup(tmp_path, count=1) as group, group.client() as client:
        for body in (b"one", b"two"):
            await client.producer().send(Message("T", body))
            await group.clock.advance(100)
        [node] = group.nodes.values()
        assert node.serving.appender.latencies.commit.sum < 50
        assert not lines(caplog, "slow Send")


async def test_codes_that_somebody_makes_up_are_counted_together() -> None:
    """A member of a group refuses a tool's question with whatever code it likes: each had a line of its own among the metrics."""
    codes = itertools.count(1_000_000)

    def refuses(_request: Request) -> None:
        raise Refusal(next(codes), "no")

    async with LocalBroker() as broker:
        member = await dial(broker.address, Hello(1, "m"), refuses)
        group = ConsumerData("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [])
        await member.request(Heartbeat("m", [], [group]), 20)
        for _ in range(20):
            with pytest.raises(Refusal, match=r"10000\d\d"):
                await member.request(GetRunningInfo("g", "m"), 20)
        counts = counted(broker.parts, "rmq_refused_requests_total")
        assert counts["1",] >= 20
        assert len(counts) < 5
        await member.close()
