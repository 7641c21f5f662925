"""`rmq export` and `rmq changes`: the command lines. `rmq.cli` loads them on demand."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from analytics.landing.changes import Captured, capture, topics_from
from analytics.landing.export import export as run_export, schema_from
from analytics.spark.ending import ending_on_signals
from analytics.stores.paths import stores_at
from rmq.errors import InvalidArgument

_OUT = click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Read OUT/current.")
_DAMAGE = click.option(
    "--on-damage", type=click.Choice(["fail", "skip"]), default="fail", show_default=True, help="Skip: leave out what is damaged."
)
_FORM = click.option("-o", "--output", "form", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
_LOSS = click.option("--allow-gap", is_flag=True, help="Go on behind messages that retention took before they were read.")

_MISSING = click.option("--allow-missing", is_flag=True, help="Also topics that do not exist yet.")


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _tell_nothing(messages: int) -> None:
    if not messages:
        _tell("nothing is new: what a running broker stored within the last 10 s comes with a later run")


def _damaged(count: int) -> str:
    return f", {count} damaged bytes passed over" if count else ""


@click.command()
@click.argument("stores", metavar="STORE...", nargs=-1, required=True)
@_OUT
@click.option("--topics", metavar="T,T", help="Only these; a later run must say the same.")
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="TOPIC=COLUMNS|@FILE",
    help="Bodies of that topic are JSON: their fields become columns.",
)
@_DAMAGE
@_LOSS
@_MISSING
@_FORM
def export(
    stores: tuple[str, ...],
    out: Path,
    topics: str | None,
    schemas: tuple[str, ...],
    on_damage: str,
    allow_gap: bool,
    allow_missing: bool,
    form: str,
) -> None:
    """Write the messages of each STORE (or archive) that are not in OUT yet as Parquet, by topic and day.

    Each message is there once, however often a run was killed. The brokers may be running.
    """
    names = topics_from(topics) if topics is not None else None
    with ending_on_signals():
        done = run_export(
            stores_at({"path": json.dumps(stores)}),
            out,
            topics=names,
            schemas=[schema_from(each) for each in schemas],
            on_damage=on_damage,
            fail_on_loss=not allow_gap,
            allow_missing=allow_missing,
            tell=_tell,
        )
    _tell_nothing(done.messages)
    if form == "json":
        click.echo(json.dumps(done._asdict() | {"folder": str(done.folder)}, indent=2))
        return
    damaged = _damaged(done.damaged_bytes)
    click.echo(f"{done.messages} messages in {done.files} files, {done.bad} of them bad{damaged}; read {done.folder}")


@click.command()
@click.argument("store")
@_OUT
@click.option("--topics", required=True, metavar="T,T", help="To which Canal writes.")
@click.option("--delta", "as_delta", is_flag=True, help="As Delta tables besides (extra delta); each run must say the same.")
@_DAMAGE
@_LOSS
@_MISSING
@_FORM
def changes(
    store: str, out: Path, topics: str, as_delta: bool, on_damage: str, allow_gap: bool, allow_missing: bool, form: str
) -> None:
    """Make tables of the change events (Canal's flat messages in JSON) that are not in OUT yet: current state and history.

    Each event counts once, in the order of the log, however often a run was killed. The broker may be running.
    """
    found = stores_at({"path": json.dumps([store])})
    if len(found) > 1:
        raise InvalidArgument(f"{store} names {len(found)} stores, and changes have an order in one log only: give one")
    with ending_on_signals():
        done = capture(
            found[0],
            out,
            topics_from(topics),
            on_damage=on_damage,
            fail_on_loss=not allow_gap,
            allow_missing=allow_missing,
            as_delta=as_delta,
            tell=_tell,
        )
    _tell_nothing(done.messages)
    if form == "json":
        click.echo(json.dumps(done._asdict() | {"folder": str(done.folder)}, indent=2))
        return
    damaged = _damaged(done.damaged_bytes)
    click.echo(f"{done.messages} messages, {done.repeats} of them repeats, {done.bad} bad{damaged}; read {done.folder}")
    for line in tables_of(done):
        click.echo(line)


def tables_of(done: Captured) -> Iterator[str]:
    """A line for each changed table. Events name it, its columns and their types: what would steer a terminal is shown by its
    code."""
    for name, table in done.tables.items():
        notes = [f"{table['without_key']} changes without a key"] if table["without_key"] else []
        types = table["mysql_type"]
        notes += [f"{count} values of {column} do not fit {types[column]}" for column, count in table["unfit"].items()]
        line = f"{name}: {table['rows']} rows" + "".join(f"; {note}" for note in notes)
        yield line if line.isprintable() else repr(line)[1:-1]
