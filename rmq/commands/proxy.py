"""`rmq proxy`: a door for RocketMQ's gRPC clients (needs the extra `grpc`)."""

import ssl
from pathlib import Path

import click
import grpc

from rmq.client import Client
from rmq.commands.shared import asking, logs, options
from rmq.config.security import is_loopback
from rmq.errors import InvalidArgument
from rmq.grpc.door import Listening, served


@click.command()
@options.namesrv
@click.option(
    "--listen",
    callback=options.listening,
    default="127.0.0.1:8081",
    show_default=True,
    metavar="HOST:PORT",
    help="Address that clients dial.",
)
@click.option("--cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate (PEM), for clients that want TLS.")
@click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="Its key (PEM).")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond loopback: whoever reaches the proxy may do what the proxy's own user may.",
)
def proxy(namesrv: str, listen: tuple[str, int], cert: Path | None, key: Path | None, insecure: bool) -> None:
    """Open a door for clients that speak RocketMQ 5's gRPC protocol only."""
    host, port = listen
    if not insecure and not is_loopback(host):
        raise InvalidArgument(
            f"{host} is no loopback address, and a proxy asks nobody for a password: add --insecure if that is meant"
        )
    if (cert is None) != (key is None):
        raise click.UsageError("--cert and --key belong together")
    logs.start("auto", "info")
    listening = Listening(host, port, _credentials(cert, key) if cert and key else None)
    options.run_fast(_serve(asking.client_of(namesrv), listening))


def _credentials(cert: Path, key: Path) -> grpc.ServerCredentials:
    """Raises InvalidArgument, OSError."""
    shown = [(key.read_bytes(), cert.read_bytes())]
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)  # gRPC's library says nothing
    except ssl.SSLError as error:
        raise InvalidArgument(f"{cert} and {key} are no certificate and its key, in PEM: {error.reason or error}") from None
    return grpc.ssl_server_credentials(shown)


async def _serve(client: Client, listening: Listening) -> None:
    stop = options.told_to_stop()
    async with client, served(client, listening) as port:
        click.echo(f"RocketMQ's gRPC clients are served at {listening._replace(port=port).address}")
        await stop.wait()
