"""Shared by producers and consumers of one client: connections, routes, heartbeats, clock. Only values and their making."""

import contextlib
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
from rmq.client.shared.nameservers import Nameservers, parse_addresses
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
from rmq.net.transport.hosts import is_ip
from rmq.routing.choose import Isolation
from rmq.routing.topics import not_sendable

_LOOPBACK = "127.0.0.1"
_HERE = (_LOOPBACK, "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Session:
    """The shared parts. `born_host`: this host as records name their sender. `observer`: of what is sent and consumed; `trace`:
    the one that writes the message trace."""

    client_id: str
    settings: ClientSettings
    clock: Clock
    connections: Connections
    nameservers: Nameservers
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
    addresses = parse_addresses(nameservers)
    places = [address.rpartition(":")[0].strip("[]") for address in addresses]
    host = local_ip(places)
    client_id = f"{own_name(host, places)}@{instance or f'{os.getpid()}#{secrets.randbits(48)}'}"
    connections = Connections(Hello(VERSION, client_id), settings, dialer)
    asked = Nameservers(addresses, settings.zone, connections, clock)
    routes = Routes(asked, connections, settings, clock)
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
        client_id, settings, clock, connections, asked, routes, leaders, isolation, heartbeats, ids, born_host, observer, trace
    )


def local_ip(nameservers: Sequence[str] = ()) -> str:
    """The IPv4 address this host would use towards others, or towards these hosts where it has no way to all others; loopback
    if it has none. Sends nothing."""
    return _address_towards(socket.AF_INET, ("192.0.2.1", *nameservers)) or _LOOPBACK


def own_name(ip: str, nameservers: Sequence[str]) -> str:
    """What no other host is called: clients of one instance name are one member of a group if their hosts have one name, too.
    `ip`: as `local_ip` says. An IPv6 address is in brackets [RemotingUtil.normalizeHostAddress]."""
    if ip != _LOOPBACK or all(host in _HERE for host in nameservers):
        return ip
    address = _address_towards(socket.AF_INET6, ("2001:db8::1", *nameservers))
    return f"[{address}]" if address else socket.gethostname()


def _address_towards(family: socket.AddressFamily, hosts: Sequence[str]) -> str:
    """Of the first host to which there is a way: only that is looked up; the first ones above are documentation addresses, where
    nobody is. Names are not looked up, which may take long."""
    for host in hosts:
        if is_ip(host) and (":" in host) == (family == socket.AF_INET6):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, 9))
                return str(probe.getsockname()[0])
    return ""


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
