"""A nameserver node: builds the parts, starts and stops them. No behaviour of its own."""

import asyncio
from collections.abc import Iterable
from typing import Any

from rmq import background
from rmq.clock import Clock, SystemClock
from rmq.config.live import LiveSettings
from rmq.config.settings import NodeSettings
from rmq.guard.audit import States, audited
from rmq.guard.making import guard_of, guarded
from rmq.guard.members import Members
from rmq.measures import Family, gauge
from rmq.names import address_text
from rmq.nameserver.access import SharedDirectory
from rmq.nameserver.handlers import RouteHandlers
from rmq.nameserver.kept import KeptHandlers
from rmq.net.codec.limits import MIB, Limits
from rmq.net.commands import DeleteSetting, DeleteTopicInNameserver, ShareAccess
from rmq.net.commands.configuration import UpdateNameserverConfig
from rmq.net.commands.registration import PutSetting
from rmq.net.commands.routes import AddWritePerm, RegisterTopic, WipeWritePerm
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.transport.network import network_of
from rmq.net.transport.server import Connection, Handler, Server
from rmq.routing.kept import ORDER_NAMESPACE
from rmq.routing.table import RouteTable

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # of a wildcard


class Nameserver:
    """Any number of nameservers may run; they do not know each other, and store nothing about brokers (N3). Raises StoreError if
    a file with administrators' entries is damaged."""

    def __init__(
        self,
        settings: NodeSettings,
        clock: Clock = SystemClock(),  # noqa: B008 (has no state)
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._routes = routes = RouteTable(settings.broker_expiry_ms / 1000)
        folder = settings.store_dir / "namesrv"
        self._kept = KeptHandlers(LiveSettings(settings, "namesrv/live.conf"), folder, routes, clock)
        self.directory = SharedDirectory()
        self._handlers = RouteHandlers(
            routes,
            Members(settings),
            self._order_conf,
            lambda: self._kept.table.all_of(ORDER_NAMESPACE),
            lambda: self._kept.live.settings.drop_unnamed_topics,
            self.directory.leads,
            clock,
        )
        guard = guard_of(settings, self.directory, clock)
        remoting = RemotingSettings(signatures=guard.logins if guard else None)
        own: dict[type[Any], Handler] = {**self._handlers.by_request(), **self._kept.by_request()}
        if guard is not None:  # else nobody asks who may what, and strangers would fill it
            own[ShareAccess] = self.directory.share
        handlers = guarded(guard, audited(own, _states(routes, self._kept)))
        self._server = Server(
            handlers, _limits(settings), remoting, clock, guard, on_close=self._closed, network=network_of(settings, clock)
        )
        self._scan: asyncio.Task[None] | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """ "host:port" to dial from this machine; known after `start`."""
        assert self._address, "the nameserver has not been started"
        return self._address

    # --- for exporters and health checks

    @property
    def labels(self) -> dict[str, str]:
        return {"node_type": "nameserver", "node_id": self._address}

    def metrics(self) -> Iterable[Family]:
        yield gauge("rmq_nameserver_connections", "open connections", len(self._server.connections))
        strangers = sum(connection.standing.unproven for connection in self._server.connections)
        yield gauge("rmq_unproven_connections", "connections that are served without a login (login_optional)", strangers)
        yield gauge("rmq_clock_seconds", "this machine's clock, Unix time, when it was asked", self._clock.wall_ms() / 1000)
        yield from self._server.metrics()
        yield from self._handlers.metrics()

    def waits_for(self) -> list[str]:
        return [] if self._address else ["this nameserver is starting"]

    def fatal(self) -> str:
        """A nameserver has nothing on disk that could break."""
        return ""

    async def start(self) -> None:
        """Listens and begins to look for silent brokers. Raises OSError."""
        host, port = await self._server.listen(self._settings.listen_host.strip("[]"), self._settings.namesrv_port)
        host = _LOOPBACK.get(host, host)
        self._address = address_text(host, port)
        self._scan = background.start(self._look_for_silent_brokers(), "nameserver-scan")

    async def stop(self) -> None:
        """Answers the open requests, then closes all connections."""
        await self._server.close(self._settings.stop_grace_ms / 1000)
        if self._scan is not None:
            self._scan.cancel()
            await asyncio.gather(self._scan, return_exceptions=True)

    def _order_conf(self, topic: str) -> str:
        return (self._kept.table.get(ORDER_NAMESPACE, topic) or "") if self._kept.live.settings.order_messages else ""

    def _closed(self, connection: Connection) -> None:
        self.directory.closed(connection.id)
        self._handlers.closed(connection)

    async def _look_for_silent_brokers(self) -> None:
        while True:
            await self._clock.sleep(self._kept.live.settings.scan_interval_ms / 1000)
            self._handlers.expire()
            self.directory.keep(self._routes.knows_group)


def _states(routes: RouteTable, kept: KeptHandlers) -> States:
    """What administrative acts change here."""
    return {
        PutSetting: lambda asked: kept.table.get(asked.namespace, asked.key),
        DeleteSetting: lambda asked: kept.table.get(asked.namespace, asked.key),
        UpdateNameserverConfig: lambda asked: kept.live.named(asked.text),
        RegisterTopic: lambda asked: routes.route(asked.topic).queues,
        DeleteTopicInNameserver: lambda asked: routes.route(asked.topic).queues,
        WipeWritePerm: lambda asked: routes.is_writable(asked.broker_name),
        AddWritePerm: lambda asked: routes.is_writable(asked.broker_name),
    }


def _limits(settings: NodeSettings) -> Limits:
    return Limits(
        max_frame_bytes=settings.max_frame_bytes,
        max_connections=settings.max_connections,
        max_connections_per_address=settings.max_connections_per_address,
        idle_seconds=settings.idle_timeout_ms / 1000,
        slow_seconds=settings.slow_request_ms / 1000,
        max_registration_bytes=8 * MIB,  # some 40 000 topics, twice as many in a compressed body
    )
