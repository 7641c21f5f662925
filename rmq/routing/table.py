"""The nameserver's mind: which brokers there are, what they hold, and until when that is believed.

All of it comes from registrations and is forgotten without them; times are monotonic seconds, handed in. Who speaks to
whom, and when to look for the silent, is the nameserver's business.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import BrokerAddresses, DataVersion, QueueData, Route, TopicConfig
from rmq.names import check_broker_name, check_topic_name

EXPIRY_S = 120.0
LEADER = 0  # key of the leader among a broker group's addresses [MixAll.MASTER_ID]
_MAX_ID = 2**63 - 1


class Registration(NamedTuple):
    """What one broker says of itself. `topics`: everything its group holds, not a change."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    epoch: int
    topics: Sequence[TopicConfig]
    data_version: DataVersion = DataVersion()


class Removed(NamedTuple):
    """A broker that left the table."""

    broker_name: str
    broker_id: int
    address: str


class _Member(NamedTuple):
    """One broker of a group, as last heard."""

    address: str
    connection_id: int
    data_version: DataVersion
    heard: float


class _Group:
    """Brokers that share one log. It stays for `expiry_s` after its last broker left, so that its epoch is remembered (N2)."""

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.epoch = 0
        self.members: dict[int, _Member] = {}
        self.topics: dict[str, QueueData] = {}
        self.left = 0.0  # when the last broker left

    def view(self) -> BrokerAddresses:
        addresses = {broker_id: self.members[broker_id].address for broker_id in sorted(self.members)}
        return BrokerAddresses(self.cluster, self.name, addresses, self.epoch)

    def hold(self, topics: Sequence[TopicConfig]) -> None:
        """Replace the list of topics. Equal rows are shared: a nameserver holds topics x broker groups of them."""
        shared: dict[tuple[int, int, int, int], QueueData] = {}
        held: dict[str, QueueData] = {}
        for config in topics:
            if config.name not in self.topics:
                check_topic_name(config.name)
            row = (config.read_queue_nums, config.write_queue_nums, config.perm, config.sys_flag)
            if row not in shared:
                shared[row] = QueueData(self.name, *row)
            held[sys.intern(config.name)] = shared[row]
        self.topics = held


