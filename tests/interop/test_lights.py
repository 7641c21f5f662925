"""Light queues in a directory that our node and Apache RocketMQ 5.5.0's broker serve in turn, with its Java client."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Message
from rmq.testing import LocalBroker
from tests.interop import java
from tests.interop.java import Java
from tests.ports import free_port

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]

LIGHT: dict[str, Any] = {"light_queues": True, "light_dispatch": True}


async def theirs(nameserver: str, *sends: str) -> list[tuple[str, ...]]:
    """What RocketMQ's client reads of light queue %LMQ%a (offsets, body), once it has sent these."""
    client = await Java.start("lights", nameserver, "Chat", "%LMQ%reader", "%LMQ%a", *sends)
    assert await client.stop() == 0, client.errors[-5:]
    return [tuple(fields) for fields in client.got("LIGHT")]


async def ours(broker: LocalBroker, group: str) -> list[tuple[int, bytes]]:
    async with broker.client() as client, client.light_consumer(group, "a", "Chat") as consumer:
        return [(one.queue_offset, one.body) for one in await consumer.receive()]


async def test_both_write_to_light_queues_in_turn(tmp_path: Path) -> None:
    """Offsets go on, in the queues and of the group, and what one wrote the other reads."""
    await asyncio.to_thread(java.build)
    async with LocalBroker(store_dir=tmp_path / "store", **LIGHT) as broker:
        await broker.create_topic("Chat", queues=2)
        assert await theirs(broker.nameserver, "%LMQ%a,%LMQ%b", "%LMQ%b", "%LMQ%a") == [("0,0", "java-0"), ("1", "java-2")]
        assert await ours(broker, "another") == [(0, b"java-0"), (1, b"java-2")]
        await broker.stop_broker()

        switches = {"enableLmq": "true", "enableMultiDispatch": "true"}
        apache = await Java.start_broker(tmp_path, broker.nameserver, free_port(1, -2), **switches)
        assert await theirs(broker.nameserver, "%LMQ%b,%LMQ%a", "%LMQ%new") == [("2,2", "java-0")]
        await apache.terminate()

        await broker.start_broker()
        async with broker.client() as client, client.producer() as producer:
            await producer.send(Message("Chat", b"ours", light_queues=["new", "a"]))
            assert await ours(broker, "reader") == [(3, b"ours")]  # RocketMQ's client has set that group behind its own
        assert [offset for offset, _ in await ours(broker, "another")] == [0, 1, 2, 3]
