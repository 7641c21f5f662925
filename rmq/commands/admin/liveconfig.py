"""`rmq admin` for settings of nodes that run, and for what nameservers keep."""

from collections.abc import Mapping, Sequence
from functools import partial

import click

from rmq.client import Client
from rmq.client.admin import calls as ask, configuration
from rmq.client.admin.configuration import ORDER_NAMESPACE
from rmq.commands.shared import asking, options, output

_cluster = click.option("-c", "--cluster", default="", metavar="NAME", help="Every broker of this cluster.")
_broker = click.option("-b", "--broker", default="", metavar="NAME|HOST:PORT", help="One broker.")
_key = click.option("-k", "--key", required=True, metavar="KEY", help="RocketMQ's key, or ours.")
_value = click.option("-v", "--value", required=True, metavar="VALUE")


def _one_place(cluster: str, broker: str) -> None:
    if bool(cluster) == bool(broker):
        raise click.UsageError("give either -c CLUSTER or -b BROKER")


@click.command("getBrokerConfig")
@options.namesrv
@_cluster
@_broker
@options.timeout
@options.output
def get_broker_config(namesrv: str, cluster: str, broker: str, timeout_s: float, form: str) -> int:
    """The settings in force at brokers, by RocketMQ's keys."""
    _one_place(cluster, broker)
    silent: ask.Silent = {}

    async def work(client: Client) -> dict[str, dict[str, str]]:
        addresses = await ask.broker_addresses(client, cluster=cluster, broker=broker, leaders_only=False)
        return await ask.of_each_node(addresses, partial(configuration.broker_config, client), silent)

    _show(asking.run(namesrv, timeout_s, work), form)
    return asking.incomplete(silent)


@click.command("getNamesrvConfig")
@options.namesrv
@options.timeout
@options.output
def get_namesrv_config(namesrv: str, timeout_s: float, form: str) -> int:
    """The settings in force at each nameserver."""
    silent: ask.Silent = {}

    async def work(client: Client) -> dict[str, dict[str, str]]:
        nameservers = client.session.nameservers.addresses
        return await ask.of_each_node(nameservers, partial(configuration.nameserver_config, client), silent)

    _show(asking.run(namesrv, timeout_s, work), form)
    return asking.incomplete(silent)


def _show(found: Mapping[str, Mapping[str, str]], form: str) -> None:
    if form == "json":
        output.show_json(found)
        return
    rows = [(address, key, value) for address, table in found.items() for key, value in sorted(table.items())]
    output.show(output.Table({"address": "Addr", "key": "Key", "value": "Value"}, rows), form)


@click.command("updateBrokerConfig")
@options.namesrv
@_cluster
@_broker
@click.option(
    "-a",
    "--all",
    "everyone",
    type=bool,
    is_flag=False,
    flag_value="true",
    default=False,
    metavar="[BOOLEAN]",
    help="With -c: followers too, not leaders only.",
)
@_key
@_value
@options.timeout
@options.output
def update_broker_config(
    namesrv: str, cluster: str, broker: str, everyone: bool, key: str, value: str, timeout_s: float, form: str
) -> None:
    """Change a setting of brokers at once, and for their later starts."""
    _one_place(cluster, broker)

    async def work(client: Client) -> list[tuple[str, str]]:
        addresses = await ask.broker_addresses(client, cluster=cluster, broker=broker, leaders_only=not everyone)
        return list(zip(addresses, await configuration.update_broker(client, addresses, key, value), strict=True))

    _report(f"{key}={value}", asking.run(namesrv, timeout_s, work), form)


@click.command("updateNamesrvConfig")
@options.namesrv
@_key
@_value
@options.timeout
@options.output
def update_namesrv_config(namesrv: str, key: str, value: str, timeout_s: float, form: str) -> None:
    """Change a setting of every nameserver at once, and for their later starts."""

    async def work(client: Client) -> list[tuple[str, str]]:
        abouts = await configuration.update_nameservers(client, key, value)
        return list(zip(client.session.nameservers.addresses, abouts, strict=True))

    _report(f"{key}={value}", asking.run(namesrv, timeout_s, work), form)


@click.command("updateKvConfig")
@options.namesrv
@click.option("-s", "--namespace", required=True, metavar="NAME")
@_key
@_value
@options.timeout
@options.output
def update_kv_config(namesrv: str, namespace: str, key: str, value: str, timeout_s: float, form: str) -> None:
    """Let every nameserver keep a value."""
    asking.run(namesrv, timeout_s, lambda client: configuration.put(client, namespace, key, value))
    _report(f"{namespace} {key}={value}", [(namesrv, "")], form)


@click.command("deleteKvConfig")
@options.namesrv
@click.option("-s", "--namespace", required=True, metavar="NAME")
@_key
@options.timeout
@options.output
def delete_kv_config(namesrv: str, namespace: str, key: str, timeout_s: float, form: str) -> None:
    """Let every nameserver forget a value."""
    asking.run(namesrv, timeout_s, lambda client: configuration.delete(client, namespace, key))
    _report(f"delete {namespace} {key}", [(namesrv, "")], form)


@click.command("updateOrderConf")
@options.namesrv
@click.option("-t", "--topic", required=True, metavar="NAME")
@click.option("-m", "--method", type=click.Choice(["get", "put", "delete"]), required=True)
@click.option("-v", "--value", default="", metavar="BROKER:QUEUES;...", help="With put: queues of the topic at each broker.")
@options.timeout
@options.output
def update_order_conf(namesrv: str, topic: str, method: str, value: str, timeout_s: float, form: str) -> None:
    """How many queues of an ordered topic each broker has, as routes tell it (with orderMessageEnable)."""
    if (method == "put") != bool(value):
        raise click.UsageError("put needs -v BROKER:QUEUES;..., the others take none")
    for part in value.split(";") if value else ():
        name, _, queues = part.partition(":")
        if not name or not (queues.isascii() and queues.isdecimal() and int(queues)):
            raise click.BadParameter(f"{part!r}: write BROKER:QUEUES;..., as broker-a:4;broker-b:4")

    async def work(client: Client) -> str | None:
        if method == "put":
            await configuration.put(client, ORDER_NAMESPACE, topic, value)
        elif method == "delete":
            await configuration.delete(client, ORDER_NAMESPACE, topic)
        return await configuration.get(client, ORDER_NAMESPACE, topic)

    output.show(output.Table({"topic": "Topic", "value": "Queues"}, [(topic, asking.run(namesrv, timeout_s, work))]), form)


def _report(done: str, places: Sequence[tuple[str, str]], form: str) -> None:
    if form == "json":
        output.show_json({"done": done, "about": dict(places)})
        return
    for address, about in places:
        click.echo(f"{done} at {address}: success{f' ({about})' if about else ''}")


COMMANDS = (
    get_broker_config,
    get_namesrv_config,
    update_broker_config,
    update_namesrv_config,
    update_kv_config,
    delete_kv_config,
    update_order_conf,
)
