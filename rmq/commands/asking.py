"""A client for the time of one command."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rmq.client import Client, ClientSettings
from rmq.commands import options

T = TypeVar("T")


def run(namesrv: str, timeout_s: float, work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work` makes of it; `timeout_s` for each answer."""

    async def with_client() -> T:
        settings = ClientSettings(request_timeout_s=timeout_s, connect_timeout_s=timeout_s)
        async with Client(namesrv, settings=settings) as client:
            return await work(client)

    return options.run(with_client())
