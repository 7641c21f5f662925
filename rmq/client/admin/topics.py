"""More about topics: who may write them, lists of them in files, what went through each.

Every function raises Refusal (with the reason), Unreachable or Unknown; of several nodes, the first failure; changes are made at
the others all the same.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from rmq.client.admin import one
from rmq.client.admin.calls import (
    Silent,
    ask_each,
    at_each,
    broker_addresses,
    change_each,
    delete_group,
    delete_topic,
    group_configs,
    leaders,
    of_each,
    topic_config,
    topic_configs,
    topic_route,
)
from rmq.client.client import Client
from rmq.client.shared.tasks import some_at_a_time
from rmq.codes import ResponseCode
from rmq.delivery.popping import pop_retry_topics
from rmq.errors import InvalidArgument, Refusal, RmqError, partly, saying_more
from rmq.model import DLQ_PREFIX, RETRY_PREFIX, TopicConfig
from rmq.net.commands import UpdateTopics
from rmq.net.commands.routes import Added, AddWritePerm, Wiped, WipeWritePerm

_AT_ONCE: Final = 16  # topics


class Flow(NamedTuple):
    """Of one topic and one of its groups ("": nobody consumes it). Rates are of the last minute, counts of the last day."""

    topic: str
    group: str
    accumulation: int
    in_tps: float
    out_tps: float
    in_day: int
    out_day: int


async def clusters_of(client: Client, topic: str) -> list[str]:
    """The clusters whose brokers have the topic, sorted."""
    return sorted({group.cluster for group in (await topic_route(client, topic)).brokers})


async def update_perm(client: Client, topic: str, perm: int, *, cluster: str = "", broker: str = "") -> dict[str, int]:
    """Changes nothing else of the topic: by broker what it was. InvalidArgument if no broker of that cluster or name has it.
    [UpdateTopicPermSubCommand]"""
    found = await broker_addresses(client, cluster=cluster, broker=broker)
    if ":" not in broker:
        having = leaders(await topic_route(client, topic))
        found = [address for address in found if address in having]
    if not found:
        raise InvalidArgument(f"topic {topic} is not there; `rmq admin topicRoute -t {topic}` shows where it is")

    async def at(address: str) -> int:
        config = await topic_config(client, topic, address)
        await change(client, config._replace(perm=perm), address)
        return config.perm

    return dict(zip(found, await at_each(found, at), strict=True))


async def of_failed(client: Client, group: str, addresses: Sequence[str], silent: Silent) -> list[str]:
    """Topics with what the group failed: its retries, those of its pops (as far as these brokers say which there are; `silent`
    takes also those that refuse), its dead letters."""

    async def ask(address: str) -> list[str]:
        try:
            configs, groups = await asyncio.gather(topic_configs(client, address), group_configs(client, address))
        except RmqError as error:
            silent[address] = error
            return []
        return _of_pops(group, {config.name for config in configs}, {config.name for config in groups})

    popped = {topic for found in await asyncio.gather(*map(ask, addresses)) for topic in found}
    return [RETRY_PREFIX + group, DLQ_PREFIX + group, *sorted(popped)]


async def delete_group_with_failed(
    client: Client, group: str, addresses: Sequence[str], *, cluster: str = "", broker: str = "", clean_offsets: bool
) -> None:
    """The group, and what it failed, at these brokers, which are those of the cluster, or of that name."""
    silent: Silent = {}
    failed = await of_failed(client, group, addresses, silent)
    await delete_group(client, group, cluster=cluster, broker=broker, clean_offsets=clean_offsets)
    try:
        for topic in failed:
            await delete_topic(client, topic, cluster=cluster, broker=broker)
        for why in silent.values():
            raise why
    except RmqError as error:
        raise saying_more(partly(error), f"; group {group} is deleted, but not all that it failed") from error


def _of_pops(group: str, topics: Collection[str], groups: Collection[str]) -> list[str]:
    """Without those that may be another group's: A_B of topic C has the same as A of B_C."""
    named = {name for topic in topics if not topic.startswith(RETRY_PREFIX) for name in pop_retry_topics(group, topic)}
    others = {RETRY_PREFIX + other for other in groups if other != group}

    def of_another(name: str) -> bool:
        begins = (name[:at] for at in range(len(RETRY_PREFIX), len(name) + 1) if name[at : at + 1] in ("", "_"))
        return any(begin in others and (begin == name or name[len(begin) + 1 :] in topics) for begin in begins)

    return [name for name in named if name in topics and not of_another(name)]


