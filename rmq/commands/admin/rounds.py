"""Commands that look again and again until they are interrupted."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import click

from rmq.client import Client
from rmq.commands.shared import options, output
from rmq.errors import RmqError

count = click.option(
    "--rounds", "count", type=click.IntRange(min=1), metavar="NUMBER", help="End after so many rounds.  [default: at Ctrl-C]"
)


def interval(default_s: float) -> Callable[[options.F], options.F]:
    """-i: seconds between two rounds."""
    return click.option(
        "-i",
        "--interval",
        "interval_s",
        type=click.FloatRange(min=0.1),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help="From the end of a round to the next one.",
    )


def repeated(
    work: Callable[[Client], Awaitable[None]], interval_s: float, count: int | None
) -> Callable[[Client], Awaitable[None]]:
    """`work` so many times (None: for ever). Raises the failure of the first round and of the last; one between is reported."""

    async def run(client: Client) -> None:
        done = 0
        while True:
            done += 1
            try:
                await work(client)
            except RmqError as error:
                if done in (1, count):
                    raise
                click.echo(f"rmq: this round failed: {error}", err=True)
            if done == count:
                return
            await client.session.clock.sleep(interval_s)

    return run


def show(columns: Mapping[str, str], rows: Sequence[Sequence[output.Cell]], form: str) -> None:
    """Prints one round: a table, or one JSON object per row and line; with the time in the first column."""
    now = datetime.now().astimezone()
    table = output.Table({"time": "Time", **columns}, [(now, *row) for row in rows])
    if form == "json":
        for row in output.as_json(table):
            output.show_json_line(row)
    else:
        output.show(table, form)
