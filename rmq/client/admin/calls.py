"""Administration as functions of a client, for the CLI and other tools: requests to nameservers and brokers.

Every function raises Refusal (with the reason), Unreachable or Unknown. Those that ask several brokers raise the first
failure, unless their text says otherwise; those that change something do so at the others all the same. Brokers that do not
answer are noted in `silent`, where that is given, and left out as long as others answer. [DefaultMQAdminExtImpl]
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from rmq.client.client import Client
from rmq.client.shared.routes import LEADER, find, merge, newest
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError, Unknown, Unreachable, done_in_part
from rmq.model import RETRY_PREFIX, BrokerAddresses, GroupConfig, MessageQueue, Route, TopicConfig
from rmq.net.commands import (
    Answer,
    CleanExpiredQueues,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    DeleteExpiredLog,
    DeleteGroup,
    DeleteTopic,
    DeleteTopicInNameserver,
    GetAllGroupConfig,
    GetAllTopicConfig,
    GetClusterInfo,
    GetConsumerConnection,
    GetConsumeStats,
    GetGroupConfig,
    GetMaxOffset,
    GetMinOffset,
    GetRoute,
    GetRuntimeInfo,
    GetTopicConfig,
    GetTopicList,
    GetTopicStats,
    GroupConfigs,
    GroupList,
    OffsetAnswer,
    Ping,
    QueryTopicConsumeByWho,
    Request,
    RuntimeInfo,
    SearchOffset,
    TopicConfigs,
    TopicList,
    TopicStats,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.commands.node import CleanUnusedTopics
from rmq.net.transport.network import checked_address

Silent = dict[str, RmqError]  # nodes that do not answer, and why
_A = TypeVar("_A")
_N = TypeVar("_N", int, float)
_T = TypeVar("_T")


# --- cluster ----------------------------------------------------------------------------------------------------------


async def ping(client: Client, address: str, timeout_s: float = 3.0) -> None:
    """Returns when the node at `address`, of any role, answers."""
    await client.session.connections.request(address, Ping(), timeout_s)


async def cluster_info(client: Client) -> ClusterInfo:
    """Every broker group that a nameserver knows, each as it registered last."""
    answers = [_typed(ClusterInfo, answer) for answer in await client.session.nameservers.ask_all(GetClusterInfo())]
    return ClusterInfo(newest([Route(answer.brokers, []) for answer in answers]))


async def registered(client: Client) -> ClusterInfo:
    """The same; RmqError if there is none, which hides what else was asked for."""
    info = await cluster_info(client)
    if not info.brokers:
        raise RmqError("no broker is registered")
    return info


def groups_of(info: ClusterInfo, cluster: str) -> list[BrokerAddresses]:
    """The broker groups of a cluster ("": of all), by cluster and name. Raises InvalidArgument if there are none."""
    found = [group for group in info.brokers if cluster in ("", group.cluster)]
    if not found:
        raise InvalidArgument(f"no broker of a cluster {cluster} is registered; `rmq admin clusterList` shows all")
    return sorted(found, key=lambda group: (group.cluster, group.name))


async def broker_addresses(client: Client, *, cluster: str = "", broker: str = "", leaders_only: bool = True) -> list[str]:
    """Addresses of brokers, sorted: of one cluster, of one broker (its name or "host:port"), or of all.

    Raises InvalidArgument when that is nobody, with the names there are, or no address; RmqError when no broker is registered.
    """
    if ":" in broker:
        return [checked_address(broker)]
    info = await registered(client)
    groups = [each for each in info.brokers if cluster in ("", each.cluster) and broker in ("", each.name)]
    found = {address for each in groups for address in ([leading(each)] if leaders_only else each.addresses.values())}
    if not found:
        known = ", ".join(sorted(f"{each.cluster}/{each.name}" for each in info.brokers))
        raise InvalidArgument(f"{nobody(cluster, broker)}; registered: {known}")
    return sorted(found)


def nobody(cluster: str, broker: str) -> str:
    """What was asked for, and is not there."""
    return f"no broker{broker and f' {broker!r}'}{cluster and f' of a cluster {cluster!r}'}"


async def runtime_info(client: Client, address: str) -> dict[str, str]:
    """State and counters of one broker, by RocketMQ's names."""
    answer = await client.session.connections.request(address, GetRuntimeInfo())
    return _typed(RuntimeInfo, answer).table


def rate(info: Mapping[str, str], name: str) -> float:
    """The average over 10 s out of `a b c` (10 s, 60 s, 600 s) in runtime info; 0 if it is not there. Raises BadBytes."""
    return _number(info, name, float)


def count(info: Mapping[str, str], name: str) -> int:
    """The same of a count. Raises BadBytes."""
    return _number(info, name, int)


