"""How a command reaches a cluster: by a client, or by a connection of its own."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import click

from rmq.client import Client, ClientSettings
from rmq.client.shared.environment import credentials_of
from rmq.clock import SystemClock
from rmq.commands.shared import exits, options, output
from rmq.net.codec.limits import OF_CLIENTS
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.network import network_with
from rmq.scram import Credentials

T = TypeVar("T")


def dialer() -> Dialer:
    """Opens the connections of commands."""
    clock = SystemClock()
    return Dialer(clock, network_with(options.tls_of_command(), clock), credentials=credentials(), limits=OF_CLIENTS)


def credentials() -> Credentials | None:
    """Of the environment. Raises InvalidArgument."""
    return credentials_of(os.environ)


def client_of(namesrv: str, timeout_s: float | None = None) -> Client:
    """A client that is not open yet. `timeout_s`: for each answer; None: the client's default."""
    settings = ClientSettings() if timeout_s is None else ClientSettings(request_timeout_s=timeout_s, connect_timeout_s=timeout_s)
    who = credentials() or Credentials("", "")
    return Client(namesrv, settings=settings, tls=options.tls_of_command(), user=who.name, password=who.secret)


def run(namesrv: str, timeout_s: float, work: Callable[[Client], Awaitable[T]]) -> T:
    """The result of `work` with an open client. `timeout_s`: for each answer."""

    async def with_client() -> T:
        async with client_of(namesrv, timeout_s) as client:
            return await work(client)

    return options.run(with_client())


def incomplete(silent: Mapping[str, object]) -> int:
    """Says on stderr which nodes did not answer, and why; the exit code."""
    for node, why in silent.items():
        about = str(why) if node in str(why) else f"{node}: {why}"
        click.echo(output.plain(f"rmq: incomplete: {about}"), err=True)
    return exits.FAILED if silent else exits.OK
