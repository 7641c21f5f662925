"""The one way to open a connection: with this process's clock and network, within bounds on what the other side sends.

Whoever starts a process, or a client, makes a `Dialer` and hands it down. Nothing else opens sockets (`network` and `hosts` do it
for `Dialer`, and for servers).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rmq.clock import Clock
from rmq.errors import Unknown, Unreachable
from rmq.net.codec.limits import Limits
from rmq.net.commands import Hello
from rmq.net.transport.channel import Channel, Login, OnRequest
from rmq.net.transport.network import TCP, Network, checked_address, split_address
from rmq.net.transport.tls import explain

P = TypeVar("P", bound=asyncio.BaseProtocol)
OPEN_TIMEOUT_SECONDS = 3.0  # [NettyClientConfig.connectTimeoutMillis]


@dataclass(frozen=True, slots=True)
class Dialer:
    """`limits`: what the other side may send; `dataclasses.replace` makes a dialer with others. `credentials`: each connection
    logs in with them, where the other side wants to know; or what gives the newest signature of a proxy's client."""

    clock: Clock
    network: Network = TCP
    limits: Limits = Limits()  # noqa: RUF009 (a constant)
    credentials: Login | None = None

    async def open(
        self, address: str, hello: Hello, on_request: OnRequest | None = None, timeout_s: float = OPEN_TIMEOUT_SECONDS
    ) -> Channel:
        """Connects to "host:port" and says Hello. Raises Unreachable, Refusal, or InvalidArgument for a bad address."""
        checked_address(address)
        channel = Channel(address, self.limits, on_request, self.clock)
        try:
            async with asyncio.timeout(timeout_s):
                await self.connect(lambda: channel, address)
            await channel.greet(hello, timeout_s)
            if self.credentials is not None:
                await channel.login(self.credentials, timeout_s)
        except (OSError, TimeoutError, Unknown) as error:
            channel.discard()
            why = _why(error.with_traceback(None), channel)  # its frames know it, and the connection: a circle
            raise Unreachable(f"{address} cannot be reached: {why}") from None
        except BaseException:
            channel.discard()
            raise
        return channel

    async def connect(self, make_protocol: Callable[[], P], address: str) -> P:
        """A protocol of one's own, connected to "host:port". Raises OSError, ValueError for a bad address."""
        return await self.network.connect(make_protocol, *split_address(address))


def _why(error: OSError | TimeoutError | Unknown, channel: Channel) -> str:
    if channel.closed.is_set():
        return "it ended the connection; maybe it wants TLS, or a certificate that it knows, or it is a node of Apache RocketMQ"
    return "no answer in time" if isinstance(error, TimeoutError | Unknown) else explain(error)
