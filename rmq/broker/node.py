"""A broker node: opens its store, then serves from it. No behaviour of its own beyond start and stop."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack

from rmq.broker.front.front import Front, free_port, resolve
from rmq.broker.serving import Serving
from rmq.broker.shared.facts import StartTime
from rmq.broker.shared.ports import Identity
from rmq.broker.startup.opening import open_store, store_settings, tell
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.log.files.disk import Disk, RealDisk
from rmq.log.records import record
from rmq.measures import Family, gauge
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.network import network_of


class Broker:
    """`await start()`, `await stop()`. `address` is "host:port" as clients are told, known after start.
    `disk`: where the store lies, the machine's own unless a test brings another. Raises InvalidArgument for TLS files that are
    wrong."""

    def __init__(self, settings: NodeSettings, clock: Clock, disk: Disk | None = None) -> None:
        self._settings = settings
        self._disk = disk or RealDisk()
        self._dialer = Dialer(clock, network_of(settings, clock), credentials=settings.own_credentials)
        self._start_time = StartTime(clock.wall_ms(), clock.monotonic())
        self._running = AsyncExitStack()
        self._front: Front | None = None
        self._serving: Serving | None = None
        self.address = ""

    async def start(self) -> None:
        """Open the store, serve, register. Raises StoreError or OSError: nothing is left running."""
        settings, dialer = self._settings, self._dialer
        host = await resolve(settings.store_host, settings.listen_host)
        port = settings.listen_port or free_port(settings.listen_host)
        async with AsyncExitStack() as running:
            front = self._front = Front(settings, host, port, dialer)
            self.address = front.address
            running.push_async_callback(front.close)  # again, if nothing goes wrong
            await front.open()
            us = Identity(settings.cluster_name, settings.broker_name, record.host_bytes(host, port), front.address)
            log_settings = store_settings(settings, us.host, self._disk)
            store = await open_store(self._disk, log_settings, settings, front, dialer)
            running.push_async_callback(asyncio.to_thread, store.close)
            tell(store.recovered, store.adopted is not None)
            self._serving = Serving(settings, store, self._disk, front, us, self._start_time, dialer)
            await self._serving.start(running)
            self._running = running.pop_all()

    async def stop(self) -> None:
        """Leave the routes, finish what is in work, flush, close: all of it, whatever fails on the way. Raises StoreError."""
        await self._running.aclose()

    @property
    def serving(self) -> Serving:
        """Its parts, for inspection; there are none before the store is open."""
        assert self._serving is not None, "the store is not open yet"
        return self._serving

    # --- for exporters and health checks, from before it is started

    @property
    def labels(self) -> dict[str, str]:
        """What tells its metrics from others', as RocketMQ's brokers say it."""
        settings = self._settings
        return {"cluster": settings.cluster_name, "node_type": "broker", "node_id": settings.broker_name}

    def metrics(self) -> Iterable[Family]:
        """Nothing but that before the store is open. See `Feature.metrics`."""
        yield gauge("rmq_serving", "1 if the node's store is open and it serves", float(self._serving is not None))
        if self._serving is not None:
            yield from self._serving.metrics()

    def waits_for(self) -> list[str]:
        """What it lacks before it can do its part; empty: it is ready."""
        if self._serving is None:
            return [self._front.why() if self._front is not None else "this node is starting"]
        return self._serving.waits_for()

    def fatal(self) -> str:
        """Why only a new start helps; "" if none is needed. In any thread."""
        return self._serving.store.log.broken if self._serving is not None else ""