def _number(info: Mapping[str, str], name: str, kind: type[_N]) -> _N:
    text = (info.get(name, "").split() or ["0"])[0]
    with suppress(ValueError):
        found = kind(text)
        if abs(found) < 2**63:  # which is true of no NaN
            return found
    raise BadBytes(f"{name} is {text[:40]!r}, no number of 64 bits")


async def delete_expired_log(client: Client, *, cluster: str = "", broker: str = "") -> list[str]:
    """Delete old segments now, not at the usual hour; returns the brokers' addresses."""
    return await _ask_brokers(client, cluster, broker, DeleteExpiredLog())


async def clean_expired_queues(client: Client, *, cluster: str = "", broker: str = "") -> list[str]:
    """Delete queue files whose messages are gone; returns the brokers' addresses."""
    return await _ask_brokers(client, cluster, broker, CleanExpiredQueues())


async def clean_unused_topics(client: Client, *, cluster: str = "", broker: str = "") -> list[str]:
    """Delete the files that deleted topics left; returns when they are gone, with the brokers' addresses."""
    return await _ask_brokers(client, cluster, broker, CleanUnusedTopics())


async def _ask_brokers(client: Client, cluster: str, broker: str, request: Request) -> list[str]:
    addresses = await broker_addresses(client, cluster=cluster, broker=broker, leaders_only=False)
    await change_each(client, addresses, request)
    return addresses


# --- topics -----------------------------------------------------------------------------------------------------------


async def topic_list(client: Client) -> list[str]:
    """All topics of all brokers, sorted, with system topics."""
    told = [_typed(TopicList, each) for each in await client.session.nameservers.ask_all(GetTopicList())]
    return sorted({topic for each in told for topic in each.topics})


async def topic_route(client: Client, topic: str) -> Route:
    """Where the topic lives now, as all nameservers together know it. Refusal(TOPIC_NOT_EXIST) if nowhere."""
    routes = [_typed(Route, each) for each in await client.session.nameservers.ask_all(GetRoute(topic))]
    return merge(routes, {group.name: group for group in newest(routes)})


async def topic_stats(client: Client, topic: str, silent: Silent | None = None) -> TopicStats:
    """First and next offset of every queue at every broker, sorted; the rates added up."""
    route = await topic_route(client, topic)
    answers = [_typed(TopicStats, each) for each in await ask_each(client, leaders(route), GetTopicStats(topic), silent)]
    return TopicStats(sorted(row for each in answers for row in each.queues), sum(each.topic_put_tps for each in answers))


async def topic_config(client: Client, topic: str, address: str, timeout_s: float | None = None) -> TopicConfig:
    """The settings one broker has for the topic."""
    return _typed(TopicConfig, await _ask(client, address, GetTopicConfig(topic), timeout_s))


async def topic_configs(client: Client, address: str) -> list[TopicConfig]:
    """All topics of one broker."""
    return _typed(TopicConfigs, await _ask(client, address, GetAllTopicConfig())).topics


async def update_topic(
    client: Client,
    topic: str,
    *,
    cluster: str = "",
    broker: str = "",
    read_queues: int = 8,
    write_queues: int = 8,
    perm: int = 6,
    order: bool = False,
    sys_flag: int = 0,
    attributes: str = "",
) -> list[str]:
    """Make the topic or change it, at every broker of a cluster or at one; returns their addresses.

    `sys_flag`: of UNIT and UNIT_SUBSCRIBED. `attributes`: "+key=value,-key". Raises InvalidArgument when neither cluster nor
    broker is given.
    """
    if not cluster and not broker:
        raise InvalidArgument("say where: a cluster or a broker")
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    request = UpdateTopic(
        topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        topic_sys_flag=sys_flag,
        order=order,
        attributes=attributes,
    )
    await change_each(client, addresses, request)
    return addresses


create_topic = update_topic


async def delete_topic(client: Client, topic: str, *, cluster: str = "", broker: str = "") -> list[str]:
    """Delete it at the brokers of a cluster, or at one; then at every nameserver that answers. Returns the brokers' addresses."""
    if not cluster and not broker:
        raise InvalidArgument("say where: a cluster or a broker")
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    await change_each(client, addresses, DeleteTopic(topic))
    if not broker:
        request = DeleteTopicInNameserver(topic, cluster)
        await _ask_quietly(client, client.session.nameservers.addresses, request)
    return addresses


async def max_offset(client: Client, queue: MessageQueue) -> int:
    """The offset the next message of the queue gets."""
    return await _offset(client, queue, GetMaxOffset(queue.topic, queue.queue_id))


async def min_offset(client: Client, queue: MessageQueue) -> int:
    """The offset of the oldest message that is still there; 0 before the first one."""
    return max(0, await _offset(client, queue, GetMinOffset(queue.topic, queue.queue_id)))


