"""One topic at one broker, as a route tells it: which values are possible. Nameserver and client both check. Pure."""

import sys
from typing import NamedTuple

from rmq.errors import Refusal
from rmq.model import BrokerAddresses, QueueData, Route, TopicConfig
from rmq.names import check_known_topic

MAX_QUEUES = 16_384  # of one topic at one broker; 1 024 can be asked for here, RocketMQ knows no limit
MAX_ROUTE_QUEUES = 100_000  # of one topic at all brokers: a client keeps something for each
MAX_ROUTE_GROUPS, MAX_ROUTE_ADDRESSES = 1_000, 4_000  # broker groups that have one topic, and all their nodes
_MAX_FLAG = 2**31


def routable(name: str, read_queues: int, write_queues: int, perm: int, sys_flag: int) -> str:
    """Why this topic cannot be served; "" if it can."""
    if not 0 <= read_queues <= MAX_QUEUES or not 0 <= write_queues <= MAX_QUEUES:
        return f"topic {name[:40]!r} has {read_queues} and {write_queues} queues: 0 to {MAX_QUEUES} are served"
    if not 0 <= perm <= 7 or not -_MAX_FLAG <= sys_flag < _MAX_FLAG:
        return f"topic {name[:40]!r}: perm {perm} is not 0 to 7, or topicSysFlag {sys_flag} has more than 32 bits"
    try:
        check_known_topic(name)
    except Refusal as refusal:
        return refusal.remark
    return ""


class Reported(NamedTuple):
    """A topic as a broker reports it. `settings`: see `same_settings`; `why`: why it cannot be served, "" if it can."""

    name: str
    settings: tuple[int, int, int, int]
    why: str


def reported(config: TopicConfig) -> Reported:
    """Names are interned: a nameserver holds each once, however many brokers have the topic."""
    settings = (config.read_queue_nums, config.write_queue_nums, config.perm, config.sys_flag)
    return Reported(sys.intern(config.name), settings, routable(config.name, *settings))


def same_settings(row: QueueData) -> tuple[int, int, int, int]:
    """What rows of one broker must have in common to be one."""
    return row.read_queue_nums, row.write_queue_nums, row.perm, row.sys_flag


def believable(route: Route) -> Route:
    """The part of a nameserver's answer that a client or broker believes: possible queues, and not too many; and not too many
    broker groups, because a client connects to each node of them."""
    groups = _first_groups(route.brokers)
    left_out = {group.name for group in route.brokers[len(groups) :]}
    queues, room = [], MAX_ROUTE_QUEUES
    for row in route.queues:
        count = max(row.read_queue_nums, row.write_queue_nums)
        fits = min(row.read_queue_nums, row.write_queue_nums) >= 0 and count <= min(MAX_QUEUES, room)
        if fits and row.broker_name not in left_out:
            queues.append(row)
            room -= count
    whole = not left_out and len(queues) == len(route.queues)
    return route if whole else route._replace(brokers=groups, queues=queues)


def _first_groups(groups: list[BrokerAddresses]) -> list[BrokerAddresses]:
    room = MAX_ROUTE_ADDRESSES
    for count, group in enumerate(groups):
        room -= len(group.addresses)
        if room < 0 or count >= MAX_ROUTE_GROUPS:
            return groups[:count]
    return groups