async def change(client: Client, config: TopicConfig, address: str) -> None:
    """Gives a topic of that broker these settings; its attributes stay as they are."""
    await ask_each(client, [address], UpdateTopics([config._replace(attributes={})]))


async def wipe_write_perm(client: Client, broker_name: str) -> dict[str, int]:
    """Routes name that broker's queues as not to be written from now on: by nameserver, in how many topics."""
    return await _counts(client, WipeWritePerm(broker_name))


async def add_write_perm(client: Client, broker_name: str) -> dict[str, int]:
    """Takes `wipe_write_perm` back."""
    return await _counts(client, AddWritePerm(broker_name))


async def _counts(client: Client, request: WipeWritePerm | AddWritePerm) -> dict[str, int]:
    """InvalidArgument if no nameserver knows that broker: they answer 0."""
    nameservers = client.session.nameservers.addresses
    answers = await change_each(client, nameservers, request)
    found = {at: answer[0] for at, answer in zip(nameservers, answers, strict=True) if isinstance(answer, Wiped | Added)}
    if not any(found.values()):
        known = {group.name for address in nameservers for group in (await one.cluster_info(client, address)).brokers}
        if request.broker_name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise InvalidArgument(f"no broker {request.broker_name} is registered; there are: {there}")
    return found


async def flows(client: Client, topics: Sequence[str], silent: Silent | None = None) -> list[Flow]:
    """What goes through each topic, group by group, without retry topics, dead letters, and what was deleted meanwhile. `silent`:
    as in `calls`; topics that nobody else has are left out, too. [StatsAllSubCommand]"""

    async def of(topic: str) -> list[Flow]:
        try:
            return await one.unless_silent(_flows_of(client, topic, silent), silent) or []
        except Refusal as refusal:
            if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
                return []
            raise

    wanted = [topic for topic in topics if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    return one.known([flow for flows in await some_at_a_time(_AT_ONCE, of, wanted) for flow in flows], silent)


async def _flows_of(client: Client, topic: str, silent: Silent | None) -> list[Flow]:
    told = await of_each(leaders(await topic_route(client, topic)), partial(one.groups_of_topic, client, topic), silent)
    addresses, groups = list(told), {group for each in told.values() for group in each}
    in_tps, in_day = await _counted(client, addresses, "TOPIC_PUT_NUMS", topic)
    found = []
    for group in sorted(groups) or [""]:
        out_tps, out_day, behind = 0.0, 0, 0
        if group:
            out_tps, out_day = await _counted(client, addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
            behind = await _behind(client, addresses, group, topic)
        found.append(Flow(topic, group, behind, in_tps, out_tps, in_day, out_day))
    return found


async def _behind(client: Client, addresses: Sequence[str], group: str, topic: str) -> int:
    """At all of them; 0 where nobody knows (a broadcasting group)."""
    stats = [await one.consume_stats(client, group, address, topic) for address in addresses]
    return sum(max(0, row.broker_offset - row.consumer_offset) for each in stats for row in each.queues)


async def _counted(client: Client, addresses: Sequence[str], name: str, key: str) -> tuple[float, int]:
    """Per second in the last minute, and in the last day, at all of them."""
    tps, day = 0.0, 0
    for address in addresses:
        if found := await one.counted(client, name, key, address):
            tps += found.minute.tps
            day += one.of_a_day(found)
    return tps, day
