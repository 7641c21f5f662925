"""`rmq admin ...`: mqadmin's commands for daily use, under the same names and options. rmq.client.admin.calls
asks the brokers, adminviews makes the tables."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import TypeVar

import click

from rmq.client import Client
from rmq.client.admin import absent, calls as ask, members as running, one, standing
from rmq.client.shared.tasks import some_at_a_time
from rmq.commands import msg
from rmq.commands.admin import (
    access,
    elsewhere,
    exporting,
    groupadmin,
    lists,
    lites,
    liveconfig,
    members,
    monitoring,
    probing,
    queues,
    resets,
    rounds,
    subgroups,
    topics,
    traces,
    transactions,
)
from rmq.commands.shared import asking, options, output
from rmq.commands.views import adminviews
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError, Unknown, Unreachable
from rmq.model import DLQ_PREFIX, RETRY_PREFIX, UNIT, UNIT_SUBSCRIBED, BrokerAddresses, MessageQueue
from rmq.net.commands import ConsumerConnection, ConsumeStats
from rmq.net.commands.peers import GroupStatus
from rmq.routing.topics import is_system_topic

T = TypeVar("T")
_AT_ONCE = 16  # topics


class _AnyCase(click.Group):
    """clusterList, clusterlist and cluster-list are one command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        names = {_normalized(name): name for name in self.list_commands(ctx)}
        return super().get_command(ctx, names.get(_normalized(cmd_name), cmd_name))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        instead = {_normalized(name): text for name, text in elsewhere.INSTEAD.items()}.get(_normalized(args[0]))
        if instead:
            ctx.fail(f"rmq admin has no {args[0]}: {instead}")
        _, command, rest = super().resolve_command(ctx, args)
        return command.name if command else None, command, rest


