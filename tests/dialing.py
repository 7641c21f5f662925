"""Connections of tests to nodes."""

from rmq.clock import Clock, SystemClock
from rmq.net.codec.limits import Limits
from rmq.net.commands import Hello
from rmq.net.transport.channel import Channel, OnRequest
from rmq.net.transport.dialer import OPEN_TIMEOUT_SECONDS, Dialer
from rmq.net.transport.network import TCP, Network, network_with
from rmq.net.transport.tls import Tls
from rmq.scram import Credentials


async def dial(
    address: str,
    hello: Hello,
    on_request: OnRequest | None = None,
    *,
    limits: Limits | None = None,
    clock: Clock | None = None,
    network: Network = TCP,
    timeout_s: float = OPEN_TIMEOUT_SECONDS,
    tls: Tls | None = None,
    credentials: Credentials | None = None,
) -> Channel:
    """As `Dialer.open`, with the real clock and network unless others are given."""
    clock = clock or SystemClock()
    network = network if tls is None else network_with(tls, clock)
    return await Dialer(clock, network, limits or Limits(), credentials).open(address, hello, on_request, timeout_s)
