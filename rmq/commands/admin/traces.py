"""`rmq admin queryMsgTraceById`: what clients that trace wrote about one message, with RocketMQ's output."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from rmq.client import Client
from rmq.client.admin import timelines
from rmq.client.admin.lookups import FOREVER_MS
from rmq.client.admin.timelines import Note
from rmq.client.shared.traceformat import TRACE_TOPIC, Pub, SubAfter
from rmq.codes import ResponseCode
from rmq.commands.shared import asking, exits, options, output
from rmq.errors import Refusal

_HEADS = {"#ProducerGroup": "#SendTime", "#ConsumerGroup": "#ConsumerTime"}
_Row = tuple[str, str, str, str, str, str]


@click.command("queryMsgTraceById")
@options.namesrv
@click.option("-i", "--msg-id", "message_id", required=True, metavar="ID", help="The unique id of the message.")
@click.option("-t", "--trace-topic", "topic", default=TRACE_TOPIC, show_default=True, metavar="NAME")
@click.option(
    "-b", "--begin-timestamp", "begin", callback=options.moment_option, metavar="TIME", help="Only notes at or after this time."
)
@click.option(
    "-e", "--end-timestamp", "end", callback=options.moment_option, metavar="TIME", help="Only notes at or before this time."
)
@click.option("-c", "--max-num", "limit", type=click.IntRange(1, 64), default=64, show_default=True, help="Messages of notes.")
@options.timeout
@options.output
def query_trace(
    namesrv: str, message_id: str, topic: str, begin: int | None, end: int | None, limit: int, timeout_s: float, form: str
) -> int:
    """Show who sent and who consumed a message, when, how long it took, and the result. Only clients that trace report this."""

    async def work(client: Client) -> timelines.Notes:
        until = FOREVER_MS if end is None else end
        return await timelines.notes_of(client, message_id, topic, begin or 0, until, limit, patience_s=timeout_s)

    found = asking.run(namesrv, timeout_s, work)
    if not found.notes:
        about = f"no trace of {message_id} in {topic}: do its clients trace (ClientSettings(trace=True), enableMsgTrace)?"
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, about)
    if form == "json":
        output.show_json([_as_json(note) for note in found.notes])
    else:
        for line in lines(found.notes):
            click.echo(line)
    if not found.complete:
        click.echo("rmq: incomplete: a broker does not answer, refuses, or still builds its index (ask again later)", err=True)
    return exits.OK if found.complete else exits.FAILED


def lines(notes: Sequence[Note]) -> Iterator[str]:
    """As mqadmin prints them: each send, then what each group did."""
    for note in notes:
        if isinstance(note.trace, Pub):
            yield from _table("#ProducerGroup", [_row("Pub", note)])
    groups: dict[str, list[_Row]] = {}
    for note in notes:
        if isinstance(note.trace, SubAfter):
            groups.setdefault(note.trace.group, []).append(_row("Sub", note))
    for rows in groups.values():
        yield from _table("#ConsumerGroup", rows)


def _table(group: str, rows: Sequence[_Row]) -> Iterator[str]:
    for row in (("#Type", group, "#ClientHost", _HEADS[group], "#CostTimes", "#Status"), *rows):
        yield "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}".format(*map(output.plain, row))  # anybody may write traces
    yield ""


def _row(kind: str, note: Note) -> _Row:
    trace = note.trace
    assert isinstance(trace, Pub | SubAfter)
    try:
        at = datetime.fromtimestamp(trace.time_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        at = str(trace.time_ms)
    return kind, trace.group, note.client_host, at, f"{trace.cost_ms}ms", "success" if trace.success else "failed"


def _as_json(note: Note) -> dict[str, object]:
    return {"type": type(note.trace).__name__, "client_host": note.client_host, **note.trace._asdict()}
