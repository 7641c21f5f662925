"""`rmq admin` for the offsets of a consumer group: sets it to others, after showing them, or to those of another group."""

import click

from rmq.client import Client
from rmq.client.admin import resets
from rmq.commands.shared import asking, options, output
from rmq.errors import InvalidArgument
from rmq.model import MessageQueue

_COLUMNS = {
    "topic": "Topic", "broker": "Broker Name", "queue": "QID", "first": "First", "end": "End", "now": "Now", "to": "To",
    "again": "Again", "skipped": "Skipped",
}  # fmt: skip


def _target(_: click.Context, __: click.Parameter, value: str) -> resets.Target | None:
    if not value:
        return None
    return value if value in ("first", "last") else options.moment(value)  # type: ignore[return-value]


@click.command("resetOffset")
@options.namesrv
@click.option("-g", "--group", required=True, metavar="NAME")
@click.option("-t", "--topic", required=True, metavar="NAME")
@click.option(
    "-s",
    "--to",
    "target",
    default="",
    callback=_target,
    metavar="first|last|TIME",
    help="first: the oldest message; last: behind the newest one; TIME: the first one stored then (ISO 8601 or Unix ms).",
)
@click.option("--offset", type=click.IntRange(min=0), help="This queue offset, instead of --to.")
@click.option("-b", "--broker", default="", metavar="NAME", help="With -q: the queue of this broker.")
@click.option("-q", "--queue", type=click.IntRange(min=0), help="Only this queue.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@options.timeout
@options.output
def reset_offset(
    namesrv: str,
    group: str,
    topic: str,
    target: resets.Target | None,
    offset: int | None,
    broker: str,
    queue: int | None,
    dry_run: bool,
    timeout_s: float,
    form: str,
) -> None:
    """Set a consumer group to other offsets of a topic. Connected members follow at once.

    The table shows for each queue the old and the new offset, and how many messages come again or are left out.
    """
    if (target is None) == (offset is None):
        raise click.UsageError("give either --to first|last|TIME or --offset NUMBER")
    if (queue is None) != (not broker):
        raise click.UsageError("one queue is -b BROKER and -q QUEUE")
    wanted: resets.Target = resets.Offset(offset) if offset is not None else target  # type: ignore[assignment]
    only = None if queue is None else MessageQueue(topic, broker, queue)

    async def work(client: Client) -> list[resets.Move]:
        moves = await resets.plan_reset(client, group, topic, wanted, only)
        if not moves:
            raise InvalidArgument(f"no queue of {topic} may be read: `rmq admin topicRoute -t {topic}`")
        if not dry_run:
            await resets.reset(client, group, moves)
        return moves

    moves = asking.run(namesrv, timeout_s, work)
    output.show(output.Table(_COLUMNS, [_row(move) for move in moves]), form)
    if form != "json":
        click.echo("nothing was changed" if dry_run else f"{group} goes on there")


def _row(move: resets.Move) -> tuple[output.Cell, ...]:
    topic, broker, queue_id = move.queue
    steps = move.to - move.now if move.now is not None else 0
    return (topic, broker, queue_id, move.first, move.end, move.now, move.to, max(-steps, 0), max(steps, 0))


@click.command("skipAccumulatedMessage")
@options.namesrv
@click.option("-g", "--group", required=True, metavar="NAME")
@click.option("-t", "--topic", required=True, metavar="NAME")
@options.route_tells
@click.option("-f", "--force", type=bool, hidden=True, expose_value=False, help="mqadmin has it; members follow always.")
@options.timeout
@options.output
@click.pass_context
def skip_accumulated(context: click.Context, /, **given: object) -> None:
    """Leave out all messages of a topic that wait for a group: resetOffset --to last."""
    context.invoke(reset_offset, **given, target="last")


@click.command("cloneGroupOffset")
@options.namesrv
@click.option("-s", "--source", required=True, metavar="NAME", help="The group to follow.")
@click.option("-d", "--group", required=True, metavar="NAME", help="The group that is set. It must exist.")
@click.option("-t", "--topic", required=True, metavar="NAME")
@click.option("--offline", is_flag=True, help="Also where the source's members do not subscribe to the topic.")
@options.timeout
@options.output
def clone_offset(namesrv: str, source: str, group: str, topic: str, offline: bool, timeout_s: float, form: str) -> None:
    """Set a consumer group to the offsets that another one has in a topic."""
    addresses = asking.run(namesrv, timeout_s, lambda client: resets.clone(client, source, group, topic, offline=offline))
    output.report(f"{group} goes on in {topic} where {source} is", addresses, form)


COMMANDS = (reset_offset, skip_accumulated, clone_offset)