async def search_offset(client: Client, queue: MessageQueue, timestamp_ms: int, boundary: str = "LOWER") -> int:
    """The first offset stored at or after the time (LOWER), or the last at or before it (UPPER)."""
    return await _offset(client, queue, SearchOffset(queue.topic, queue.queue_id, timestamp_ms, boundary))


# --- consumer groups --------------------------------------------------------------------------------------------------


async def consume_stats(
    client: Client, group: str, topic: str = "", cluster: str = "", silent: Silent | None = None
) -> ConsumeStats:
    """How far the group is in every queue of `topic` (default: of all it consumed, without those to which none of its members
    subscribes any more), sorted; the rates added up. `cluster`: at its brokers only.

    Refusal(SUBSCRIPTION_GROUP_NOT_EXIST) when no broker knows the group.
    """
    addresses = await broker_addresses(client, cluster=cluster) if cluster else await group_addresses(client, group)
    request = GetConsumeStats(group, topic_list=topic)
    answers = [_typed(ConsumeStats, each) for each in _those_who_know(await _ask_quietly(client, addresses, request, silent))]
    return ConsumeStats(sorted(row for each in answers for row in each.queues), sum(each.consume_tps for each in answers))


async def consumer_connection(client: Client, group: str, broker: str = "", silent: Silent | None = None) -> ConsumerConnection:
    """The group's members, as the first broker that has any lists them, or this `broker`: a name, or "host:port". One that does
    not answer matters only where no other one has any. Refusal(CONSUMER_NOT_ONLINE) if there are none."""
    addresses = await broker_addresses(client, broker=broker) if broker else await group_addresses(client, group)
    return _typed(ConsumerConnection, (await ask_any(client, addresses, GetConsumerConnection(group), silent))[0])


async def groups_of_topic(client: Client, topic: str, silent: Silent | None = None) -> list[str]:
    """Groups that consume the topic, sorted."""
    route = await topic_route(client, topic)
    answers = await ask_each(client, leaders(route), QueryTopicConsumeByWho(topic), silent)
    return sorted({group for each in answers for group in _typed(GroupList, each).groups})


async def group_list(client: Client) -> list[str]:
    """Groups that have consumed anything in cluster mode, sorted: they are known by their retry topics."""
    return [topic.removeprefix(RETRY_PREFIX) for topic in await topic_list(client) if topic.startswith(RETRY_PREFIX)]


async def group_config(client: Client, group: str, address: str, timeout_s: float | None = None) -> GroupConfig:
    """The settings one broker has for the group."""
    return _typed(GroupConfig, await _ask(client, address, GetGroupConfig(group), timeout_s))


async def group_configs(client: Client, address: str) -> list[GroupConfig]:
    """All groups of one broker."""
    return _typed(GroupConfigs, await _ask(client, address, GetAllGroupConfig())).groups


async def update_group(client: Client, config: GroupConfig, *, cluster: str = "", broker: str = "") -> list[str]:
    """Make the group or change it, at every broker of a cluster or at one; returns their addresses."""
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    await change_each(client, addresses, UpdateGroup(config))
    return addresses


async def delete_group(
    client: Client, group: str, *, cluster: str = "", broker: str = "", clean_offsets: bool = False
) -> list[str]:
    """Delete the group, and its offsets if asked, at every broker of a cluster or at one; returns their addresses."""
    addresses = await broker_addresses(client, cluster=cluster, broker=broker)
    await change_each(client, addresses, DeleteGroup(group, clean_offsets))
    return addresses


async def set_offset(client: Client, group: str, queue: MessageQueue, offset: int) -> None:
    """Set where a group goes on in a queue, also its members that are connected. `resets` shows first what that means."""
    address = await _leader_of(client, queue)
    await _ask(client, address, UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset))


# --- asking several ---------------------------------------------------------------------------------------------------


def leaders(route: Route) -> list[str]:
    """An address of each broker group in a route, by broker name."""
    return [leading(each) for each in sorted(route.brokers, key=lambda each: each.name)]


def leading(group: BrokerAddresses) -> str:
    """The leader's address; without a leader that of another node, which answers what is committed and refuses changes."""
    return group.addresses.get(LEADER) or group.addresses[min(group.addresses)]


async def _ask(client: Client, address: str, request: Request, timeout_s: float | None = None) -> Answer:
    """Asks a node. If it refuses what only a leader does, and names the leader, asks that one."""
    return await client.session.leaders.request_from(address, request, timeout_s)


async def ask_each(client: Client, addresses: Iterable[str], request: Request, silent: Silent | None = None) -> list[Answer]:
    """All answers, in the order of the addresses. Raises the first failure."""
    ask = partial(_ask, client, request=request)
    if silent is None:
        return list(await asyncio.gather(*map(ask, addresses)))
    return list((await of_each(addresses, ask, silent)).values())


