"""Rebuilds the queues of a large log in a worker process, which takes seconds a GiB; meanwhile this node says so.

Clients are told to try again, or go to other brokers (it is not registered meanwhile); operators can look, and read
messages by their offset in the log.
"""

import asyncio
import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from rmq.broker.front.front import Front
from rmq.broker.startup.limitedserver import LimitedServer
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.log.index import query
from rmq.log.store import Store
from rmq.net import commands as c
from rmq.net.transport.server import Call

log = logging.getLogger("rmq.rebuild")


class Rebuilding:
    def __init__(self, store: Store, settings: NodeSettings, front: Front, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._limited_server = LimitedServer(store, settings, front, clock, self._excuse, self._facts)
        self._position = store.log.start

    async def run(self) -> None:
        """Returns when the queues are there. Raises StoreError, OSError; cancelled, it ends the worker."""
        await self._limited_server.open({c.ViewMessage: self._view})
        try:
            await self._work()
        finally:
            self._limited_server.close()

    async def _work(self) -> None:
        store = self._store
        log.warning("the queues are made anew from %d bytes of log; until then clients are told to wait", store.rebuild_to)
        settings = self._settings
        arguments = map(str, (settings.store_dir, settings.segment_bytes, *store.queue_file_entries, store.rebuild_to))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rmq.log.rebuild", *arguments, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                self._position = int(line)
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if code:
            log.error("the worker ended with %d; this process does it again", code)
        await asyncio.to_thread(store.finish_rebuild)

    @property
    def _percent(self) -> int:
        return 100 * (self._position - self._store.log.start) // max(self._store.rebuild_to - self._store.log.start, 1)

    def _excuse(self) -> str:
        return f"this broker makes its queues anew from its log, {self._percent} % done"

    def _facts(self) -> Iterable[tuple[str, object]]:
        yield "rebuildingQueues", f"{self._percent} %"

    async def _view(self, request: c.ViewMessage, _call: Call) -> c.MessageAnswer:
        found = await asyncio.to_thread(partial(query.record_at, self._store.log, request.offset, self._store.rebuild_to))
        if found is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {request.offset}")
        return c.MessageAnswer(found)
