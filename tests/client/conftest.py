"""A scripted broker, and clients of it that are closed at the end."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmq.client import Client, ClientSettings
from rmq.clock import Clock
from tests.client.scripted import Broker

MakeClient = Callable[..., Client]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = await Broker(topics={"T": 2}).start()
    yield broker
    await broker.stop()


@pytest.fixture
async def make_client(broker: Broker, tmp_path: Path) -> AsyncIterator[MakeClient]:
    """`make_client(clock=..., **settings)`: a started client of the broker (or of `nameservers`)."""
    async with AsyncExitStack() as stack:

        def make(nameservers: str = "", *, clock: Clock | None = None, instance: str = "", **settings: float) -> Client:
            chosen = ClientSettings(offsets_directory=tmp_path, **{"hand_over_s": 0.05, **settings})  # type: ignore[arg-type]
            client = Client(nameservers or broker.address, instance=instance, settings=chosen, clock=clock)
            client.start()
            stack.push_async_callback(client.close)
            return client

        yield make
