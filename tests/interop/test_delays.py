"""Delayed and timed messages of RocketMQ's client at our broker, and of ours in RocketMQ's broker, on one directory."""

import asyncio
from pathlib import Path

import pytest

from rmq.log.records import record
from rmq.net.commands import Send
from rmq.testing import LocalBroker
from tests.broker.support import BORN, Peer, everything
from tests.interop import java
from tests.interop.java import Java
from tests.ports import free_port

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_java_sends_for_later_and_takes_one_back() -> None:
    """C13: each kind comes, none before its time, and the recalled one never."""
    await asyncio.to_thread(java.build)
    async with LocalBroker(recall_messages=True) as broker:
        await broker.create_topic("Later", queues=2)
        consumer = await Java.start("late", broker.nameserver, "Later", "waiters")
        await consumer.until(lambda: consumer.got("STARTED"))
        producer = await Java.start("delay", broker.nameserver, "Later")
        await producer.until(lambda: producer.got("RECALLED"))
        [(answer, sent)] = producer.got("RECALLED")
        assert answer == sent
        assert await producer.stop() == 0
        await consumer.until(lambda: len(consumer.got("CAME")) == 4)
        await broker.clock.advance(3)
        assert await consumer.stop() == 0
        came = {kind: int(late_ms) for kind, late_ms in consumer.got("CAME")}
        assert came.keys() == {"level", "seconds", "millis", "deliver"}
        assert all(0 <= late_ms < 5000 for late_ms in came.values()), came


def delayed(body: bytes, due_ms: int, **properties: str) -> Send:
    said = {"UNIQ_KEY": body.hex().upper(), "due": str(due_ms), **properties}
    return Send(
        "p",
        "Later",
        0,
        record.draft("Later", body, record.properties_to_bytes(said), born_timestamp=due_ms - 1000, born_host=BORN),
    )


async def test_what_waits_goes_on_under_rocketmq_and_comes_back(tmp_path: Path) -> None:
    """Story 57: RocketMQ on our directory delivers what waits, once, and nothing that was delivered; what still
    waits when it stops is delivered by us."""
    await asyncio.to_thread(java.build)
    nameserver_port = free_port()
    theirs_at = f"127.0.0.1:{nameserver_port}"
    nameserver = await Java.start_nameserver(tmp_path, nameserver_port)
    async with LocalBroker(store_dir=tmp_path / "store") as broker:
        await broker.create_topic("Later", queues=1)
        peer = await Peer.connect(broker.address)
        now_ms = broker.clock.wall_ms()

        async def timed(name: bytes, after_s: int) -> None:
            due_ms = now_ms + after_s * 1000
            await peer.send(delayed(name, due_ms, TIMER_DELIVER_MS=str(due_ms)))

        await peer.send(delayed(b"level first", now_ms + 1000, DELAY="1"), delayed(b"level", now_ms + 10_000, DELAY="3"))
        await timed(b"timer", 12)
        await timed(b"timer first", 1)
        await timed(b"timer last", 90)
        await peer.send(delayed(b"level last", now_ms + 60_000, DELAY="5"))
        while len(await everything(peer, "Later")) < 2:  # by the machine's clock, which is RocketMQ's too
            pass
        await peer.close()
        await broker.stop_broker()

        apache = await Java.start_broker(tmp_path, theirs_at, free_port(1, -2))
        consumer = await Java.start("late", theirs_at, "Later", "waiters")
        await consumer.until(lambda: len(consumer.got("CAME")) >= 4)
        names = {b"level", b"timer", b"level first", b"timer first"}
        await consumer.stop()
        got = [(" ".join(fields[:-1]), int(fields[-1])) for fields in consumer.got("CAME")]
        assert sorted(name for name, _ in got) == sorted(name.decode() for name in names)
        await apache.terminate()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        broker.clock.jump_wall(120_000)
        while len(found := await everything(peer, "Later")) < 6:
            await broker.clock.advance(1)
        await broker.clock.advance(5)
        everyone = [one.body for one in await everything(peer, "Later")]
        assert sorted(everyone) == sorted([*names, b"level last", b"timer last"]), found
        await peer.close()
    await nameserver.terminate()
