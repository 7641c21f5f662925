"""`rmq certs make`: a private authority, and certificates for nodes and clients."""

import re
from pathlib import Path

import click

from rmq.clock import SystemClock
from rmq.errors import InvalidArgument
from rmq.ops.certs import AUTHORITY, Authority

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@click.group()
def certs() -> None:
    """Make certificates of a private authority."""


@certs.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", default="node", show_default=True, help="Its files are NAME.pem and NAME.key.")
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Name or address that it stands for.  [default: this machine]"
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long it is good.")
def make(folder: Path, name: str, hosts: tuple[str, ...], days: int) -> None:
    """Make a certificate NAME in FOLDER, and its authority (ca.pem, ca.key) if none is there.

    A node's certificate names each host by which clients and other nodes dial it: names and IP addresses. A client's names the
    user or program. Made again it replaces the old one; nodes take it without a restart. Keep ca.key away from the nodes.
    """
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise InvalidArgument(f"--name {name!r}: letters, digits, - _ . (and not {AUTHORITY}: that is the authority's)")
    made = (folder / f"{AUTHORITY}.pem").exists() or (folder / f"{AUTHORITY}.key").exists()
    authority = Authority(folder, SystemClock()) if made else Authority.make(folder, SystemClock())
    files = authority.issue(name, hosts or ("localhost", "127.0.0.1", "::1"), days)
    click.echo(f"{files.cert} and {files.key}, good for {days} days, by {authority.files.cert}")
