"""The pages of a process for monitoring, over HTTP: `/metrics`, `/livez`, `/readyz`, and `/stalls` (what holds the loop up).

A thread with an event loop of its own answers, so that the pages can tell that the node's loop is stuck. State that only the
node's loop may read is read there, in slices.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, TypeVar

import orjson

from rmq.clock import Clock
from rmq.measures import gauge
from rmq.ops import scrape
from rmq.ops.metrics import Bounded, Gathered, Part, gather, spelled
from rmq.ops.scrape import Reply
from rmq.ops.stalls import StallWatch
from rmq.ops.watch import STUCK_S, LoopWatch

READY_S: Final = 2.0  # how long the node's loop has to say what it waits for
T = TypeVar("T")


class Exporter:
    """`parts`: what this process runs; parts may be added while pages are served."""

    def __init__(self, parts: Sequence[Part], watch: LoopWatch) -> None:
        self._parts = parts
        self._watch = watch
        self._node = asyncio.get_running_loop()
        self._bounded = Bounded()
        self._one_by_one = asyncio.Lock()
        self._stalls, self._one_watch = StallWatch(watch.collected_seconds), asyncio.Lock()
        self._took_s = 0.0

    @contextlib.asynccontextmanager
    async def served(self, host: str, port: int) -> AsyncIterator[str]:
        """Listens while the context is open; gives "host:port". Raises OSError if it cannot listen."""
        thread = _Thread()
        pages = {"/": self.metrics, "/metrics": self.metrics, "/livez": self.alive, "/readyz": self.ready, "/stalls": self.stalls}
        try:
            serving = scrape.served(host, port, pages)
            address = await thread.run(serving.__aenter__())
            try:
                yield address
            finally:
                await thread.run(serving.__aexit__(None, None, None))
        finally:
            await asyncio.to_thread(thread.end)

    # --- pages: on the thread's loop ----------------------------------------------------------------------------------

    async def alive(self, _accept: str) -> Reply:
        """Fails only if a restart of this process helps, never because another process is away."""
        silent_s = self._watch.silent_seconds()
        troubles = [f"the event loop has not turned for {silent_s:.0f} s"] if silent_s > STUCK_S else []
        troubles += [trouble for part in self._parts if (trouble := part.fatal())]
        return _judged(troubles, "alive")

    async def ready(self, _accept: str) -> Reply:
        """Fails while a part waits for something, and names it."""
        try:
            async with asyncio.timeout(READY_S):
                return _judged(await self._on_node(self._waits_for()), "ready")
        except TimeoutError:
            return _judged([f"the event loop has not answered for {READY_S:g} s"], "")

    async def metrics(self, accept: str) -> Reply:
        """Makes one page at a time: frequent requests wait."""
        async with self._one_by_one:
            began = time.perf_counter()
            gathered = await self._on_node(self._gather())
            kind, text = await asyncio.to_thread(spelled, gathered, self._bounded, accept)
            self._took_s = time.perf_counter() - began
            return Reply(HTTPStatus.OK, text, kind)

    async def stalls(self, _accept: str) -> Reply:
        """A JSON object a line for each time that the loop was held up in the next seconds. One visitor at a time."""
        async with self._one_watch:
            found = await self._stalls.watch()
        return Reply(HTTPStatus.OK, b"".join(orjson.dumps(one._asdict()) + b"\n" for one in found), "application/x-ndjson")

    # --- on the node's loop -------------------------------------------------------------------------------------------

    async def _waits_for(self) -> list[str]:
        return [why for part in self._parts for why in part.waits_for()]

    async def _gather(self) -> list[Gathered]:
        own = [*self._watch.metrics(), gauge("rmq_last_scrape_seconds", "how long the page before this one took", self._took_s)]
        return await gather([({}, own), *((part.labels, part.metrics()) for part in self._parts)], self._bounded)

    async def _on_node(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._node))


def _judged(troubles: Sequence[str], well: str) -> Reply:
    status = HTTPStatus.SERVICE_UNAVAILABLE if troubles else HTTPStatus.OK
    return Reply(status, "".join(f"{line}\n" for line in troubles or [well]).encode())


class _Thread:
    """An event loop in a thread. It has one more thread for blocking work, so scrapes use no more than that."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(1, "rmq-exporter"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="rmq-exporter", daemon=True)
        self._thread.start()

    async def run(self, work: Awaitable[T]) -> T:
        """Runs the work in the thread; raises what it raises."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(work), self._loop))

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._loop.shutdown_default_executor(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _awaited(work: Awaitable[T]) -> T:
    return await work


@contextlib.asynccontextmanager
async def pages(parts: Sequence[Part], clock: Clock, host: str, port: int) -> AsyncIterator[str]:
    """The pages of a process, whose loop is watched meanwhile; gives "host:port". Raises as `Exporter.served`."""
    watch = LoopWatch(clock)
    async with watch.running(), Exporter(parts, watch).served(host, port) as address:
        yield address
