"""`rmq certs make`: a private authority, and certificates for nodes and clients."""

import re
from pathlib import Path

import click

from rmq.clock import SystemClock
from rmq.errors import InvalidArgument
from rmq.ops.certs import AUTHORITY, Authority, general_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@click.group()
def certs() -> None:
    """Make certificates of a private authority."""


@certs.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", default="node", show_default=True, help="The files are NAME.pem and NAME.key.")
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Name or address that the certificate is for.  [default: this machine]"
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long it is valid.")
def make(folder: Path, name: str, hosts: tuple[str, ...], days: int) -> None:
    """Make a certificate NAME in FOLDER, and an authority (ca.pem, ca.key) if FOLDER has none.

    A node's certificate names every host name and IP address that clients and other nodes dial. A client's certificate names
    the user or program. A new certificate replaces the old one; nodes load it without a restart. Keep ca.key away from nodes.
    """
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise InvalidArgument(f"--name {name!r}: letters, digits, - _ . (and not {AUTHORITY}: that is the authority's)")
    for host in hosts:
        general_name(host)
    made = (folder / f"{AUTHORITY}.pem").exists() or (folder / f"{AUTHORITY}.key").exists()
    authority = Authority(folder, SystemClock()) if made else Authority.make(folder, SystemClock())
    if authority.days_left < days - 1:
        left = f"has {authority.days_left:.0f} days left" if authority.days_left > 1 else "has ended"
        about = "give fewer --days, or make another authority in another folder (docs/security.md: renew certificates)"
        raise InvalidArgument(f"{authority.files.cert} {left}, and nobody takes its certificates then: {about}")
    files = authority.issue(name, hosts or ("localhost", "127.0.0.1", "::1"), days)
    click.echo(f"{files.cert} and {files.key}, valid for {days} days, signed by {authority.files.cert}")