def _normalized(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


@click.group(cls=_AnyCase)
def admin() -> None:
    """Look at a cluster and change it.

    Names (in any case) and options are mqadmin's, except that -o is the form of the output (order is --order).
    """


# --- cluster and brokers ----------------------------------------------------------------------------------------------

BrokerRow = tuple[BrokerAddresses, int, str, dict[str, str] | None]


@admin.command("clusterList")
@options.namesrv
@click.option("-m", "--more", is_flag=True, help="Messages yesterday and today instead of rates.")
@click.option("-c", "--cluster", default="", metavar="NAME", help="Only this cluster.")
@rounds.again_if_told
@options.timeout
@options.output
def cluster_list(namesrv: str, more: bool, cluster: str, interval_s: float | None, timeout_s: float, form: str) -> None:
    """Show the brokers with addresses, rates and disks, and of each elected group the leader and how far each node is."""
    rounds.again(lambda: show_cluster(namesrv, timeout_s, more, cluster, form), interval_s)


def show_cluster(namesrv: str, timeout_s: float, more: bool = False, cluster: str = "", form: str = "table") -> None:
    """Prints what `clusterList` does."""
    rows, statuses = asking.run(namesrv, timeout_s, lambda client: _brokers(client, cluster))
    if cluster and not rows:
        raise InvalidArgument(f"no broker of a cluster {cluster} is registered; `rmq admin clusterList` shows all")
    table = adminviews.cluster_totals(rows) if more else adminviews.cluster_list(rows, statuses, time.time_ns() // 1_000_000)
    output.show(table, form)
    groupadmin.warn([row[:3] for row in rows], statuses)


async def _brokers(client: Client, cluster: str) -> tuple[list[BrokerRow], dict[str, GroupStatus]]:
    """Every address of the cluster with its runtime info (None: no answer), and the nodes' group status."""
    info = await ask.registered(client)
    found = [
        (group, broker_id, address)
        for group in sorted(info.brokers, key=lambda group: (group.cluster, group.name))
        if cluster in ("", group.cluster)
        for broker_id, address in sorted(group.addresses.items())
    ]
    registered = len(found)
    found, statuses = await standing.with_silent(client, found, await standing.statuses(client, [row[2] for row in found]))
    answers = await asyncio.gather(*(_facts(client, address) for _, _, address in found[:registered]))
    refused = [(row[2], answer) for row, answer in zip(found, answers, strict=False) if isinstance(answer, RmqError)]
    if refused and not any(isinstance(answer, dict) for answer in answers):
        raise refused[0][1]
    for address, refusal in refused:  # as of one that was just started and has not heard of all users yet
        click.echo(output.plain(f"warning: {address} tells nothing: {str(refusal).removeprefix(f'{address}: ')}"), err=True)
    facts = (answer if isinstance(answer, dict) else None for answer in answers)
    return [(*row, answer) for row, answer in zip_longest(found, facts)], statuses


async def _facts(client: Client, address: str) -> dict[str, str] | Refusal | BadBytes | None:
    try:
        facts = await ask.runtime_info(client, address)
        adminviews.check(facts, address)
    except (Unreachable, Unknown):
        return None
    except (Refusal, BadBytes) as error:
        return error
    return facts


@admin.command("brokerStatus")
@options.namesrv
@options.place
@options.timeout
@options.output
def broker_status(namesrv: str, cluster: str, broker: str, timeout_s: float, form: str) -> int:
    """Show everything that brokers report about themselves."""
    options.check_place(cluster, broker)
    silent: ask.Silent = {}

    async def work(client: Client) -> dict[str, dict[str, str]]:
        addresses = await ask.broker_addresses(client, cluster=cluster, broker=broker, leaders_only=False)
        return await ask.of_each_node(addresses, partial(ask.runtime_info, client), silent)

    found = asking.run(namesrv, timeout_s, work)
    if form == "json":
        output.show_json(found)
    else:
        output.show(adminviews.broker_status(found), form)
    return asking.incomplete(silent)


@admin.command("deleteExpiredCommitLog")
@options.namesrv
@options.place
@options.timeout
@options.output
def delete_expired_commit_log(namesrv: str, cluster: str, broker: str, timeout_s: float, form: str) -> None:
    """Delete expired log files now, at any hour."""
    delete = partial(ask.delete_expired_log, cluster=cluster, broker=broker)
    output.report("delete expired log files", asking.run(namesrv, timeout_s, delete), form)


@admin.command("cleanExpiredCQ")
@options.namesrv
@options.place
@options.timeout
@options.output
def clean_expired_queues(namesrv: str, cluster: str, broker: str, timeout_s: float, form: str) -> None:
    """Delete queue files whose messages are gone."""
    clean = partial(ask.clean_expired_queues, cluster=cluster, broker=broker)
    output.report("clean expired queues", asking.run(namesrv, timeout_s, clean), form)


# --- topics -----------------------------------------------------------------------------------------------------------


@admin.command("topicList")
@options.namesrv
@click.option("-c", "--consumers", is_flag=True, help="Show clusters and consumer groups, too.")
@click.option("--user", "user_only", is_flag=True, help="Leave out system, retry and dead-letter topics.")
@options.timeout
@options.output
def topic_list(namesrv: str, consumers: bool, user_only: bool, timeout_s: float, form: str) -> int:
    """List all topics."""
    silent: ask.Silent = {}

    async def work(client: Client) -> output.Table:
        topics: Iterable[str] = await ask.topic_list(client)
        await ask.registered(client)
        if user_only:
            own = {name for group in (await ask.cluster_info(client)).brokers for name in (group.cluster, group.name)}
            topics = [topic for topic in topics if topic not in own and not _of_the_system(topic)]
        if not consumers:
            return adminviews.topic_list(topics)
        found = await some_at_a_time(_AT_ONCE, lambda topic: _consumers(client, topic, silent), topics)
        return adminviews.topic_consumers([row for rows in found for row in rows])

    output.show(asking.run(namesrv, timeout_s, work), form)
    return asking.incomplete(silent)


def _of_the_system(topic: str) -> bool:
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or topic.endswith("_REPLY_TOPIC")


async def _consumers(client: Client, topic: str, silent: ask.Silent) -> list[tuple[str, str, str]]:
    route = await ask.topic_route(client, topic)
    groups: Sequence[str] = await one.unless_silent(ask.groups_of_topic(client, topic, silent), silent) or []
    clusters = sorted({group.cluster for group in route.brokers})
    return [(cluster, topic, group) for cluster in clusters for group in groups or [""]]


_topic = click.option("-t", "--topic", required=True, metavar="NAME")


@admin.command("topicRoute")
@options.namesrv
@_topic
@click.option("-l", "--list", "_list", is_flag=True, hidden=True, help="mqadmin's word for the table, which is our default.")
@options.timeout
@options.output
def topic_route(namesrv: str, topic: str, _list: bool, timeout_s: float, form: str) -> None:
    """Show where a topic has queues."""
    output.show(adminviews.topic_route(asking.run(namesrv, timeout_s, lambda client: ask.topic_route(client, topic))), form)


@admin.command("topicStatus")
@options.namesrv
@_topic
@options.route_tells
@options.timeout
@options.output
def topic_status(namesrv: str, topic: str, timeout_s: float, form: str) -> int:
    """Show the first and the next offset of every queue."""
    silent: ask.Silent = {}
    stats = asking.run(namesrv, timeout_s, lambda client: ask.topic_stats(client, topic, silent))
    output.show(adminviews.topic_status(stats.queues, stats.topic_put_tps), form)
    return asking.incomplete(silent)


@admin.command("updateTopic")
@options.namesrv
@_topic
@options.place
@click.option("-r", "--read-queues", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("-w", "--write-queues", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), default="6", show_default=True, help="2 write, 4 read, 6 both.")
@click.option("--order", is_flag=True, help="An ordered topic.")
@click.option("-u", "--unit", type=bool, default=False, help="Whether it is a topic of a unit.  [default: false]")
@click.option("-s", "--unit-subscribed", type=bool, default=False, help="Whether units subscribe to it.  [default: false]")
@click.option(
    "-a", "--attributes", default="", metavar="+KEY=VALUE,-KEY", callback=options.attributes, help="Set or remove attributes."
)
@options.timeout
@options.output
def update_topic(
    namesrv: str,
    topic: str,
    cluster: str,
    broker: str,
    read_queues: int,
    write_queues: int,
    perm: str,
    order: bool,
    unit: bool,
    unit_subscribed: bool,
    attributes: str,
    timeout_s: float,
    form: str,
) -> None:
    """Make a topic, or change it."""
    options.check_place(cluster, broker)
    addresses = asking.run(
        namesrv,
        timeout_s,
        lambda client: ask.update_topic(
            client,
            topic,
            cluster=cluster,
            broker=broker,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=int(perm),
            order=order,
            sys_flag=UNIT * unit | UNIT_SUBSCRIBED * unit_subscribed,
            attributes=attributes,
        ),
    )
    output.report(f"create topic {topic}", addresses, form)


@admin.command("deleteTopic")
@options.namesrv
@_topic
@options.place
@options.timeout
@options.output
def delete_topic(namesrv: str, topic: str, cluster: str, broker: str, timeout_s: float, form: str) -> None:
    """Delete a topic, its messages and offsets."""
    options.check_place(cluster, broker)

    async def work(client: Client) -> tuple[list[str], set[str]]:
        where = await ask.broker_addresses(client, cluster=cluster, broker=broker)
        lacking = await absent.topic(client, topic, where)
        return await ask.delete_topic(client, topic, cluster=cluster, broker=broker), lacking

    addresses, lacking = asking.run(namesrv, timeout_s, work)
    output.report(f"delete topic {topic}", addresses, form, lacking)


# --- consumer groups --------------------------------------------------------------------------------------------------


@admin.command("consumerProgress")
@options.namesrv
@click.option("-g", "--group", default="", metavar="NAME", help="Show this group, queue by queue.  [default: one line per group]")
@click.option("-t", "--topic", default="", metavar="NAME", help="Only this topic (with -g).")
@click.option("-c", "--cluster", default="", metavar="NAME", help="Only brokers of this cluster (with -g).")
@click.option("-s", "--show-client-ip", "clients", type=bool, default=False, help="Whether to show who reads a queue (with -g).")
@options.timeout
@options.output
def consumer_progress(namesrv: str, group: str, topic: str, cluster: str, clients: bool, timeout_s: float, form: str) -> int:
    """Show how far consumer groups are, and how many messages wait for them."""
    silent: ask.Silent = {}
    if group:
        work = partial(_group_progress, group=group, topic=topic, cluster=cluster, clients=clients, silent=silent)
        found, connected, holders = asking.run(namesrv, timeout_s, work)
        output.show(adminviews.group_progress(found, holders), form)
        if adminviews.is_broadcast(connected):
            click.echo(f"{group} reads as a broadcast: each member keeps its own offsets, where it runs", err=True)
    else:
        output.show(adminviews.groups_progress(asking.run(namesrv, timeout_s, partial(_all_progress, silent=silent))), form)
    return asking.incomplete(silent)


async def _group_progress(
    client: Client, *, group: str, topic: str, cluster: str, clients: bool, silent: ask.Silent
) -> tuple[ConsumeStats, ConsumerConnection | None, dict[MessageQueue, str] | None]:
    """Also who is connected (None: nobody), and who reads which queue (None: that was not asked). Raises Refusal: nobody has the
    group, or the topic."""
    stats, connected = await ask.consume_stats(client, group, topic, cluster, silent), await _connected(client, group, silent)
    if topic and not stats.queues:
        await ask.topic_route(client, topic)  # a wrong name must not look like a group that has read everything
    if not clients:
        return stats, connected, None
    return stats, connected, await _holders(client, group, silent) if connected else {}


async def _holders(client: Client, group: str, silent: ask.Silent) -> dict[MessageQueue, str]:
    """Who reads which queue, by client ids, which begin with the IP. Of members that say so."""
    infos, _ = await running.all_running(client, group, silent=silent)
    return {queue: client_id.partition("@")[0] for client_id, info in infos.items() for queue in info.queues}


async def _connected(client: Client, group: str, silent: ask.Silent) -> ConsumerConnection | None:
    return await one.if_there(ask.consumer_connection(client, group, silent=silent))


async def _all_progress(client: Client, silent: ask.Silent) -> list[tuple[str, ConsumeStats, ConsumerConnection | None]]:
    await ask.registered(client)
    asked = (one.unless_silent(_progress(client, group, silent), silent) for group in await ask.group_list(client))
    return one.known(await asyncio.gather(*asked), silent)


async def _progress(client: Client, group: str, silent: ask.Silent) -> tuple[str, ConsumeStats, ConsumerConnection | None] | None:
    """None if the group was deleted meanwhile."""
    stats = await one.if_there(ask.consume_stats(client, group, silent=silent))
    return None if stats is None else (group, stats, await _connected(client, group, silent))


# --- messages, groups of nodes -----------------------------------------------------------------------------------------

for _command in (
    msg.query_by_id, msg.query_by_unique_key, msg.query_by_key, msg.query_by_offset, traces.query_trace, *groupadmin.COMMANDS,
    *subgroups.COMMANDS, *lists.COMMANDS, *access.COMMANDS, *members.COMMANDS, *liveconfig.COMMANDS, *lites.COMMANDS,
    *resets.COMMANDS, *topics.COMMANDS, *queues.COMMANDS, *probing.COMMANDS, *exporting.COMMANDS, *monitoring.COMMANDS,
    transactions.resume_check,
):  # fmt: skip
    admin.add_command(_command)
