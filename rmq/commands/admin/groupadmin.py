"""`rmq admin` for broker groups that elect their leader: how far each node follows, and changes of leader and members."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click

from rmq.client import Client
from rmq.client.admin import calls as ask, groups, standing
from rmq.commands.admin import rounds
from rmq.commands.shared import asking, options, output
from rmq.commands.views import groupviews
from rmq.errors import InvalidArgument
from rmq.model import BrokerAddresses
from rmq.net.commands.peers import GroupStatus
from rmq.net.transport.network import checked_address

_TRANSFER_S, _JOIN_S = 15.0, 3600.0  # a node joins when it has copied the log
_SOON_S = 2.0  # who waits for longer is told for what


def warn(places: Sequence[standing.MemberAddress], found: standing.Statuses) -> None:
    """On stderr, so that stdout holds only tables or JSON."""
    for warning in standing.warnings(places, found):
        click.echo(f"warning: {warning}", err=True)


def _long(default: float) -> Callable[[options.F], options.F]:
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.01),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait until it is done.",
    )


_cluster = click.option("-c", "--cluster", default="", metavar="NAME", help="Every group of this cluster.")
_broker = click.option("-b", "--broker", default="", metavar="NAME|HOST:PORT", help="One group: its name, or a node of it.")
_one_group = click.option("-b", "--broker", required=True, metavar="NAME|HOST:PORT", help="The group: its name, or a node of it.")


async def _registered(client: Client, cluster: str, broker: str) -> list[tuple[BrokerAddresses, int, str]]:
    """The nodes of the chosen groups. Raises InvalidArgument if there are none."""
    info = await ask.cluster_info(client)
    found = [
        (group, broker_id, address)
        for group in info.brokers
        for broker_id, address in group.addresses.items()
        if cluster in ("", group.cluster) and broker in ("", group.name, *group.addresses.values())
    ]
    if not found:
        raise InvalidArgument(f"{ask.nobody(cluster, broker)}; `rmq admin clusterList` shows all")
    return sorted(found, key=lambda row: (row[0].cluster, row[0].name, row[1]))


async def _members(
    client: Client, cluster: str, broker: str, failed: ask.Silent
) -> tuple[list[standing.MemberAddress], dict[str, GroupStatus]]:
    """The nodes of the chosen groups, also those that are not registered because their logs are being repaired. `failed` takes
    why nothing is known of a whole group."""
    try:
        places = await _registered(client, cluster, broker)
    except InvalidArgument:
        if ":" not in broker:
            raise
        places = [(BrokerAddresses(cluster, broker, {}), -1, checked_address(broker))]
    return await standing.all_of(client, places, failed)


@click.command("haStatus")
@options.namesrv
@_cluster
@_broker
@rounds.again_if_told
@options.timeout
@options.output
def ha_status(namesrv: str, cluster: str, broker: str, interval_s: float | None, timeout_s: float, form: str) -> int:
    """Show how far the followers of a group are, and what keeps one from following."""

    async def work(client: Client, failed: ask.Silent) -> output.Table:
        places, found = await _members(client, cluster, broker, failed)
        warn(places, found)
        return groupviews.ha_status(places, found)

    return _shown(namesrv, timeout_s, work, form, interval_s)


def _shown(
    namesrv: str,
    timeout_s: float,
    work: Callable[[Client, ask.Silent], Awaitable[output.Table]],
    form: str,
    interval_s: float | None,
) -> int:
    def once() -> int:
        failed: ask.Silent = {}
        output.show(asking.run(namesrv, timeout_s, lambda client: work(client, failed)), form)
        return asking.incomplete(failed)

    return rounds.again(once, interval_s)


@click.command("getBrokerEpoch")
@options.namesrv
@_cluster
@_broker
@rounds.again_if_told
@options.timeout
@options.output
def get_broker_epoch(namesrv: str, cluster: str, broker: str, interval_s: float | None, timeout_s: float, form: str) -> int:
    """Show which node wrote which part of the log."""

    async def work(client: Client, failed: ask.Silent) -> output.Table:
        places = await _registered(client, cluster, broker)
        found = await standing.statuses(client, [address for _, _, address in places], failed)
        return groupviews.epochs((*place, found[place[2]]) for place in places if place[2] in found)

    return _shown(namesrv, timeout_s, work, form, interval_s)


@click.command("transferLeader")
@options.namesrv
@_one_group
@click.argument("node", default="", metavar="[NODE]")
@_long(_TRANSFER_S)
@options.output
def transfer_leader(namesrv: str, broker: str, node: str, timeout_s: float, form: str) -> None:
    """Hand leadership to NODE (an id of dLegerPeers, as n1), or to the follower that is furthest, and look who leads then."""
    was, leads = asking.run(namesrv, timeout_s, lambda client: groups.hand_over(client, broker, node, timeout_s))
    output.report(f"hand leadership of {broker} to {leads}", [was], form)


@click.command("addPeer")
@options.namesrv
@_one_group
@click.argument("peer", metavar="ID-HOST:PORT")
@_long(_JOIN_S)
@options.output
def add_peer(namesrv: str, broker: str, peer: str, timeout_s: float, form: str) -> None:
    """Make a node a voter of the group. Write it as in dLegerPeers: n3-10.0.0.14:40911.

    Start the node first; its dLegerPeers names itself and all others. It votes once it has copied the log.
    """
    node, found, address = peer.partition("-")
    if not node or not found or not address.rpartition(":")[0] or not address.rpartition(":")[2].isdecimal():
        raise click.BadParameter(f"{peer!r}: write ID-HOST:PORT, as in dLegerPeers")

    async def work(client: Client) -> str:
        if await groups.voters(client, broker) == 1:
            click.echo("warning: of two nodes both are needed: until a third one is added, the group stops with either", err=True)
        adding = asyncio.create_task(groups.add_peer(client, broker, node, address, timeout_s))
        if not (await asyncio.wait({adding}, timeout=_SOON_S))[0]:
            about = f"{node} votes once it has copied the log; `rmq admin haStatus -b {broker}` shows how far it is"
            wrong = f"start it, or give another address; `rmq admin removePeer -b {broker} {node}` takes it back"
            click.echo(f"{about}. Is it not there? Then {wrong}", err=True)
        return await adding

    leader = asking.run(namesrv, timeout_s, work)
    output.report(f"add {node} to {broker}", [leader], form)


@click.command("removePeer")
@options.namesrv
@_one_group
@click.argument("node", metavar="ID")
@_long(_TRANSFER_S)
@options.output
def remove_peer(namesrv: str, broker: str, node: str, timeout_s: float, form: str) -> None:
    """Remove a node (an id of dLegerPeers, as n3) from the group. Then stop it."""
    leader = asking.run(namesrv, timeout_s, lambda client: groups.remove_peer(client, broker, node, timeout_s))
    output.report(f"remove {node} from {broker}", [leader], form)


@click.command("promote")
@options.namesrv
@click.option("-b", "--broker", required=True, metavar="HOST:PORT", help="The slave, or the master that waits.")
@_long(_TRANSFER_S)
@options.output
def promote(namesrv: str, broker: str, timeout_s: float, form: str) -> None:
    """Make a slave (brokerRole=SLAVE) the master, because the master is gone.

    Messages that this slave has not copied are lost. If the master still runs, use transferLeader instead. A master that
    waits for slaves which are gone for good begins without them.
    """
    address = asking.run(namesrv, timeout_s, lambda client: groups.promote(client, broker, timeout_s))
    output.report("promote to master", [address], form)


COMMANDS = (ha_status, get_broker_epoch, transfer_leader, add_peer, remove_peer, promote)
