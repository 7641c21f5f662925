"""`rmq archive` copies the log files of a store to an archive; `rmq restore` makes a store from an archive."""

import socket
from pathlib import Path

import click

from rmq.clock import SystemClock
from rmq.commands.shared import exits, options
from rmq.commands.shared.output import show_json
from rmq.commands.views.adminviews import moment
from rmq.errors import InvalidArgument
from rmq.net.transport import descriptors
from rmq.net.transport.network import split_address
from rmq.ops import archive as shipping
from rmq.ops.manifest import Manifest
from rmq.ops.places import Folder, Remote, place_of
from rmq.ops.restore import Member, how_to_start, restore as make_store


@click.command()
@click.argument("places", metavar="[STORE] ARCHIVE", nargs=-1, required=True)
@click.option(
    "--verify", is_flag=True, help="Read all of ARCHIVE and compare checksums. Without STORE the command does nothing else."
)
@options.output
def archive(places: tuple[str, ...], verify: bool, form: str) -> int:
    """Ship the rolled log files of STORE to ARCHIVE: a directory, or a URI (s3://..., with the extra `spark`).

    The node may be running. Each file is checked, written, and read back. If a run is killed, the next one continues it.
    Each broker group needs an ARCHIVE of its own; all its nodes may ship to it. Exit code 5: damaged bytes.
    """
    if len(places) > 2 or (len(places) == 1 and not verify):
        raise click.UsageError("give STORE and ARCHIVE, or ARCHIVE with --verify")
    place = place_of(places[-1])
    shipped = 0
    left_bytes = None
    if len(places) == 2:
        done = shipping.ship(Path(places[0]), place, _tell)
        shipped, left_bytes = done.segments, done.left_bytes
    wrong = shipping.verify(place, _tell) if verify else []
    _show(shipping.need(place) if len(places) == 1 else done.manifest, shipped, left_bytes, wrong, form)
    return exits.DAMAGED if wrong else exits.OK


def _show(known: Manifest, shipped: int, left_bytes: int | None, wrong: list[str], form: str) -> None:
    if form == "json":
        show_json({
            "group": known.group, "shipped": shipped, "segments": len(known.segments), "from": known.start, "to": known.end,
            "lastStored": moment(known.last_ms), "leftBytes": left_bytes, "restorable": known.restorable, "wrong": wrong,
        })  # fmt: skip
        return
    for line in wrong:
        click.echo(f"DAMAGED: {line}")
    click.echo(
        f"{shipped} new log files; the archive of {known.group} holds {len(known.segments)}: bytes {known.start} to "
        f"{known.end}" + (f", stored up to {moment(known.last_ms)}" if known.segments else "")
    )
    if left_bytes is not None:
        click.echo(f"{left_bytes} committed bytes are in files that are still being written, and not in the archive")
    if known.segments and not known.restorable:
        click.echo("not restorable yet: a later run, one log file further, adds the tables (topics, groups, offsets)")


@click.command()
@click.argument("source", metavar="ARCHIVE")
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--node",
    default="n0",
    metavar="ID[-HOST:PORT]",
    show_default=True,
    help="The node that will run on DIR; in an elected group as in dLegerPeers.",
)
def restore(source: str, directory: Path, node: str) -> None:
    """Make the store directory DIR from ARCHIVE. A node that starts on DIR serves everything that was archived.

    What was not archived is lost: the newest messages, and what consumers did since. Start a node alone or a master on DIR.
    In an elected group restore one node this way and start it; then start the others with empty directories and run
    `rmq admin addPeer` for each. If the command is killed, run it again: it continues.
    """
    descriptors.raise_limit(descriptors.LOG_FILES)
    made = make_store(_source(source), directory, _member(node), SystemClock(), _tell)
    click.echo(f"{directory} holds the log of {made.group} up to {made.end}, the last message stored at {moment(made.last_ms)}")
    click.echo(f"what was stored or consumed after that is lost; {how_to_start(made, directory)}")


def _source(source: str) -> Folder | Remote:
    place = place_of(source)
    shipping.need(place)
    return place


def _member(node: str) -> Member:
    """Raises InvalidArgument."""
    node_id, _, address = node.partition("-")
    if not address:
        return Member(node_id)
    try:
        host, port = split_address(address)
    except ValueError:
        raise InvalidArgument(f"--node {node}: give ID-HOST:PORT as in dLegerPeers, or an ID") from None
    try:
        return Member(node_id, str(socket.getaddrinfo(host, None)[0][4][0]), port)
    except OSError as error:
        raise InvalidArgument(f"--node {node}: {host} is not known: {error}") from error


def _tell(line: str) -> None:
    click.echo(line, err=True)
