"""Commands that look again and again until they are interrupted."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import click

from rmq.commands.shared import options, output
from rmq.errors import RmqError

T = TypeVar("T")

count = click.option(
    "--rounds", "count", type=click.IntRange(min=1), metavar="NUMBER", help="End after so many rounds.  [default: at Ctrl-C]"
)


def interval(default_s: float | None, about: str) -> Callable[[options.F], options.F]:
    """-i: seconds between two rounds."""
    return click.option(
        "-i",
        "--interval",
        "interval_s",
        type=click.FloatRange(min=0.1),
        default=default_s,
        show_default=default_s is not None,
        metavar="SECONDS",
        help=about,
    )


again_if_told = interval(None, "Show it again and again, so long after each other.")


def again(show: Callable[[], T], interval_s: float | None, count: int | None = None) -> T:
    """Calls `show` so many times (None: for ever); once without an interval. Returns what the last one does. Raises the
    failure of the first round and of the last; one between is reported, and the next round comes."""
    done = 0
    while True:
        done += 1
        is_last = interval_s is None or done == count
        try:
            shown = show()
            if is_last:
                return shown
        except RmqError as error:
            if is_last or done == 1:
                raise
            click.echo(output.plain(f"rmq: this round failed: {error}"), err=True)
        time.sleep(interval_s or 0.0)


def show(columns: Mapping[str, str], rows: Sequence[Sequence[output.Cell]], form: str) -> None:
    """Prints one round: a table, or one JSON object per row and line; with the time in the first column."""
    now = datetime.now().astimezone()
    table = output.Table({"time": "Time", **columns}, [(now, *row) for row in rows])
    if form == "json":
        for row in output.as_json(table):
            output.show_json_line(row)
    else:
        output.show(table, form)
