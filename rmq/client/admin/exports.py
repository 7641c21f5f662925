"""What mqadmin exports to files: settings, topics and groups, and what goes through a cluster, in the shapes of its files.

Every function raises InvalidArgument (no such cluster or broker), BadBytes, Refusal, Unreachable or Unknown; of several nodes,
the first failure: an export is whole or it is none.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from rmq.client.admin import calls as ask, configuration, one
from rmq.client.admin.topickinds import is_system_group, kind
from rmq.client.client import Client
from rmq.codes import version_name
from rmq.errors import BadBytes
from rmq.model import DELAY_TOPIC, HALF_TOPIC, BrokerAddresses, GroupConfig, TopicConfig
from rmq.net.remoting.bodies import group_json, topic_json

Json = dict[str, Any]
T = TypeVar("T", TopicConfig, GroupConfig)

SETTINGS: Final = (  # [ExportConfigsCommand.needBrokerProprties]
    "autoCreateSubscriptionGroup", "autoCreateTopicEnable", "brokerClusterName", "brokerId", "brokerName", "brokerRole",
    "fileReservedTime", "filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName",
    "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS",
)  # fmt: skip


async def configs(client: Client, cluster: str) -> Json:
    """How many nodes the cluster has, and the settings that matter most of each group's leader. [ExportConfigsCommand]"""
    groups = ask.groups_of(await ask.cluster_info(client), cluster)
    found = {group.name: await configuration.broker_config(client, ask.leading(group)) for group in groups}
    return {
        "brokerConfigs": {name: {key: config[key] for key in SETTINGS if key in config} for name, config in found.items()},
        "clusterScale": {
            "masterBrokerSize": len(groups),
            "namesrvSize": len(client.session.nameservers.addresses),
            "slaveBrokerSize": sum(len(group.addresses) - 1 for group in groups),
        },
    }


class Metadata(NamedTuple):
    """What users made, by name, in RocketMQ's shapes of TopicConfig and SubscriptionGroupConfig."""

    topics: Json
    groups: Json


async def metadata(client: Client, *, cluster: str = "", broker: str = "", special: bool = False) -> Metadata:
    """Of a cluster's brokers, or of one; queues of several brokers are added up. `special`: with the topics of retries and dead
    letters. [ExportMetadataCommand]"""
    owned = _Owned.of((await ask.cluster_info(client)).brokers)
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, GroupConfig] = {}
    for address in await ask.broker_addresses(client, cluster=cluster, broker=broker):
        _add(topics, await _topics(client, address, owned, special), _wider)
        _add(groups, await _consumer_groups(client, address), _wider_group)
    return Metadata(
        {name: topic_json(topics[name]) for name in sorted(topics)},
        {name: group_json(groups[name]) for name in sorted(groups)},
    )


def _add(table: dict[str, T], found: Iterable[T], both: Callable[[T, T], T]) -> None:
    for config in found:
        table[config.name] = both(table[config.name], config) if config.name in table else config


def _wider(first: TopicConfig, other: TopicConfig) -> TopicConfig:
    return other._replace(
        read_queue_nums=first.read_queue_nums + other.read_queue_nums,
        write_queue_nums=first.write_queue_nums + other.write_queue_nums,
    )


def _wider_group(first: GroupConfig, other: GroupConfig) -> GroupConfig:
    return other._replace(retry_queue_nums=first.retry_queue_nums + other.retry_queue_nums)


class _Owned(NamedTuple):
    """Names that have topics of their own."""

    clusters: frozenset[str]
    brokers: frozenset[str]

    @classmethod
    def of(cls, groups: Iterable[BrokerAddresses]) -> "_Owned":
        known = list(groups)
        return cls(frozenset(each.cluster for each in known), frozenset(each.name for each in known))


async def _topics(client: Client, address: str, owned: _Owned, special: bool) -> list[TopicConfig]:
    left_out = ("SYSTEM",) if special else ("SYSTEM", "RETRY", "DLQ")
    return [topic for topic in await ask.topic_configs(client, address) if kind(topic, *owned) not in left_out]


async def _consumer_groups(client: Client, address: str) -> list[GroupConfig]:
    return [group for group in await ask.group_configs(client, address) if not is_system_group(group.name)]


async def metrics(client: Client, cluster: str) -> Json:
    """What goes through each broker of the cluster, how full it is, and who is connected. [ExportMetricsCommand]"""
    info = await ask.cluster_info(client)
    brokers, owned = ask.groups_of(info, cluster), _Owned.of(info.brokers)
    report = {}
    for broker in brokers:
        try:
            report[broker.name] = await _measured(client, ask.leading(broker), owned)
        except BadBytes as error:
            raise BadBytes(f"{broker.name}: {error}") from error
    quotas = [each["runtimeQuota"] for each in report.values()]
    return {
        "evaluateReport": report,
        "totalData": {
            "totalOneDayNum": _total(quotas, "oneDayNum"),
            "totalTps": {f"total{name[:1].upper()}{name[1:]}": rate for name, rate in _total(quotas, "tps").items()},
        },
    }


def _total(quotas: Iterable[Json], name: str) -> Json:
    total = Counter[str]()
    for quota in quotas:
        total.update(quota[name])
    return dict(total)


async def _measured(client: Client, address: str, owned: _Owned) -> Json:
    info = await ask.runtime_info(client, address)
    groups = await _consumer_groups(client, address)
    halves, delayed = [await _put(client, address, topic) for topic in (HALF_TOPIC, DELAY_TOPIC)]
    return {
        "runtimeQuota": {
            "diskRatio": {name: info.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
            "groupSize": len(groups),
            "messageAverageSize": info.get("putMessageAverageSize"),
            "oneDayNum": {
                "normalOneDayInNum": _of_a_day(info, "Put"),
                "normalOneDayOutNum": _of_a_day(info, "Get"),
                "scheduleOneDayInNum": delayed[1],
                "transOneDayInNum": halves[1],
            },
            "topicSize": len(await _topics(client, address, owned, special=False)),
            "tps": {
                "normalInTps": ask.rate(info, "putTps"),
                "normalOutTps": ask.rate(info, "getTransferredTps"),
                "scheduleInTps": delayed[0],
                "transInTps": halves[0],
            },
        },
        "runtimeVersion": {
            "clientInfo": await _clients(client, address, groups),
            "rocketmqVersion": info.get("brokerVersionDesc"),
        },
    }


def _of_a_day(info: Mapping[str, str], what: str) -> int:
    """Messages of yesterday, as the broker counted them until this morning."""
    return ask.count(info, f"msg{what}TotalTodayMorning") - ask.count(info, f"msg{what}TotalYesterdayMorning")


async def _put(client: Client, address: str, topic: str) -> tuple[float, int]:
    """Messages a second in the last minute, and in the last day."""
    found = await one.counted(client, "TOPIC_PUT_NUMS", topic, address)
    return (found.minute.tps, one.of_a_day(found)) if found else (0.0, 0)


async def _clients(client: Client, address: str, groups: Iterable[GroupConfig]) -> list[str]:
    """Languages and versions of the consumers, each once."""
    found = [await one.connection(client, group.name, address) for group in groups]
    return sorted(
        {f"{each.language}%{version_name(each.version)}" for members in found if members for each in members.connections}
    )
