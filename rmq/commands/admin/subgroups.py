"""`rmq admin` for the settings of consumer groups: who may consume, how often a failed message comes again."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from rmq.attributes import signed_pairs
from rmq.client import Client
from rmq.client.admin import absent, calls as ask, topics
from rmq.commands.shared import asking, options, output
from rmq.errors import InvalidArgument
from rmq.model import GroupConfig
from rmq.net.commands.groups import Forbidden, UpdateForbidden
from rmq.net.commands.pop import SetRequestMode

_group = click.option("-g", "--group", required=True, metavar="NAME")
_COUNT = click.IntRange(min=0)
_COLUMNS = {
    "address": "Broker",
    "consume_enable": "Consume",
    "retry_queue_nums": "Retry Queues",
    "retry_max_times": "Retries",
    "consume_broadcast_enable": "Broadcast",
    "notify_consumer_ids_changed_enable": "Notify",
    "retry_policy": "Retry Policy",
    "attributes": "Attributes",
}


@click.command("getConsumerConfig")
@options.namesrv
@_group
@options.timeout
@options.output
def get_consumer_config(namesrv: str, group: str, timeout_s: float, form: str) -> int:
    """Show the settings of a consumer group at every broker that has it."""
    silent: ask.Silent = {}
    found = asking.run(namesrv, timeout_s, lambda client: _configs(client, group, "", "", silent))
    rows = [(address, *(_cell(getattr(config, name)) for name in list(_COLUMNS)[1:])) for address, config in found if config]
    if not rows and not silent:
        raise InvalidArgument(f"no broker has a group {group}: the first consumer makes it, or `rmq admin updateSubGroup`")
    output.show(output.Table(_COLUMNS, rows), form)
    return asking.incomplete(silent)


@click.command("updateSubGroup")
@options.namesrv
@_group
@options.place
@click.option("-s", "--consume", "consume_enable", type=bool, help="Whether the group may consume.")
@click.option("-q", "--retry-queues", "retry_queue_nums", type=_COUNT, help="Queues of its retry topic; 0: no retries.")
@click.option("-r", "--retries", "retry_max_times", type=_COUNT, help="How often a failed message may come again.")
@click.option("-d", "--broadcast", "consume_broadcast_enable", type=bool, help="Whether its members may each get every message.")
@click.option(
    "--order",
    "consume_message_orderly",
    type=bool,
    help="mqadmin's -o: clients that speak gRPC get messages in order; other members decide.",
)
@click.option("-m", "--from-min", "consume_from_min_enable", type=bool, help="Kept for tools, members decide.")
@click.option("-i", "--broker-id", "broker_id", type=_COUNT, help="The node that its members are told to read from.")
@click.option("-w", "--slow-broker-id", "which_broker_when_consume_slowly", type=_COUNT, help="The same for those far behind.")
@click.option("-a", "--notify", "notify_consumer_ids_changed_enable", type=bool, help="Whether members hear at once of others.")
@click.option("-p", "--retry-policy", metavar="JSON", help="How long a failed message waits, as mqadmin takes it; '': by levels.")
@click.option(
    "--attributes", default="", metavar="+KEY=VALUE,-KEY", callback=options.attributes, help="Set or remove attributes."
)
@options.timeout
@options.output
def update_sub_group(
    namesrv: str, group: str, cluster: str, broker: str, attributes: str, timeout_s: float, form: str, **settings: Any
) -> None:
    """Make a consumer group, or change the given settings of one."""
    options.check_place(cluster, broker)
    given = {name: value for name, value in settings.items() if value is not None}
    given["attributes"] = {name: value or "" for name, value in signed_pairs(attributes)}

    async def work(client: Client) -> Sequence[str]:
        silent: ask.Silent = {}
        found = dict(await _configs(client, group, cluster, broker, silent))

        async def at(address: str) -> None:
            if address in silent:
                raise silent[address]
            await ask.update_group(client, (found[address] or GroupConfig(group))._replace(**given), broker=address)

        await ask.at_each([*found, *silent], at)
        return list(found)

    output.report(f"update group {group}", asking.run(namesrv, timeout_s, work), form)


@click.command("deleteSubGroup")
@options.namesrv
@_group
@options.place
@click.option("-r", "--remove-offset", type=bool, default=False, help="Whether its offsets go, too.  [default: false]")
@options.timeout
@options.output
def delete_sub_group(
    namesrv: str, group: str, cluster: str, broker: str, remove_offset: bool, timeout_s: float, form: str
) -> None:
    """Delete a consumer group; with -c also its retry topics and its dead letters."""
    options.check_place(cluster, broker)

    async def work(client: Client) -> tuple[Sequence[str], set[str]]:
        addresses = await ask.broker_addresses(client, cluster=cluster, broker=broker)
        lacking = await absent.group(client, group, addresses)
        if cluster:
            await topics.delete_group_with_failed(client, group, addresses, cluster=cluster, clean_offsets=remove_offset)
        else:
            await ask.delete_group(client, group, broker=broker, clean_offsets=remove_offset)
        return addresses, lacking

    addresses, lacking = asking.run(namesrv, timeout_s, work)
    output.report(f"delete group {group}", addresses, form, lacking)


@click.command("groupForbidden")
@options.namesrv
@_group
@click.option("-t", "--topic", required=True, metavar="NAME")
@click.option("-r", "--readable", type=bool, help="Whether the group may read the topic. Without this option nothing changes.")
@options.place
@options.timeout
@options.output
def group_forbidden(
    namesrv: str, group: str, topic: str, readable: bool | None, cluster: str, broker: str, timeout_s: float, form: str
) -> int:
    """Forbid a group to read a topic, allow it again, or show which it is."""
    options.check_place(cluster, broker)
    request = UpdateForbidden(group, topic, "" if readable is None else str(readable).lower())
    silent: ask.Silent = {}

    async def work(client: Client) -> list[tuple[str, bool]]:
        addresses = await ask.broker_addresses(client, cluster=cluster, broker=broker)
        if readable is None:
            found = await ask.of_each(addresses, partial(client.session.leaders.request_from, request=request), silent)
        else:
            found = dict(zip(addresses, await ask.change_each(client, addresses, request), strict=True))
        return [(address, one.readable) for address, one in found.items() if isinstance(one, Forbidden)]

    output.show(output.Table({"address": "Broker", "readable": "Readable"}, asking.run(namesrv, timeout_s, work)), form)
    return asking.incomplete(silent)


@click.command("setConsumeMode")
@options.namesrv
@_group
@click.option("-t", "--topic", required=True, metavar="NAME")
@click.option("-m", "--mode", type=click.Choice(["PULL", "POP"]), required=True)
@click.option(
    "-q",
    "--share",
    type=int,
    default=0,
    show_default=True,
    help="Each member also pops the queues of this many others; 0: of all.",
)
@options.place
@options.timeout
@options.output
def set_consume_mode(
    namesrv: str, group: str, topic: str, mode: str, share: int, cluster: str, broker: str, timeout_s: float, form: str
) -> None:
    """Set how a group reads a topic whose queues the broker divides (Java: clientRebalance=false): by PULL or by POP."""
    options.check_place(cluster, broker)

    async def work(client: Client) -> Sequence[str]:
        addresses = await ask.broker_addresses(client, cluster=cluster, broker=broker)
        await ask.change_each(client, addresses, SetRequestMode(topic, group, mode, share))
        return addresses

    output.report(f"group {group} reads {topic} by {mode}", asking.run(namesrv, timeout_s, work), form)


def _cell(value: str | int | dict[str, str]) -> output.Cell:
    return ", ".join(f"{name}={setting}" for name, setting in value.items()) if isinstance(value, dict) else value


async def _configs(
    client: Client, group: str, cluster: str, broker: str, silent: ask.Silent
) -> list[tuple[str, GroupConfig | None]]:
    """The chosen brokers, without those that are `silent`."""
    addresses = await ask.broker_addresses(client, cluster=cluster, broker=broker)
    known = await ask.of_each_node(addresses, partial(ask.group_configs, client), silent)
    return [(address, next((one for one in configs if one.name == group), None)) for address, configs in known.items()]


COMMANDS = (get_consumer_config, update_sub_group, delete_sub_group, group_forbidden, set_consume_mode)
