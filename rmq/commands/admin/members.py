"""`rmq admin` for connected clients: members of consumer groups, what they do, and producers."""

import time
from collections.abc import Sequence

import click

from rmq.client import Client
from rmq.client.admin import calls as ask, members
from rmq.client.admin.members import RunningInfo
from rmq.codes import version_name
from rmq.commands.shared import asking, exits, options, output
from rmq.commands.views.adminviews import moment
from rmq.model import ConnectionInfo

_group = click.option("-g", "--group", required=True, metavar="NAME")
_broker = click.option(
    "-b", "--broker", default="", metavar="NAME|HOST:PORT", help="Ask this broker.  [default: all that know it]"
)
_LONGEST_MS = 18  # digits
_CONNECTION = {"client_id": "ClientId", "address": "ClientAddr", "language": "Language", "version": "Version"}


@click.command("consumerConnection")
@options.namesrv
@_group
@_broker
@options.timeout
@options.output
def consumer_connection(namesrv: str, group: str, broker: str, timeout_s: float, form: str) -> None:
    """Show the connected members of a consumer group, and its subscriptions."""
    found = asking.run(namesrv, timeout_s, lambda client: ask.consumer_connection(client, group, broker))
    connections, wanted = _connections(found.connections), [(one.topic, one.expression) for one in found.subscriptions]
    notes: dict[str, tuple[str, output.Cell]] = {
        "consume_type": ("ConsumeType", found.consume_type),
        "message_model": ("MessageModel", found.message_model),
        "consume_from_where": ("ConsumeFromWhere", found.consume_from_where),
    }
    if form == "json":
        rest = {name: value for name, (_, value) in notes.items()}
        output.show_json({"connections": output.as_json(connections), "subscriptions": dict(wanted), **rest})
        return
    output.show(connections, form)
    click.echo()
    output.show(output.Table({"topic": "Topic", "expression": "SubExpression"}, wanted, notes), form)


def _connections(found: Sequence[ConnectionInfo]) -> output.Table:
    return output.Table(_CONNECTION, [(*one[:3], version_name(one.version)) for one in found])


@click.command("producerConnection")
@options.namesrv
@_group
@click.option("-t", "--topic", required=True, metavar="NAME")
@options.timeout
@options.output
def producer_connection(namesrv: str, group: str, topic: str, timeout_s: float, form: str) -> None:
    """Show the connected producers of a group, at the brokers of a topic."""
    output.show(_connections(asking.run(namesrv, timeout_s, lambda client: members.producers(client, group, topic))), form)


@click.command("consumerStatus")
@options.namesrv
@_group
@click.option("-i", "--client-id", default="", metavar="ID", help="Only this member, queue by queue.")
@click.option("-s", "--jstack", is_flag=True, help="With -i: show what its threads and tasks do.")
@_broker
@options.timeout
@options.output
def consumer_status(namesrv: str, group: str, client_id: str, jstack: bool, broker: str, timeout_s: float, form: str) -> int:
    """Show what the members of a consumer group report about themselves. Ends with 1 if something is wrong with one."""

    async def work(client: Client) -> tuple[dict[str, RunningInfo], dict[str, str]]:
        return await members.all_running(client, group, only=client_id, stacks=jstack, broker=broker)

    found, silent = asking.run(namesrv, timeout_s, work)
    wrong = [f"{name} does not say how it is: {why}" for name, why in silent.items()]
    wrong += members.troubles(found, time.time_ns() // 1_000_000)
    if client_id:
        for info in found.values():
            _show_one(info, form)
    else:
        output.show(output.Table(_STATUS, [_status(name, info) for name, info in found.items()]), form)
    for line in wrong:
        click.echo(f"rmq: {output.plain(line)}", err=True)
    return exits.FAILED if wrong else exits.OK


_STATUS = {
    "client_id": "ClientId", "version": "Version", "type": "ConsumeType", "ordered": "Orderly", "started": "Started",
    "queues": "Queues", "cached": "Cached", "pull_tps": "PullTPS", "ok_tps": "OKTPS", "failed_tps": "FailedTPS",
    "failed_hour": "FailedInHour",
}  # fmt: skip
_QUEUE = {
    "topic": "Topic", "broker": "Broker Name", "queue": "QID", "offset": "Consumer Offset", "cached": "Cached", "mib": "MiB",
    "locked": "Locked", "last_pull": "LastPull", "last_consume": "LastConsume",
}  # fmt: skip


def _status(name: str, info: RunningInfo) -> tuple[output.Cell, ...]:
    rates = info.rates.values()
    return (
        name,
        info.properties.get("PROP_CLIENT_VERSION", ""),
        info.properties.get("PROP_CONSUME_TYPE", ""),
        info.properties.get("PROP_CONSUMEORDERLY") == "true",
        _started(info),
        len(info.queues),
        sum(held.cached_msg_count for held in info.queues.values()),
        sum(each.pull_tps for each in rates),
        sum(each.consume_ok_tps for each in rates),
        sum(each.consume_failed_tps for each in rates),
        sum(each.consume_failed_msgs for each in rates),
    )


def _started(info: RunningInfo) -> output.Cell:
    text = info.properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
    return moment(int(text)) if text.isdecimal() and len(text) <= _LONGEST_MS else None  # of a client, which may say anything


def _show_one(info: RunningInfo, form: str) -> None:
    """Everything that one member reports."""
    rows = [
        (
            *queue,
            held.commit_offset,
            held.cached_msg_count,
            held.cached_msg_size_in_mi_b,
            held.locked,
            moment(held.last_pull_timestamp),
            moment(held.last_consume_timestamp),
        )
        for queue, held in sorted(info.queues.items())
    ]
    queues = output.Table(_QUEUE, rows)
    if form == "json":
        rates = {topic: each._asdict() for topic, each in info.rates.items()}
        subscriptions = [one._asdict() for one in info.subscriptions]
        whole = {"properties": info.properties, "subscriptions": subscriptions, "queues": output.as_json(queues)}
        output.show_json(whole | {"rates": rates, "stacks": info.stacks})
        return
    output.show(output.Table({"name": "Property", "value": "Value"}, sorted(info.properties.items())), form)
    click.echo()
    output.show(queues, form)
    click.echo()
    columns = {
        "topic": "Topic",
        **{name: name for name in ("pullRT", "pullTPS", "consumeRT", "okTPS", "failedTPS", "failedInHour")},
    }
    output.show(output.Table(columns, [(topic, *each) for topic, each in sorted(info.rates.items())]), form)
    if info.stacks:
        click.echo(f"\n{output.plain_text(info.stacks)}")


COMMANDS = (consumer_connection, producer_connection, consumer_status)
