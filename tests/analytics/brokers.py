"""A broker beside a test that waits for Spark: in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from rmq.client import Client
from rmq.testing import LocalBroker

_T = TypeVar("_T")
PATIENCE_S = 300  # with a machine that has ten times the usual to do


class Running:
    """A `LocalBroker` that runs. `run` and `ask` wait for what is done in its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, local: LocalBroker) -> None:
        self._loop = loop
        self._local = local

    @property
    def nameserver(self) -> str:
        return self._local.nameserver

    def begin(self, work: Callable[[LocalBroker], Coroutine[Any, Any, _T]]) -> "Future[_T]":
        return asyncio.run_coroutine_threadsafe(work(self._local), self._loop)

    def run(self, work: Callable[[LocalBroker], Coroutine[Any, Any, _T]]) -> _T:
        return self.begin(work).result(PATIENCE_S)

    def ask(self, work: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
        """With a client of it."""

        async def asked(local: LocalBroker) -> _T:
            async with local.client() as client:
                return await work(client)

        return self.run(asked)


@contextmanager
def running_broker(**settings: Any) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="broker of a test")
    thread.start()
    local = LocalBroker(**settings)
    try:
        asyncio.run_coroutine_threadsafe(local.__aenter__(), loop).result(PATIENCE_S)
        yield Running(loop, local)
    finally:
        asyncio.run_coroutine_threadsafe(local.close(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()
