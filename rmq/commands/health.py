"""`rmq health`: whether every node answers and none is missing. For people, and for health checks of containers and services."""

import asyncio
import time
from dataclasses import replace

import click

from rmq.client.admin import calls as ask, standing
from rmq.codes import ResponseCode
from rmq.commands.shared import asking, exits, options, output
from rmq.errors import Refusal, RmqError
from rmq.model import BrokerAddresses
from rmq.net.codec.native import VERSION
from rmq.net.commands import ClusterInfo, GetClusterInfo, GetRuntimeInfo, Hello, Ping, RuntimeInfo
from rmq.net.transport.channel import Channel

_COLUMNS = {"role": "Role", "address": "Addr", "ok": "OK", "ms": "ms", "remark": "Remark"}
Row = tuple[str, str, bool, float | None, str]


@click.command()
@options.namesrv
@click.option("-a", "--address", "only", multiple=True, metavar="HOST:PORT", help="Ask only these nodes (repeatable).")
@options.timeout
@options.output
def health(namesrv: str, only: tuple[str, ...], timeout_s: float, form: str) -> int:
    """Ask the nameservers, every broker that they know, and the other members of each broker group.

    Exit code 0: every node answers, follows and is registered at its nameservers. 3: at least one does not. 1: nothing can be
    sent, because a group has no leader, or there is no broker. With --address only those nodes are asked.
    """
    addresses = [address for text in only for address in options.addresses(text)]
    rows = options.run(_ask_these(addresses, timeout_s) if addresses else _ask_all(namesrv.split(";"), timeout_s))
    output.show(output.Table(_COLUMNS, rows), form)
    if any(role == "group" for role, *_ in rows):
        return exits.FAILED
    if not all(ok for _, _, ok, _, _ in rows):
        return exits.UNREACHABLE
    if not addresses and not any(role == "broker" for role, *_ in rows):
        click.echo("rmq: no broker is registered", err=True)
        return exits.FAILED
    return exits.OK


async def _ask_these(addresses: list[str], timeout_s: float) -> list[Row]:
    return list(await asyncio.gather(*(_ping("node", address, timeout_s) for address in addresses)))


async def _ask_all(nameservers: list[str], timeout_s: float) -> list[Row]:
    rows = list(await asyncio.gather(*(_ping("nameserver", address, timeout_s) for address in nameservers)))
    alive = [address for _, address, ok, _, _ in rows if ok]
    answers = dict(zip(alive, await asyncio.gather(*(_told(address, timeout_s) for address in alive)), strict=True))
    found = {address: answer for address, answer in answers.items() if not isinstance(answer, RmqError)}
    if answers and not found:
        raise next(answer for answer in answers.values() if isinstance(answer, RmqError))
    for at, (role, address, _, taken_ms, _) in enumerate(rows):
        if isinstance(trouble := answers.get(address), RmqError):
            rows[at] = role, address, False, taken_ms, str(trouble)
    if not found:
        return rows
    brokers = sorted({address for groups in found.values() for group in groups for address in group.addresses.values()})
    rows += await asyncio.gather(*(_ping("broker", address, timeout_s) for address in brokers))
    return rows + await _missing(";".join(found), timeout_s)


async def _told(nameserver: str, timeout_s: float) -> list[BrokerAddresses] | RmqError:
    """The brokers that it knows, or why it does not say."""
    try:
        return await _brokers(nameserver, timeout_s)
    except RmqError as error:
        return error


async def _missing(namesrv: str, timeout_s: float) -> list[Row]:
    """Group members that are not registered or do not follow, and groups without a leader. Says on stderr what it may not see."""
    async with asking.client_of(namesrv, timeout_s) as client:
        found = [
            (group, broker_id, address)
            for group in (await ask.cluster_info(client)).brokers
            for broker_id, address in group.addresses.items()
        ]
        failed: dict[str, RmqError] = {}
        places, statuses = await standing.all_of(client, found, failed)
    untold = {group.name: failed[address] for group, _, address in found if isinstance(failed.get(address), Refusal)}
    for name, why in untold.items():
        click.echo(output.plain(f"rmq: {name}: its nodes do not tell us which of its members are missing: {why}"), err=True)
    return [(role, address, False, None, remark) for role, address, remark in standing.ills(places, statuses)]


async def _ping(role: str, address: str, timeout_s: float) -> Row:
    began = time.perf_counter()
    try:
        channel = await _open(address, timeout_s)
        try:
            await channel.request(Ping(), timeout_s)
            taken_ms = round((time.perf_counter() - began) * 1000, 1)
            facts = {} if role == "nameserver" else await _facts(channel, timeout_s)
        finally:
            await channel.close()
    except RmqError as error:
        return role, address, False, None, str(error)
    if waits_for := facts.get("waitsFor"):
        return role, address, False, taken_ms, waits_for
    if trouble := facts.get("registrationTrouble"):
        return role, address, False, taken_ms, f"not registered at {trouble}"
    left_out = facts.get("topicsLeftOut")
    return role, address, True, taken_ms, f"left out by {left_out}" if left_out else ""


async def _open(address: str, timeout_s: float) -> Channel:
    """Asks again without a login: the node does not know its users yet."""
    dialer = asking.dialer()
    try:
        return await dialer.open(address, Hello(VERSION), timeout_s=timeout_s)
    except Refusal as refusal:
        if refusal.code != ResponseCode.SYSTEM_BUSY:
            raise
    return await replace(dialer, credentials=None).open(address, Hello(VERSION), timeout_s=timeout_s)


async def _facts(channel: Channel, timeout_s: float) -> dict[str, str]:
    """A broker's own troubles; none for a nameserver, or if we may not ask."""
    try:
        answer = await channel.request(GetRuntimeInfo(), timeout_s)
    except Refusal:
        return {}
    return answer.table if isinstance(answer, RuntimeInfo) else {}


async def _brokers(nameserver: str, timeout_s: float) -> list[BrokerAddresses]:
    channel = await asking.dialer().open(nameserver, Hello(VERSION), timeout_s=timeout_s)
    try:
        info = await channel.request(GetClusterInfo(), timeout_s)
    finally:
        await channel.close()
    assert isinstance(info, ClusterInfo)
    return info.brokers
