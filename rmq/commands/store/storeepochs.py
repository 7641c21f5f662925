"""`rmq store epochs`: shows the epochs of a store, and lowers those that are too large ever to be passed."""

from collections.abc import Collection
from itertools import count
from pathlib import Path

import click

from rmq.commands.shared import exits
from rmq.errors import InvalidArgument, StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.repair import lowering
from rmq.raft.trust import MAX_LEAP

_SHOWN = 10


def _epochs(_context: click.Context, _parameter: click.Parameter, text: str | None) -> list[int]:
    try:
        return sorted({int(part) for part in (text or "").split(",") if part.strip()})
    except ValueError as error:
        raise click.BadParameter("give epochs separated by commas") from error


@click.command("epochs")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--lower", "wild", callback=_epochs, metavar="N,N", help="Epochs to lower: all that are out of reach on any node.")
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="The lowered epochs become N+1, N+2 and so on.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
def epochs(directory: Path, wild: list[int], after: int | None, yes: bool) -> int:
    """Show the epochs of a store. With --lower and --after replace invented epochs by small ones.

    A group cannot elect a leader if its nodes took over an epoch near the largest possible number. Then stop all its nodes
    and show the epochs of each. Lower them on every node with the same --lower (all epochs that are out of reach on any
    node) and the same --after (the largest "in reach" of all nodes). No message is lost.
    """
    disk, root = RealDisk(), str(directory)
    lock = disk.lock(f"{root}/lock")
    try:
        if lowering.finish(disk, root):
            click.echo("an interrupted lowering is now complete", err=True)
        found = lowering.look(disk, root)
        if not wild or after is None:
            _show(found)
            return exits.OK
        new = _new_epochs(found, wild, after)
        plan = ", ".join(f"{old} becomes {instead}" for old, instead in new.items())
        if not yes and not click.confirm(f"{plan}. Are all nodes of {found.group} stopped, and do all get the same?", err=True):
            raise StoreError("nothing was done")
        changed = lowering.lower(disk, root, new)
    finally:
        disk.unlock(lock)
    click.echo(f"{plan}; {changed} records of the log named them. Start the node when all nodes of the group are done")
    return exits.OK


def _show(found: lowering.Epochs) -> None:
    wild = found.out_of_reach(MAX_LEAP)
    leaders = " ".join(map(str, found.of_log[-_SHOWN:])) or "none"
    more = f"(the newest {_SHOWN} of {len(found.of_log)}) " if len(found.of_log) > _SHOWN else ""
    click.echo(f"node {found.node} of {found.group}: epoch {found.vote}; leaders of its log {more}{leaders}")
    if wild:
        click.echo(f"out of reach: {','.join(map(str, wild))}; in reach: {_newest_but(found, wild)}")
    else:
        click.echo(f"all are in reach: {_newest_but(found, ())}")


def _newest_but(found: lowering.Epochs, wild: Collection[int]) -> int:
    return max((one for one in (*found.of_log, found.vote) if one not in wild), default=0)


def _new_epochs(found: lowering.Epochs, wild: list[int], after: int) -> dict[int, int]:
    """Raises InvalidArgument."""
    missing = [one for one in found.out_of_reach(MAX_LEAP) if one not in wild]
    if missing:
        raise InvalidArgument(f"--lower lacks {missing}, which is out of reach here; every node must get the whole list")
    if wild[0] < lowering.WIDE or wild[0] <= after + len(wild):
        raise InvalidArgument(f"--lower {wild[0]}: only epochs that nobody can have held, far above --after {after}")
    kept = _newest_but(found, wild)
    if kept > after:
        raise InvalidArgument(f"--after {after}: this store has epoch {kept} already; take the largest of all nodes")
    return dict(zip(wild, count(after + 1), strict=False))
