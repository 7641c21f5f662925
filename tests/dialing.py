"""Connections of tests to nodes."""

from rmq.clock import Clock, SystemClock
from rmq.net.codec.limits import Limits
from rmq.net.commands import Hello
from rmq.net.transport.channel import Channel, OnRequest
from rmq.net.transport.dialer import OPEN_TIMEOUT_SECONDS, Dialer
from rmq.net.transport.network import TCP, Network


async def dial(
    address: str,
    hello: Hello,
    on_request: OnRequest | None = None,
    *,
    limits: Limits | None = None,
    clock: Clock | None = None,
    network: Network = TCP,
    timeout_s: float = OPEN_TIMEOUT_SECONDS,
) -> Channel:
    """As `Dialer.open`, with the real clock and network unless others are given."""
    return await Dialer(clock or SystemClock(), network, limits or Limits()).open(address, hello, on_request, timeout_s)
