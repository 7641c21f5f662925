"""`rmq consume`: a member of a consumer group that prints what it receives."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Literal

import click

from rmq.client import Client, Consumer, ReceivedMessage
from rmq.client.admin.membership import check_member
from rmq.commands.shared import asking, options, output
from rmq.commands.views import messageviews
from rmq.errors import BadBytes, RmqError

_BATCH = 32


def _start(_: click.Context, __: click.Parameter, value: str) -> Literal["first", "last"] | int:
    if value == "first":
        return "first"
    return "last" if value == "last" else options.moment(value)


@click.command()
@click.argument("topic")
@options.namesrv
@click.option(
    "-g",
    "--group",
    default="rmq-cli",
    show_default=True,
    help="Consumer group. It keeps the offsets: the next run continues there.",
)
@click.option("--tags", default="*", show_default=True, help="Only these tags: 'A || B'.")
@click.option("--sql", help="Only messages whose properties match this SQL92 expression: \"a > 3 AND b = 'x'\".")
@click.option(
    "--from",
    "start",
    default="first",
    show_default=True,
    callback=_start,
    metavar="first|last|TIME",
    help="Where a new group begins; TIME as 2026-11-21T09:00 or Unix ms. A young topic is read whole for `last`.",
)
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "--idle", "idle_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop when no message comes for this long."
)
@click.option("--broadcast", is_flag=True, help="Receive every message, whatever other members receive.")
@click.option("--ordered", is_flag=True, help="Receive each queue in order: a queue is locked for one member at a time.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "body", "json"]),
    default="text",
    show_default=True,
    help="One line with place and body, only the body, or one JSON object per line.",
)
def consume(
    topic: str,
    namesrv: str,
    group: str,
    tags: str,
    sql: str | None,
    start: Literal["first", "last"] | int,
    count: int | None,
    idle_s: float | None,
    broadcast: bool,
    ordered: bool,
    form: str,
) -> None:
    """Receive messages of TOPIC and print them until Ctrl-C.

    Printed messages are committed every 5 s and when the command ends: the same group does not get them again.
    With --idle the command fails if nothing came because it was refused, or because there is no such topic.
    """

    async def work() -> None:
        mode: Literal["cluster", "broadcast"] = "broadcast" if broadcast else "cluster"
        async with (
            asking.client_of(namesrv) as client,
            client.consumer(
                group, [topic] if sql else {topic: tags}, sql=sql, mode=mode, start=start, ordered=ordered
            ) as consumer,
        ):
            await _print_all(consumer, form, count, idle_s, _Doubts(client, group, topic, idle_s is not None))

    options.run(_until_signal(work()))


class _Doubts:
    """Looks why nothing comes: a consumer tries for ever what it is not allowed. `ends`: then the command has failed."""

    def __init__(self, client: Client, group: str, topic: str, ends: bool) -> None:
        self._client, self._group, self._topic, self._ends = client, group, topic, ends
        self._told = False

    async def look(self) -> None:
        try:
            await check_member(self._client, self._group, self._topic)
        except RmqError as error:
            if self._ends:
                raise
            if not self._told:
                click.echo(f"nothing comes for now: {error}", err=True)
            self._told = True


async def _print_all(consumer: Consumer, form: str, count: int | None, idle_s: float | None, doubts: _Doubts) -> None:
    left = count
    while left is None or left > 0:
        wanted = _BATCH if left is None else min(_BATCH, left)
        messages = await consumer.receive(max=wanted, timeout=5.0 if idle_s is None else idle_s)
        if not messages:
            await doubts.look()
            if idle_s is not None:
                return
        for message in messages:
            _show(message, form)
        sys.stdout.flush()
        await consumer.commit(sync=False)
        left = None if left is None else left - len(messages)


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Ends the work in order when SIGINT or SIGTERM comes: the offsets are committed."""
    task = asyncio.create_task(work)
    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends it as KeyboardInterrupt
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _show(message: ReceivedMessage, form: str) -> None:
    if form == "body":
        try:
            sys.stdout.buffer.write(message.body + b"\n")
        except BadBytes as error:  # one message does not stop the others
            click.echo(f"left out, {output.plain(message.message_id)}: {error}", err=True)
    elif form == "json":
        output.show_json_line(messageviews.as_json(message))
    else:
        click.echo(messageviews.line(message))
