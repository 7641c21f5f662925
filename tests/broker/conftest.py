"""A broker with a topic T of 4 queues and a consumer group g, and connections to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmq.client.admin import calls as admin
from rmq.model import GroupConfig
from rmq.testing import LocalBroker
from tests.broker.pair import Pair
from tests.broker.support import Peer

Connect = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        await broker.create_topic("T", 4)
        async with broker.client() as client:
            await admin.update_group(client, GroupConfig("g"))
        yield broker


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect(broker, "client id")`; closed at the end."""
    async with AsyncExitStack() as stack:

        async def connect(broker: LocalBroker, client_id: str = "c") -> Peer:
            peer = await Peer.connect(broker.address, client_id)
            stack.push_async_callback(peer.close)
            return peer

        yield connect


@pytest.fixture
async def peer(broker: LocalBroker, connect: Connect) -> Peer:
    return await connect(broker)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    await pair.begin()
    yield pair
    for number in sorted(pair.nodes, reverse=True):
        await pair.stop(number)
    await pair.nameserver.stop()
