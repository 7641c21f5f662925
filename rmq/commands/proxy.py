"""`rmq proxy`: a door for RocketMQ's gRPC clients (needs the extra `grpc`)."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import grpc

from rmq.client import Client
from rmq.clock import SystemClock
from rmq.commands.shared import asking, logs, options, threads
from rmq.config.security import is_loopback
from rmq.errors import InvalidArgument
from rmq.grpc.seen import Seen
from rmq.grpc.service import Listening, served
from rmq.grpc.visitors import ForEachUser, OneForAll
from rmq.measures import Family
from rmq.net.commands import SignedLogin
from rmq.net.transport import descriptors
from rmq.net.transport.tls import Contexts, Tls, listening as check_listening

THREADS = 32  # of gRPC's library, which without them ends the process, or stands still, and does not say why
DESCRIPTORS = 20_000  # each client takes one; the usual limit is 1024
log = logging.getLogger("rmq.proxy")


@click.command()
@options.namesrv
@options.address("--listen", "Address that clients dial.", "127.0.0.1:8081")
@click.option("--cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate (PEM), for clients that want TLS.")
@click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="Its key (PEM).")
@options.address("--metrics", "Address of the pages for monitoring: /metrics, /livez, /readyz.")
@click.option("--signed", is_flag=True, help="Each client is the user of the cluster for whom it signs; others are refused.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond loopback without --signed, where all clients are the proxy's own user, or without TLS.",
)
def proxy(
    namesrv: str,
    listen: tuple[str, int],
    cert: Path | None,
    key: Path | None,
    metrics: tuple[str, int] | None,
    signed: bool,
    insecure: bool,
) -> None:
    """Open a door for clients that speak RocketMQ 5's gRPC protocol only."""
    host, port = listen
    if (cert is None) != (key is None):
        raise click.UsageError("--cert and --key belong together")
    if not insecure and not is_loopback(host):
        _check_secure(host, signed, cert)
    if signed and asking.credentials() is not None:
        raise InvalidArgument("with --signed the proxy has no user of its own: unset RMQ_USER, or leave out --signed")
    logs.start("auto", "info")
    if (given := descriptors.raise_limit(DESCRIPTORS)) < DESCRIPTORS:
        about = "this proxy may have %d connections open: more clients get no answer. Allow it %d (LimitNOFILE, or ulimit -Hn)"
        log.warning(about, given, DESCRIPTORS)
    shown = Shown(cert, key) if cert and key else None
    listening = Listening(host, port, shown.credentials if shown else None)
    options.run_fast(_serve(namesrv, signed, listening, metrics, shown.metrics if shown else tuple))


def _check_secure(host: str, signed: bool, cert: Path | None) -> None:
    """Raises InvalidArgument."""
    beyond = f"{host} is no loopback address, and "
    if not signed:
        about = "this proxy asks nobody who it is: add --signed, so that each client is a user of the cluster, or --insecure"
        raise InvalidArgument(beyond + about)
    if cert is None:
        about = "whoever reads a signature on its way can use it for ever: add --cert and --key, or --insecure"
        raise InvalidArgument(beyond + about)


class Shown:
    """What the port shows: the certificate and its key, read again when the files change. Raises InvalidArgument when made."""

    def __init__(self, cert: Path, key: Path) -> None:
        self._files = Contexts(Tls(cert=str(cert), key=str(key)), _configuration, SystemClock(), shown=True)
        self.metrics = self._files.metrics
        self._last = self._files.now()
        self.credentials = grpc.dynamic_ssl_server_credentials(self._last, self._changed)

    def _changed(self) -> Any:
        """Called for each new connection, in a thread of gRPC's; None: it goes on with what it has."""
        now = self._files.now()
        if now is self._last:
            return None
        self._last = now
        return now


def _configuration(tls: Tls) -> grpc.ServerCertificateConfiguration:
    """Raises InvalidArgument: which file, what is wrong with it. gRPC's library would say nothing."""
    check_listening(tls)
    return grpc.ssl_server_certificate_configuration([(Path(tls.key).read_bytes(), Path(tls.cert).read_bytes())])


async def _serve(
    namesrv: str,
    signed: bool,
    listening: Listening,
    metrics: tuple[str, int] | None,
    certificate: Callable[[], Iterable[Family]],
) -> None:
    stop = options.told_to_stop()
    asyncio.get_running_loop().set_default_executor(threads.pool(THREADS))

    def of_user(newest: Callable[[], SignedLogin]) -> Client:
        return Client(namesrv, tls=options.tls_of_command(), user=newest)

    async with AsyncExitStack() as running:
        client = await running.enter_async_context(asking.client_of(namesrv))
        doors = ForEachUser(client, of_user) if signed else OneForAll(client)
        seen = Seen(client, doors, listening.address, certificate)
        port = await running.enter_async_context(served(doors, listening, seen))
        lines = [f"RocketMQ's gRPC clients are served at {listening._replace(port=port).address}"]
        if metrics is not None:
            from rmq.ops.exporter import pages

            await running.enter_async_context(seen.looking())
            address = await running.enter_async_context(pages([seen], SystemClock(), *metrics))
            lines.append(f"metrics and health: http://{address}/metrics")
        options.announce("\n".join(lines))
        await stop.wait()
