"""`rmq report`: the command line of the report. `rmq.cli` loads it on demand, so nobody else pays for Spark."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from analytics.report import build_report, parse_day


@click.command()
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where page and rollup go.")
@click.option("--day", help="Day in UTC, YYYY-MM-DD; without it every day in the store.")
@click.option("--time-property", metavar="NAME", help="Count by the time in this message property (Unix ms or ISO).")
@click.option("--broker", metavar="NAME", help="Name of the broker, where the store does not say it (one store).")
@click.option("--on-damage", type=click.Choice(["fail", "skip"]), default="fail", show_default=True,
              help="Skip: count what is whole, and say how much is not.")
@click.option("--force", is_flag=True, help="Replace a day also when it was read from more of the log before.")
def report(
    stores: tuple[Path, ...], out: Path, day: str | None, time_property: str | None, broker: str | None,
    on_damage: str, force: bool,
) -> None:
    """Read the segment files of each STORE with Spark; write an HTML page and a Parquet rollup.

    Committed messages only; the brokers may be running. Running a day again replaces that day of that broker, unless less of it
    is there now.
    """
    with _ending_on_interrupt():
        made = build_report(
            stores, out, parse_day(day) if day else None, time_property=time_property, force=force, broker=broker,
            on_damage=on_damage,            progress=lambda line: click.echo(line, err=True),
        )  # fmt: skip
    click.echo(f"{made.messages} messages, {made.bytes} bytes, {made.repeats} repeats")
    click.echo(f"page    {made.page}")
    click.echo(f"rollup  {made.rollups[0].parent.parent} ({len(made.rollups)} file(s))")
    for line in made.kept:
        click.echo(f"kept    {line}")
    for line in made.incomplete:
        click.echo(f"incomplete: {line}")


@contextmanager
def _ending_on_interrupt() -> Iterator[None]:
    """Ctrl-C ends at once, because half a call to Java prints tracebacks. Java sees its stdin close and ends too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
