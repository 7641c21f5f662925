"""Counts and rates of a broker, under the names of RocketMQ's statistics. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.groups import ConsumeStats
from rmq.net.commands.vocabulary import command


class StatsRate(NamedTuple):
    """Of some time: how many, and how many a second. `avgpt` (of one call) is not kept."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsData(NamedTuple):
    minute: StatsRate
    hour: StatsRate
    day: StatsRate


@command(RequestCode.VIEW_BROKER_STATS_DATA, StatsData)
class GetStatsData(NamedTuple):
    """`stats_name`: TOPIC_PUT_NUMS or TOPIC_PUT_SIZE (key: a topic), GROUP_GET_NUMS or GROUP_GET_SIZE ("topic@group"),
    BROKER_PUT_NUMS or BROKER_GET_NUMS (the cluster). SYSTEM_ERROR where nothing was counted in the last day."""

    stats_name: str
    stats_key: str


class BrokerConsumeStats(NamedTuple):
    """`groups`: of each group that has offsets here, topic by topic."""

    broker_addr: str
    groups: dict[str, list[ConsumeStats]]
    total_diff: int = 0
    total_inflight_diff: int = 0


@command(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStats)
class GetBrokerConsumeStats(NamedTuple):
    """How far all groups are at this broker. `is_order`: in ordered topics only."""

    is_order: bool = False


StatisticsRequest = GetStatsData | GetBrokerConsumeStats
StatisticsAnswer = StatsData | BrokerConsumeStats
