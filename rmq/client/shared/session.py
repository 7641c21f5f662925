"""Shared by producers and consumers of one client: connections, routes, heartbeats, clock. Only values and their making."""

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmq import names
from rmq.client.shared.connections import Connections
from rmq.client.shared.heartbeats import Heartbeats
from rmq.client.shared.ids import UniqueIds
from rmq.client.shared.leaders import Leaders
from rmq.client.shared.observers import Observer, Observers
from rmq.client.shared.routes import Routes
from rmq.client.shared.settings import ClientSettings
from rmq.client.shared.traces import MessageTrace
from rmq.clock import Clock
from rmq.errors import InvalidArgument, Refusal
from rmq.log.records.record import host_bytes
from rmq.model import LIGHT_PREFIX
from rmq.net.codec.native import VERSION
from rmq.net.commands import Hello
from rmq.net.transport.dialer import Dialer
from rmq.routing.choose import Isolation
from rmq.routing.topics import not_sendable


@dataclass(frozen=True, slots=True)
class Session:
    """The shared parts. `born_host`: this host as records name their sender. `observer`: of what is sent and consumed; `trace`:
    the one that writes the message trace."""

    client_id: str
    settings: ClientSettings
    clock: Clock
    connections: Connections
    routes: Routes
    leaders: Leaders
    isolation: Isolation
    heartbeats: Heartbeats
    ids: UniqueIds
    born_host: bytes
    observer: Observer | None
    trace: MessageTrace | None


def open_session(nameservers: str | Sequence[str], instance: str, settings: ClientSettings, dialer: Dialer) -> Session:
    """The parts of a client, joined; nothing is connected yet. Raises InvalidArgument."""
    clock = dialer.clock
    if instance:
        _checked(names.check_instance_name, instance)
    host = local_ip()
    client_id = f"{host}@{instance or f'{os.getpid()}#{secrets.randbits(48)}'}"
    connections = Connections(Hello(VERSION, client_id), settings, dialer)
    routes = Routes(nameservers, connections, settings, clock)
    isolation = Isolation()

    def route_changed(topic: str) -> None:
        if (route := routes.known(topic)) is not None:
            isolation.route_seen(route.brokers)

    routes.on_change.append(route_changed)
    leaders = Leaders(connections, routes, clock)
    heartbeats = Heartbeats(client_id, connections, routes, settings, clock)
    born_host = host_bytes(host, 0)
    ids = UniqueIds(clock, born_host[:-4], os.getpid(), secrets.randbits(32))
    trace = MessageTrace(settings.trace_topic, clock, ids, routes.leader, connections.is_traced) if settings.trace else None
    observers = [*settings.observers, *((trace,) if trace is not None else ())]
    observer = Observers(observers) if observers else None
    return Session(
        client_id, settings, clock, connections, routes, leaders, isolation, heartbeats, ids, born_host, observer, trace
    )


def local_ip() -> str:
    """The address this host would use towards others; loopback if it has no network. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: nobody is there, only the route is looked up
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def checked_topic(name: str) -> str:
    """Raises InvalidArgument for an impossible topic name; the broker decides whether the topic may be made."""
    return _checked(names.check_known_topic, name)


def checked_target(name: str) -> str:
    """A topic to send to: the same, and none that only brokers write to, which they would refuse as if that could pass."""
    if not_sendable(checked_topic(name)):
        raise InvalidArgument(f"topic {name} is the brokers' own: choose another name")
    if name.startswith(LIGHT_PREFIX):
        raise InvalidArgument(f"{name} is a light queue: send to an ordinary topic, with its name among `light_queues`")
    return name


def checked_group(name: str) -> str:
    """Raises InvalidArgument with the rule a group name must keep."""
    return _checked(names.check_group_name, name)


def _checked(rule: Callable[[str], object], name: str) -> str:
    try:
        rule(name)
    except Refusal as refusal:
        raise InvalidArgument(refusal.remark) from None
    return name
