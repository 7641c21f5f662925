"""`rmq admin` for what operators do with topics now and then, and for what one broker knows of all of them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import click

from rmq.client import Client
from rmq.client.admin import calls as ask, one, topics
from rmq.codes import version_name
from rmq.commands.shared import asking, options, output
from rmq.commands.views.adminviews import lag, moment

T = TypeVar("T")
_topic = click.option("-t", "--topic", required=True, metavar="NAME")
_broker_name = click.option("-b", "--broker", required=True, metavar="NAME")
_address = click.option("-b", "--broker", required=True, metavar="NAME|HOST:PORT")


@click.command("topicClusterList")
@options.namesrv
@_topic
@options.timeout
@options.output
def topic_cluster_list(namesrv: str, topic: str, timeout_s: float, form: str) -> None:
    """Show the clusters that have a topic."""
    found = asking.run(namesrv, timeout_s, lambda client: topics.clusters_of(client, topic))
    output.show(output.Table({"cluster": "Cluster Name"}, [(cluster,) for cluster in found]), form)


@click.command("updateTopicPerm")
@options.namesrv
@_topic
@options.place
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), required=True, help="2 write, 4 read, 6 both.")
@options.timeout
@options.output
def update_topic_perm(namesrv: str, topic: str, cluster: str, broker: str, perm: str, timeout_s: float, form: str) -> None:
    """Say whether a topic may be written and read; nothing else of it changes."""
    options.check_place(cluster, broker)
    change = asking.run(
        namesrv, timeout_s, lambda client: topics.update_perm(client, topic, int(perm), cluster=cluster, broker=broker)
    )
    rows = [(address, before, int(perm)) for address, before in change.items()]
    output.show(output.Table({"address": "Broker", "before": "Before", "perm": "Perm"}, rows), form)


@click.command("cleanUnusedTopic")
@options.namesrv
@options.place
@options.timeout
@options.output
def clean_unused_topic(namesrv: str, cluster: str, broker: str, timeout_s: float, form: str) -> None:
    """Delete what deleted topics left on the disk now, and wait for it."""
    found = asking.run(namesrv, timeout_s, lambda client: ask.clean_unused_topics(client, cluster=cluster, broker=broker))
    output.report("clean unused topics", found, form)


@click.command("wipeWritePerm")
@options.namesrv
@_broker_name
@options.timeout
@options.output
def wipe_write_perm(namesrv: str, broker: str, timeout_s: float, form: str) -> None:
    """Let nobody choose a broker's queues to send to, as before it is stopped for long. Consumers go on."""
    _show_routes(asking.run(namesrv, timeout_s, lambda client: topics.wipe_write_perm(client, broker)), form)


@click.command("addWritePerm")
@options.namesrv
@_broker_name
@options.timeout
@options.output
def add_write_perm(namesrv: str, broker: str, timeout_s: float, form: str) -> None:
    """Take wipeWritePerm back."""
    _show_routes(asking.run(namesrv, timeout_s, lambda client: topics.add_write_perm(client, broker)), form)


def _show_routes(counts: Mapping[str, int], form: str) -> None:
    output.show(output.Table({"address": "Nameserver", "topics": "Topics"}, list(counts.items())), form)


@click.command("statsAll")
@options.namesrv
@click.option("-t", "--topic", default="", metavar="NAME", help="Only this topic.")
@click.option("-a", "--active", is_flag=True, help="Only what was sent or delivered within a day.")
@options.timeout
@options.output
def stats_all(namesrv: str, topic: str, active: bool, timeout_s: float, form: str) -> int:
    """Show how much goes through each topic and to each of its groups, and what waits."""
    silent: ask.Silent = {}

    async def work(client: Client) -> list[topics.Flow]:
        return await topics.flows(client, [topic] if topic else await ask.topic_list(client), silent)

    columns = {
        "topic": "Topic",
        "group": "Consumer Group",
        "accumulation": "Accumulation",
        "in_tps": "InTPS",
        "out_tps": "OutTPS",
        "in_24h": "InMsg24Hour",
        "out_24h": "OutMsg24Hour",
    }
    found = asking.run(namesrv, timeout_s, work)
    output.show(output.Table(columns, [flow for flow in found if not active or flow.in_day or flow.out_day]), form)
    return asking.incomplete(silent)


@click.command("brokerConsumeStats")
@options.namesrv
@_address
@click.option("-l", "--level", type=click.IntRange(min=0), default=0, metavar="NUMBER", help="Only queues with so many waiting.")
@click.option("--order", is_flag=True, help="Only ordered topics.")
@click.option("-t", "timeout_ms", type=click.IntRange(min=1), metavar="MS", help="mqadmin's --timeout, in ms.")
@options.timeout
@options.output
def broker_consume_stats(
    namesrv: str, broker: str, level: int, order: bool, timeout_ms: int | None, timeout_s: float, form: str
) -> None:
    """Show how far all groups are at one broker, queue by queue."""
    timeout_s = timeout_s if timeout_ms is None else timeout_ms / 1000
    found = asking.run(namesrv, timeout_s, _at(broker, lambda client, at: one.all_progress(client, at, only_ordered=order)))
    columns = {
        "topic": "Topic", "group": "Group", "broker": "Broker Name", "queue": "QID", "broker_offset": "Broker Offset",
        "consumer_offset": "Consumer Offset", "diff": "Diff", "last_time": "LastTime",
    }  # fmt: skip
    reached = [
        (group, row) for group, some in found.items() for stats in some for row in sorted(stats.queues) if lag(row) >= level
    ]
    rows = [
        (
            row.queue.topic,
            group,
            row.queue.broker_name,
            row.queue.queue_id,
            row.broker_offset,
            row.consumer_offset,
            lag(row),
            moment(row.last_timestamp),
        )
        for group, row in reached
    ]
    output.show(output.Table(columns, rows, {"diff_total": ("Diff Total", sum(lag(row) for _, row in reached))}), form)


@click.command("producer")
@options.namesrv
@_address
@options.timeout
@options.output
def producer(namesrv: str, broker: str, timeout_s: float, form: str) -> None:
    """Show everybody who produces at one broker."""
    found = asking.run(namesrv, timeout_s, _at(broker, one.producers))
    columns = {
        "group": "Group",
        "client_id": "ClientId",
        "address": "ClientAddr",
        "language": "Language",
        "version": "Version",
        "last_update": "Last Update",
    }
    rows = [
        (group, each.client_id, each.address, each.language, version_name(each.version), moment(each.last_update_timestamp))
        for group, some in sorted(found.items())
        for each in some
    ]
    output.show(output.Table(columns, rows), form)


def _at(broker: str, work: Callable[[Client, str], Awaitable[T]]) -> Callable[[Client], Awaitable[T]]:
    """`work` with the address of that broker's leader."""

    async def found(client: Client) -> T:
        (address,) = await ask.broker_addresses(client, broker=broker)
        return await work(client, address)

    return found


COMMANDS = (
    topic_cluster_list, update_topic_perm, clean_unused_topic, wipe_write_perm, add_write_perm, stats_all,
    broker_consume_stats, producer,
)  # fmt: skip
