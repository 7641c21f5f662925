"""A node's ports, from before its store is open until its clients have left.

A member of an elected group listens from the first moment and forwards to the leader what it cannot serve yet; other nodes
listen when they can say something.
"""

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from rmq.access.directory import Nobody
from rmq.broker.front.finder import Finder
from rmq.broker.front.forwarding import Forwarding
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import NoPeersPort, NotLeading, Refusal
from rmq.guard.making import guard_of, guarded
from rmq.log.records import fastpath
from rmq.names import address_text
from rmq.net import commands as c
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import VERSION
from rmq.net.commands import Answer
from rmq.net.commands.peers import ForwardedClient
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.transport.connection import Allow, Later, Screen, Take
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.hosts import is_ip
from rmq.net.transport.server import Call, Connection, Handler, Server

log = logging.getLogger("rmq.front")

INNER_PRODUCER = "CLIENT_INNER_PRODUCER"  # every consumer of RocketMQ's Java client has it, and it sends nothing by itself
VIP_BEFORE = 2  # the port of old clients' "VIP channel" is so much below the other one [MixAll.brokerVIPChannel]


class Front:
    """`address`: "host:port" as clients are told. `server` serves what it is given; `forwarding` is None for a node that
    stands alone. `await open()`, ... `await close()`."""

    def __init__(self, settings: NodeSettings, host: str, port: int, dialer: Dialer) -> None:
        self.address = address_text(host, port)
        self._settings = settings
        self._dialer = dialer
        self._finder: Finder | None = None
        self._listens = False
        self._ports = _ports(settings, self.address)
        self._vip = port - VIP_BEFORE
        grouped = settings.elected or bool(settings.broker_role)
        limits = Limits(
            max_frame_bytes=settings.max_frame_bytes,
            max_connections=settings.max_connections,
            max_connections_per_address=settings.max_connections_per_address,
            idle_seconds=settings.idle_timeout_ms / 1000,
            slow_seconds=settings.slow_request_ms / 1000,
        )
        self.guard = guard_of(settings, Nobody(), dialer.clock)
        remoting = RemotingSettings(
            fastpath,
            settings.cluster_name,
            settings.broker_name,
            (host, port),
            grouped,
            settings.trace_messages,
            self.guard.logins if self.guard else None,
        )
        self.server = Server({}, limits, remoting, dialer.clock, self.guard, self._closed, dialer.network)
        self._on_close: Callable[[Connection], None] | None = None
        node = settings.node_id if settings.elected else f"n{settings.broker_id}"
        self.forwarding = Forwarding(settings.broker_name, node, self._where, replace(dialer, limits=limits)) if grouped else None
        self._excuse: Callable[[], str] = _starting
        self.excuse()

    async def open(self) -> None:
        """A member of an elected group listens now, and looks for the leader. Raises OSError."""
        if self._settings.elected:
            others = self._settings.peer_addresses
            others.pop(self._settings.node_id)
            self._finder = Finder(others, self._dialer)
            await self.listen()

    async def listen(self) -> None:
        """Listens at all ports, if it does not yet. Raises OSError."""
        if self._listens:
            return
        self._listens = True
        host = self._settings.listen_host
        await self.server.listen(host, self._ports[0])
        for port in self._ports[1:]:
            try:
                await self.server.listen(host, port)
            except OSError as error:
                raise NoPeersPort(error, port) from error
        if self._settings.vip_port and self._vip > 0 and self._vip not in self._ports:
            try:
                await self.server.listen(host, self._vip)
            except OSError as error:
                why = os.strerror(error.errno) if error.errno in (errno.EADDRINUSE, errno.EACCES) else error
                log.warning("port %d, where old clients of RocketMQ look (VIP channel), is not served: %s", self._vip, why)

    def excuse(self, why: Callable[[], str] | None = None, served: Mapping[type[Any], Handler] | None = None) -> None:
        """Serves nothing but `served`; other requests go to the leader, or are refused until later. `why` not: it is starting."""
        self._excuse = why or _starting
        kinds: list[type[c.Request]] = [*c.CODES.keys() - {c.BeginLogin, c.FinishLogin, c.SignedLogin}, c.DraftedSend]
        handlers: dict[type[c.Request], Handler] = dict.fromkeys(kinds, self._refuse)
        greeting = hello(self._settings, self.address)
        heard = {c.Heartbeat: self._heard, c.UnregisterClient: self._heard}
        own: Mapping[type[Any], Handler] = {}
        answered = dict(served or {})
        if self.guard is not None:
            own = self.guard.logins.handlers
            answered |= {kind: self.guard.for_nodes(answered[kind]) for kind in answered.keys() - {c.Ping}}
        forward = self.forwarding.forward if self.forwarding else None
        self.server.serve({**handlers, **heard, c.Hello: greeting, **own, **answered}, forward=forward)

    def why(self) -> str:
        """Why it does not serve yet."""
        return self._excuse()

    def _refuse(self, request: c.Request, _call: Call) -> None:
        why = f"{self._excuse()}: try again later"
        if self.forwarding is None or type(request) is ForwardedClient:  # which is never forwarded itself
            raise Refusal(ResponseCode.SYSTEM_BUSY, why)
        raise NotLeading(why)

    def _heard(self, request: c.Request, call: Call) -> None:
        if self.forwarding is not None:
            self.forwarding.heard(call)
        self._refuse(request, call)

    async def serve(
        self,
        handlers: Mapping[type[Any], Handler],
        takes: Mapping[type[Any], Take],
        allow: Allow | None,
        on_close: Callable[[Connection], None],
        where: Callable[[], str] | None,
    ) -> None:
        """From now on the node serves. `where`: as of `Forwarding`. Raises OSError."""
        self._on_close = on_close
        forward = self.forwarding.forward if self.forwarding else None
        self.server.serve(guarded(self.guard, dict(handlers)), allow, forward, takes)
        if self.forwarding is not None and where is not None:
            self.forwarding.where = where
            self.forwarding.replay(self.server.connections)
        finder, self._finder = self._finder, None
        if finder is not None:
            await finder.stop()
        await self.listen()

    def screen_with(self, screen: Screen | None) -> None:
        """Requests pass this one, which asks the guard itself; None: they pass the guard, if there is one."""
        self.server.guard = screen or self.guard

    def left_leadership(self) -> None:
        if self.forwarding is not None:
            self.forwarding.left_leadership(self.server.connections)

    def leans(self, call: Call) -> None:
        """Notes that a client reads here, though this node does not lead."""
        if self.forwarding is not None and not call.connection.follows_hints:
            self.forwarding.lean(call.connection)

    def hearing(self, handler: Handler, leads: Callable[[], bool]) -> Handler:
        """Wraps a handler of heartbeats and goodbyes: the leader hears them too, or the next leader will."""
        forwarding = self.forwarding
        if forwarding is None:
            return handler

        def heard(request: c.Heartbeat | c.UnregisterClient, call: Call) -> Answer | Later | Awaitable[Answer | Later]:
            produces = isinstance(request, c.Heartbeat) and any(group != INNER_PRODUCER for group in request.producers)
            forwarding.heard(call, at_once=produces and not leads())
            return handler(request, call)

        return heard

    async def until_left(self) -> None:
        """After leadership was handed over: clients that cannot know it yet are forwarded for a while."""
        if self.forwarding is not None:
            await self.forwarding.until_left(self._settings.forward_at_stop_ms / 1000)

    async def leave(self, stays: Callable[[Connection], bool]) -> None:
        """Ends what clients have in work, and their connections. Nodes may stay: what is in work may wait for them."""
        await self.server.leave(self._settings.stop_grace_ms / 1000, stays)

    async def close(self) -> None:
        """Ends what is in work, then all connections."""
        await self.server.close(self._settings.stop_grace_ms / 1000)
        if self._finder is not None:
            await self._finder.stop()
        if self.forwarding is not None:
            await self.forwarding.stop()

    def _where(self) -> str:
        return self._finder.leader if self._finder is not None else ""

    def _closed(self, connection: Connection) -> None:
        if self.forwarding is not None:
            self.forwarding.closed(connection)
        if self._on_close is not None:
            self._on_close(connection)


