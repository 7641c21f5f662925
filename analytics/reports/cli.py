"""`rmq report`: the command line of the report. `rmq.cli` loads it on demand, so nobody else pays for Spark."""

from datetime import UTC, datetime
from pathlib import Path

import click

from analytics.reports.report import NothingToReport, NotWhole, Resources, build_report
from analytics.reports.workdir import Busy
from analytics.reports.zones import find_zone, parse_days

QUIET, INCOMPLETE, BUSY = 6, 7, 8  # exit codes beside those of all commands (docs/commands.md)


@click.command()
@click.argument("stores", metavar="[STORE]...", nargs=-1)
@click.option("--store", "more", multiple=True, metavar="STORE", help="A store, an archive, or a pattern; may come again.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where page and rollup go.")
@click.option("--day", metavar="DAY", help="yesterday, today, YYYY-MM-DD, or FIRST..LAST; without it every day in the stores.")
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="Whose days and hours: Europe/Berlin.")
@click.option("--catch-up", is_flag=True, help="Also earlier days that are whole in the store and not in OUT yet.")
@click.option("--time-property", metavar="NAME", help="Count by the time in this message property (Unix ms or ISO).")
@click.option("--broker", metavar="NAME", help="Name of the broker, where the store does not say it (one store).")
@click.option(
    "--on-damage",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="Skip: count what is whole, and say how much is not.",
)
@click.option("--force", is_flag=True, help="Replace a day also when it was read from more of the log before.")
@click.option("--cores", type=click.IntRange(1), help="How many at a time; without it half of them.")
@click.option("--memory", metavar="SIZE", default="1g", show_default=True, help="Heap of Java; Python's workers come on top.")
@click.option("--temp", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Where temporary files go ($TMPDIR).")
@click.pass_context
def report(
    ctx: click.Context,
    stores: tuple[str, ...],
    more: tuple[str, ...],
    out: Path,
    day: str | None,
    timezone: str,
    catch_up: bool,
    time_property: str | None,
    broker: str | None,
    on_damage: str,
    force: bool,
    cores: int | None,
    memory: str,
    temp: Path | None,
) -> None:
    """Read the segment files of each STORE with Spark; write an HTML page and a Parquet rollup.

    Committed messages only; the brokers may be running. Copies of one group's log count once. Running a day again replaces that
    day of that broker, unless less of it is there now. Temporary files are removed at the end, also after Ctrl-C and SIGTERM.

    Exit codes beside those of all commands: 6 a quiet day (no business messages), 7 incomplete (not all messages of the DAY
    were there: retention took some, or it is not over), 8 another report is writing to OUT. 6 and 7 write what is known.
    """
    if not stores + more:
        raise click.UsageError("give at least one STORE")
    chosen = parse_days(day, datetime.now(UTC), find_zone(timezone)) if day is not None else None
    try:
        made = build_report(
            stores + more,
            out,
            chosen,
            time_property=time_property,
            force=force,
            broker=broker,
            on_damage=on_damage,
            timezone=timezone,
            catch_up=catch_up,
            resources=Resources(cores, memory, temp),
            progress=lambda line: click.echo(line, err=True),
        )
    except (NothingToReport, Busy) as error:
        click.echo(f"rmq: {error}", err=True)
        ctx.exit(BUSY if isinstance(error, Busy) else INCOMPLETE if isinstance(error, NotWhole) else QUIET)
    click.echo(f"{made.messages} messages, {made.bytes} bytes, {made.repeats} repeats")
    for page in (*made.caught_up, made.page):
        click.echo(f"page    {page}")
    click.echo(f"rollup  {made.rollups[0].parent.parent} ({len(made.rollups)} file(s))")
    for line in made.kept:
        click.echo(f"kept    {line}")
    if made.damaged_bytes:
        click.echo(f"damaged: {made.damaged_bytes} bytes passed over")
    for line in made.incomplete:
        click.echo(f"incomplete: {line}")
    if chosen and made.incomplete:
        ctx.exit(INCOMPLETE)
    if not made.messages:
        ctx.exit(QUIET)
