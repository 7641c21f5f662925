"""Brokers in processes of their own, as an operator runs them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq.config.settings import NodeSettings
from rmq.nameserver.node import Nameserver
from rmq.net.commands import GetClusterInfo, GetMaxOffset, Hello
from tests.broker.support import Peer, send
from tests.dialing import dial
from tests.faults.node import NodeProcess


@pytest.fixture
async def nameserver() -> AsyncIterator[Nameserver]:
    nameserver = Nameserver(NodeSettings(role="nameserver", namesrv_port=0, stop_grace_ms=1000))
    await nameserver.start()
    yield nameserver
    await nameserver.stop()


def broker_process(store: Path, nameserver: Nameserver) -> NodeProcess:
    return NodeProcess(store, role="broker", namesrv_addresses=nameserver.address, flush="async")


async def registered(nameserver: Nameserver) -> list[Any]:
    channel = await dial(nameserver.address, Hello(1, "test"))
    answer: Any = await channel.request(GetClusterInfo(), 5.0)
    await channel.close()
    return list(answer.brokers)


async def test_sigterm_unregisters_finishes_and_exits_with_0(tmp_path: Path, nameserver: Nameserver) -> None:
    """C17, D2: what was acknowledged a moment before is there after the next start, which need not recover."""
    node = broker_process(tmp_path / "store", nameserver)
    await node.start()
    async with asyncio.timeout(20):
        while not await registered(nameserver):
            pass
    assert [broker.addresses for broker in await registered(nameserver)] == [{0: node.address}]
    peer = await Peer.connect(node.address)
    await asyncio.gather(*(peer.ask(send("N", b"x" * 100)) for _ in range(100)))
    assert await node.stop() == 0, node.log_text()
    await peer.close()
    assert await registered(nameserver) == [], "it said goodbye"
    await node.start()
    peer = await Peer.connect(node.address)
    assert (await peer.ask(GetMaxOffset("N", 0))).offset == 100
    await peer.close()
    assert await node.stop() == 0
    assert "the last run stopped in order" in node.log_text()
    assert "Traceback" not in node.log_text()


async def test_a_second_process_on_the_same_store_is_refused(tmp_path: Path, nameserver: Nameserver) -> None:
    """D16: with a message that says which store, exit code 1, and no harm to the first."""
    first = broker_process(tmp_path / "store", nameserver)
    await first.start()
    second = broker_process(tmp_path / "store", nameserver)
    with pytest.raises(RuntimeError, match="the node ended with 1"):
        await second.start()
    assert f"{tmp_path / 'store'} is in use by another process" in second.log_text()
    assert "Traceback" not in second.log_text()
    peer = await Peer.connect(first.address)
    assert (await peer.ask(send("N"))).queue_offset == 0
    await peer.close()
    assert await first.stop() == 0
