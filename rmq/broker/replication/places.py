"""Addresses of a group's nodes: what is allowed, and what a host name resolves to now."""

import asyncio
import ipaddress
import logging
from collections.abc import Iterable

from rmq.codes import ResponseCode
from rmq.config.kinds import WILDCARDS, address as read_address, identifier
from rmq.errors import Refusal
from rmq.net.transport.hosts import HOSTS
from rmq.net.transport.network import split_address

log = logging.getLogger("rmq.places")

RESOLVE_S = 2.0


async def resolve(address: str) -> frozenset[str]:
    """The IP addresses of the host in "host:port"; none if they are not known now."""
    try:
        async with asyncio.timeout(RESOLVE_S):
            host = split_address(address)[0]
            found = await HOSTS.find(host)
    except (OSError, TimeoutError, ValueError) as error:
        log.debug("the host of %s cannot be resolved: %s", address, error)
        return frozenset()
    return frozenset(ip.partition("%")[0] for _, ip in found)


def is_loopback(text: str) -> bool:
    return ipaddress.ip_address(text).is_loopback


def same_machine(came: ipaddress.IPv4Address | ipaddress.IPv6Address, resolved: frozenset[str]) -> bool:
    """A machine may answer from another of its loopback addresses than the one that was dialled."""
    mapped = getattr(came, "ipv4_mapped", None) or came
    return str(mapped) in resolved or (mapped.is_loopback and any(map(is_loopback, resolved)))


async def check_newcomer(node: str, address: str, others: Iterable[str]) -> None:
    """Checks an address that goes into the log, where every node reads it. `others`: addresses of the members. Raises Refusal."""
    try:
        identifier().parse(node)
    except (ValueError, TypeError):
        raise _wrong(f"{node[:40]!r} is no id of a node: {identifier().allowed}") from None
    check_address(node, address)
    found = await resolve(address)
    if not found:
        raise _wrong(f"the host of {address} has no address: look at its spelling and at the name service")
    known = [one for other in others for one in await resolve(other)]
    if any(map(is_loopback, found)) and not all(map(is_loopback, known)):
        raise _wrong(f"{address} is another machine at each node: say how the others reach node {node!r}")


def check_address(node: str, address: str) -> None:
    """Raises Refusal."""
    try:
        good = read_address(address).rpartition(":")[0] not in WILDCARDS
    except (ValueError, TypeError):
        good = False
    if not good:
        raise _wrong(f"{address[:80]!r} is not where node {node[:40]!r} can be reached: its host:port is expected")


def _wrong(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)