class RouteTable:
    """`expiry_s`: a broker silent this long is gone (N1)."""

    def __init__(self, expiry_s: float = EXPIRY_S) -> None:
        self._expiry_s = expiry_s
        self._groups: dict[str, _Group] = {}
        self._connections: dict[int, set[str]] = {}  # connection id -> broker groups that registered through it

    def register(self, broker: Registration, connection_id: int, now: float) -> bool:
        """Take a registration in; whether the routes changed. Connection ids must rise with time.

        A leader needs the largest epoch seen; of two with the same epoch the first one stays (N2). The topics of the
        leader count; a follower's only while nothing better is known. Raises Refusal, with the leader as hint.
        """
        _check(broker)
        group = self._groups.get(broker.broker_name) or _Group(broker.cluster, broker.broker_name)
        if broker.broker_id == LEADER:
            self._check_leader(broker, group)
        known = group.members.get(broker.broker_id)
        if known is not None and _is_stale(broker, connection_id, known):
            return False
        before = (group.view(), group.topics)
        if broker.broker_id == LEADER or not group.topics or not group.epoch:
            group.hold(broker.topics)
        self._groups[group.name] = group
        self._place(broker, group, connection_id, now)
        return before != (group.view(), group.topics)

    def _check_leader(self, broker: Registration, group: _Group) -> None:
        leader = group.members.get(LEADER)
        if broker.epoch < group.epoch:
            about = f"{broker.broker_name}: epoch {broker.epoch} of {broker.address} is over, {group.epoch} is known here"
        elif leader is not None and broker.epoch == group.epoch and leader.address != broker.address:
            about = f"{broker.broker_name}: {leader.address} already leads in epoch {group.epoch}; do two brokers share the name?"
        else:
            return
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, about, leader.address if leader else "")

    def _place(self, broker: Registration, group: _Group, connection_id: int, now: float) -> None:
        for broker_id, member in list(group.members.items()):
            if member.address == broker.address and broker_id != broker.broker_id:  # it changed its role
                del group.members[broker_id]
        if broker.broker_id == LEADER:
            group.epoch = broker.epoch
        group.cluster = broker.cluster
        group.members[broker.broker_id] = _Member(broker.address, connection_id, broker.data_version, now)
        self._connections.setdefault(connection_id, set()).add(group.name)

    # --- leaving

    def unregister(self, broker_name: str, broker_id: int, address: str, now: float) -> bool:
        """A broker says goodbye; whether it was there at that address."""
        group = self._groups.get(broker_name)
        member = group.members.get(broker_id) if group else None
        if group is None or member is None or member.address != address:
            return False
        self._remove(group, broker_id, now)
        return True

    def connection_closed(self, connection_id: int, now: float) -> list[Removed]:
        """The brokers that registered through it last are gone; those that registered again through another stay."""
        names = self._connections.pop(connection_id, ())
        return [
            self._remove(self._groups[name], broker_id, now)
            for name in sorted(names)
            for broker_id, member in self._members(name)
            if member.connection_id == connection_id
        ]

    def expire(self, now: float) -> list[Removed]:
        """Removes who was silent for more than `expiry_s`."""
        removed = [
            self._remove(group, broker_id, now)
            for group in self._groups.values()
            for broker_id, member in list(group.members.items())
            if now - member.heard > self._expiry_s
        ]
        for group in list(self._groups.values()):
            if not group.members and now - group.left > self._expiry_s:
                del self._groups[group.name]
        return removed

    def _members(self, broker_name: str) -> list[tuple[int, _Member]]:
        group = self._groups.get(broker_name)
        return list(group.members.items()) if group else []

    def _remove(self, group: _Group, broker_id: int, now: float) -> Removed:
        member = group.members.pop(broker_id)
        if not group.members:
            group.topics = {}
            group.left = now
        return Removed(group.name, broker_id, member.address)

    def delete_topic(self, topic: str, cluster: str = "") -> bool:
        """Forget a topic ("" for all clusters) until a broker names it again; whether it was known."""
        holders = [group for group in self._groups.values() if topic in group.topics and cluster in ("", group.cluster)]
        for group in holders:
            group.topics = {name: data for name, data in group.topics.items() if name != topic}
        return bool(holders)

    # --- asking

    def route(self, topic: str) -> Route:
        """Raises Refusal (TOPIC_NOT_EXIST). A group without a leader stays in it, to be read from its followers."""
        holders = sorted((group for group in self._groups.values() if topic in group.topics), key=lambda group: group.name)
        if not holders:
            about = f"No topic route info in name server for the topic: {topic}; no registered broker has it"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, about)
        return Route([group.view() for group in holders], [group.topics[topic] for group in holders])

    def clusters(self) -> list[BrokerAddresses]:
        """Every broker group that has a broker, sorted by name."""
        return [self._groups[name].view() for name in sorted(self._groups) if self._groups[name].members]

    def topics(self) -> list[str]:
        """Sorted; system, %RETRY% and %DLQ% topics included."""
        return sorted(set().union(*(group.topics for group in self._groups.values())))


def _is_stale(broker: Registration, connection_id: int, known: _Member) -> bool:
    """Sent before a newer one, through a connection that has been replaced, and overtaken on the way (N5)."""
    newer = known.connection_id > connection_id and known.address == broker.address
    return newer and broker.data_version.counter <= known.data_version.counter


def _check(broker: Registration) -> None:
    check_broker_name(broker.cluster)
    check_broker_name(broker.broker_name)
    host, _, port = broker.address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or len(host) > 255:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"broker address {broker.address[:60]!r}: host:port is expected")
    if not 0 <= broker.broker_id <= _MAX_ID or not 0 <= broker.epoch <= _MAX_ID:
        about = f"brokerId {broker.broker_id}, epoch {broker.epoch}: both must be 0 or more"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)
