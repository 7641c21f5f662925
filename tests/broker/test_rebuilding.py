"""A broker that has lost its queues: it says so while a worker process makes them anew, then serves as before."""

import asyncio
import contextlib
import shutil

import pytest

from rmq.broker.startup import opening
from rmq.codes import ResponseCode as R
from rmq.errors import RmqError
from rmq.net.commands import GetRuntimeInfo, QueryConsumerOffset, UpdateConsumerOffset, ViewMessage
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import Peer, bodies, send


async def test_clients_are_told_to_wait_until_the_queues_are_there(
    broker: LocalBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10."""
    peer = await connect(broker)
    sent = await peer.send(*(send("T", b"message %d" % number) for number in range(50)))
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 7))
    address = broker.address
    await broker.stop_broker()
    shutil.rmtree(broker.store_dir / "consumequeue")
    monkeypatch.setattr(opening, "REBUILD_APART_BYTES", 1)
    starting = asyncio.create_task(broker.start_broker())
    early = await connected(address, starting)
    info = await early.ask(GetRuntimeInfo())
    assert info.table["rebuildingQueues"].endswith(" %")
    assert b"message 3" in (await early.ask(ViewMessage(sent[3].physical_offset))).message
    assert await early.refusal(send("T")) == R.SYSTEM_BUSY
    with pytest.raises(RmqError, match="anew from its log"):
        await early.pull("T", 0)
    assert not starting.done()
    await starting
    await early.close()
    again = await connect(broker)
    found: list[bytes] = []
    while len(found) < 50:
        found += bodies(await again.pull("T", len(found)))
    assert found == [b"message %d" % number for number in range(50)]
    assert (await again.ask(QueryConsumerOffset("g", "T", 0))).offset == 7
    assert (await again.send(send("T")))[0].queue_offset == 50
    assert "rebuildingQueues" not in (await again.ask(GetRuntimeInfo())).table


async def connected(address: str, starting: "asyncio.Task[None]") -> Peer:
    while not starting.done():
        with contextlib.suppress(RmqError):
            return await Peer.connect(address)
        await asyncio.sleep(0)
    raise AssertionError("it never said that it was rebuilding")