async def of_each(
    places: Iterable[str],
    ask: Callable[[str], Awaitable[_T]],
    silent: Silent | None,
    takes: tuple[type[RmqError], ...] = (Unreachable, Unknown),
) -> dict[str, _T]:
    """What each of them answers. Raises the first failure that `silent` does not take; where nobody answers, why."""
    found: dict[str, _T] = {}

    async def one(place: str) -> None:
        try:
            found[place] = await ask(place)
        except takes as error:
            if silent is None:
                raise
            silent[place] = error

    places = list(places)
    await asyncio.gather(*(one(place) for place in places if not silent or place not in silent))
    if silent and places and not found:
        raise silent[places[0]]
    return {place: found[place] for place in places if place in found}


async def of_each_node(places: Iterable[str], ask: Callable[[str], Awaitable[_T]], silent: Silent) -> dict[str, _T]:
    """As `of_each`, of what a node says of itself: `silent` takes also those that refuse."""
    return await of_each(places, ask, silent, (Unreachable, Unknown, Refusal))


async def change_each(client: Client, addresses: Iterable[str], request: Request) -> list[Answer]:
    """As `ask_each`, of a change: see `at_each`."""
    return await at_each(addresses, partial(_ask, client, request=request))


async def at_each(places: Iterable[str], change: Callable[[str], Awaitable[_T]]) -> list[_T]:
    """Makes a change at each place, also where one of them fails. Raises the first failure, which says where it is done; Unknown
    in place of Unreachable (nothing was done) where it is done at some, or may be."""
    places = list(places)
    outcomes = await asyncio.gather(*map(change, places), return_exceptions=True)
    failed = {place: outcome for place, outcome in zip(places, outcomes, strict=True) if isinstance(outcome, BaseException)}
    first = next(iter(failed.values()), None)
    if isinstance(first, RmqError) and len(places) > 1:
        done = ", ".join(place for place in places if place not in failed)
        raise done_in_part(first, failed.values(), done, f"; done at {done or 'none of them'}, not at {', '.join(failed)}")
    if first is not None:
        raise first
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def _ask_quietly(
    client: Client, addresses: Sequence[str], request: Request, silent: Silent | None = None
) -> list[Answer | RmqError]:
    async def one(address: str) -> Answer | RmqError:
        try:
            return await _ask(client, address, request)
        except RmqError as error:
            if silent is not None and isinstance(error, Unreachable | Unknown):
                raise
            return error

    return list((await of_each(addresses, one, silent)).values())


async def ask_any(client: Client, addresses: Sequence[str], request: Request, silent: Silent | None = None) -> list[Answer]:
    """Answers of the brokers that have any; raises as `_those_who_know` only where none has."""
    answers = await _ask_quietly(client, addresses, request, silent)
    return [each for each in answers if not isinstance(each, RmqError)] or _those_who_know(answers)


def _those_who_know(answers: Sequence[Answer | RmqError]) -> list[Answer]:
    """Answers of the brokers that do not refuse; raises the first refusal if all do, and other failures."""
    failures = [each for each in answers if isinstance(each, RmqError)]
    for failure in failures:
        if not isinstance(failure, Refusal) or len(failures) == len(answers):
            raise failure
    return [each for each in answers if not isinstance(each, RmqError)]


async def group_addresses(client: Client, group: str) -> list[str]:
    """Leaders of the brokers that know the group: those with its retry topic, or its settings if it has not consumed yet."""
    try:
        return leaders(await topic_route(client, RETRY_PREFIX + group))
    except Refusal as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        unknown = Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no broker knows group {group}")
    addresses = await broker_addresses(client)
    answers = list(zip(addresses, await _ask_quietly(client, addresses, GetAllGroupConfig()), strict=True))
    found = [at for at, each in answers if isinstance(each, GroupConfigs) and any(one.name == group for one in each.groups)]
    if not found:
        raise next((each for _, each in answers if isinstance(each, RmqError)), unknown)
    return found


async def _leader_of(client: Client, queue: MessageQueue) -> str:
    await find(client.session.routes, queue.broker_name, queue.topic)
    return client.session.routes.leader(queue.broker_name)


async def _offset(client: Client, queue: MessageQueue, request: Request) -> int:
    await find(client.session.routes, queue.broker_name, queue.topic)
    answer = await _ask(client, client.session.routes.reader(queue.broker_name), request)
    return _typed(OffsetAnswer, answer).offset


def _typed(kind: type[_A], answer: object) -> _A:
    assert isinstance(answer, kind), f"{kind.__name__} expected, {type(answer).__name__} came"
    return answer