def _starting() -> str:
    return "this node is starting"


def hello(settings: NodeSettings, address: str) -> Handler:
    """A handler for `Hello`, the first request on a connection: which node this is. `address`: where clients reach it."""

    def answer(request: c.Hello, _call: Call) -> c.HelloAnswer:
        return c.HelloAnswer(
            min(request.version, VERSION),
            settings.cluster_name,
            settings.broker_name,
            settings.broker_id,
            address,
            settings.max_message_bytes,
            settings.trace_messages,
        )

    return answer


def _ports(settings: NodeSettings, address: str) -> list[int]:
    """Where clients and, if that is another one, the nodes of the group reach this node."""
    grouped = settings.elected or settings.broker_role
    reached = (address, settings.own_peers_address(address)) if grouped else (address,)
    return [*dict.fromkeys(int(each.rpartition(":")[2]) for each in reached)]


async def resolve(host: str, listens: str) -> str:
    """The IP address of an advertised host: message ids carry addresses, not names. Of several it is one of IPv4, unless the node
    `listens` at an address of IPv6. Raises OSError."""
    if is_ip(host):
        return str(ipaddress.ip_address(host))
    listens = listens.strip("[]")
    only = socket.AF_INET if is_ip(listens) and ":" not in listens else socket.AF_UNSPEC
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, family=only, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        about = f"the advertised host {host} has no {'IPv4 ' if only else ''}address now ({error.strerror})"
        raise OSError(f"{about}: look at its spelling and at the name service, or give an address with --advertise") from error
    found.sort(key=lambda place: (place[0] == socket.AF_INET6) != (":" in listens))
    return str(found[0][4][0])


def free_port(host: str) -> int:
    """Chooses a port for a broker that was given none: its store needs the address before it can be opened."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
