"""What a nameserver knows: the brokers, their topics, and until when each entry is valid.

All of it comes from registrations and goes without them; times are monotonic seconds that come in as arguments. The
nameserver does the networking and decides when to look for silent brokers. `claims` decides who may take over from whom.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import PERM_WRITE, BrokerAddresses, DataVersion, QueueData, Route
from rmq.names import check_broker_name, is_port
from rmq.routing.claims import LEADER, Claim, Known, check_claim
from rmq.routing.rows import Reported, routable, same_settings

__all__ = ["EXPIRY_S", "LEADER", "Change", "Outcome", "Registration", "Removed", "RouteTable"]

EXPIRY_S = 120.0
_MAX_ID = 2**63 - 1
MAX_GROUPS, MAX_MEMBERS = 10_000, 100  # broker groups in all, brokers of one
MAX_GROUPS_PER_CONNECTION = 8
MAX_ZONE = 127  # characters
MAX_TOPICS_OF_GROUP = 200_000
MAX_NAMES, MAX_ROWS = 500_000, 10_000_000  # topic names in all; rows, one for each topic of each group


class Registration(NamedTuple):
    """What one broker reports about itself. `topics`: all topics of its group if `whole`; else some of them, and the others stay
    as they are. `store`: its store's id; `members`: the stores of those that may lead after it. RocketMQ's brokers
    tell neither. `zone`: where it stands. `ha_address`: where RocketMQ's slaves copy from it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    epoch: int
    topics: Sequence[Reported]
    data_version: DataVersion = DataVersion()
    store: str = ""
    members: Sequence[str] = ()
    whole: bool = True
    zone: str = ""
    ha_address: str = ""


class Change(NamedTuple):
    """What changed at one broker since version `since` of its topics: `topics` are new or have other settings, `gone` are no
    more."""

    broker_name: str
    broker_id: int
    address: str
    epoch: int
    topics: Sequence[Reported]
    gone: Sequence[str]
    since: DataVersion
    data_version: DataVersion


class Outcome(NamedTuple):
    """`left_out`: how many topics of this registration are not served here, `about` one of them."""

    changed: bool
    left_out: int = 0
    about: str = ""


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
    store: str
    members: frozenset[str]
    ha_address: str

    def known(self) -> Known:
        return Known(self.address, self.store, self.members, self.heard)


class _Group:
    """Brokers that share one log. It stays for `expiry_s` after its last broker left, so that its epoch is remembered (N2)."""

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.epoch = 0
        self.led = False  # whether a leader told its topics; the epoch of RocketMQ's leaders is always 0
        self.zone = ""
        self.stores: frozenset[str] = frozenset()  # of the last leader and those that it named
        self.members: dict[int, _Member] = {}
        self.topics: dict[str, QueueData] = {}
        self.named: dict[str, QueueData] = {}  # topics that somebody else said it has
        self.left = 0.0  # when the last broker left

    def view(self) -> BrokerAddresses:
        addresses = {broker_id: self.members[broker_id].address for broker_id in sorted(self.members)}
        return BrokerAddresses(self.cluster, self.name, addresses, self.epoch, self.zone)

    def serves(self, zone: str) -> bool:
        """Whether clients of that zone are sent here; any who read, while the group has no leader [ZoneRouteRPCHook]."""
        return not zone.strip() or LEADER not in self.members or self.zone.lower() == zone.lower()


class RouteTable:
    """`expiry_s`: a broker silent this long is gone (N1)."""

    def __init__(self, expiry_s: float = EXPIRY_S) -> None:
        self.expiry_s = expiry_s
        self._groups: dict[str, _Group] = {}
        self._connections: dict[int, set[str]] = {}  # connection id -> broker groups that registered through it
        self._holders: Counter[str] = Counter()  # topic -> how many groups have it
        self._rows = 0
        self._wiped: set[str] = set()  # broker groups that are not to be written, whatever they say of themselves

    def register(self, broker: Registration, connection_id: int, now: float) -> Outcome:
        """Take a registration in. Connection ids must rise with time.

        The topics of the leader count; a follower's only while nothing better is known. A topic that cannot be served is
        left out, the others are. Raises Refusal, with the leader as hint, for one that may not be (see `claims`).
        """
        _check(broker)
        group = self._groups.get(broker.broker_name) or _Group(broker.cluster, broker.broker_name)
        self._check_room(group, broker.broker_id, connection_id)
        known = group.members.get(broker.broker_id)
        if known is not None and _is_stale(broker, connection_id, known):
            return Outcome(False)
        before = group.view()
        self._vacate(broker, group, connection_id, now)
        claim = Claim(broker.broker_name, broker.broker_id, broker.address, broker.epoch, broker.store)
        others = {broker_id: member.known() for broker_id, member in group.members.items()}
        check_claim(claim, others, group.epoch, group.stores, now)
        self._groups[group.name] = group
        changed, left_out = False, list[str]()
        if broker.broker_id == LEADER or not group.topics or not group.led:
            changed, left_out = self._hold(group, broker)
        self._place(broker, group, connection_id, now)
        return Outcome(changed or before != group.view(), len(left_out), left_out[0] if left_out else "")

    def _vacate(self, broker: Registration, group: _Group, connection_id: int, now: float) -> None:
        """A broker that claims another id gives its old one up, even if the claim is refused. Otherwise two brokers that exchange
        their ids would wait for each other."""
        me = (broker.address, broker.store, connection_id)
        for broker_id, member in list(group.members.items()):
            if broker_id != broker.broker_id and (member.address, member.store, member.connection_id) == me:
                self._remove(group, broker_id, now)

    def _check_room(self, group: _Group, broker_id: int, connection_id: int) -> None:
        mine = self._connections.get(connection_id, set())
        if group.name not in self._groups and len(self._groups) >= MAX_GROUPS:
            raise _full(f"{MAX_GROUPS} broker groups are registered here")
        if group.name not in mine and len(mine) >= MAX_GROUPS_PER_CONNECTION:
            raise _full(f"{MAX_GROUPS_PER_CONNECTION} broker groups are registered through this connection")
        if broker_id not in group.members and len(group.members) >= MAX_MEMBERS:
            raise _full(f"{MAX_MEMBERS} brokers of {group.name} are registered here")

    def _hold(self, group: _Group, broker: Registration) -> tuple[bool, list[str]]:
        """The group's topics after this registration: whether they changed, and what is left out. Equal rows are shared: a
        nameserver holds topics x broker groups of them."""
        old = group.topics
        held: dict[str, QueueData] = dict(group.named) if broker.whole else dict(old)
        shared = {same_settings(row): row for row in old.values()} if not broker.whole else {}
        left_out = []
        fresh = 0  # names that nobody had before
        for name, settings, why in broker.topics:
            if name not in old and not why:
                why = self._no_room(name, held, old, fresh)
                fresh += not why and name not in self._holders
            if why:
                left_out.append(why)
                continue
            if settings not in shared:
                shared[settings] = QueueData(group.name, *settings)
            held[name] = shared[settings]
        self._replace(group, held)
        return held != old, left_out

    def _no_room(self, name: str, held: dict[str, QueueData], old: dict[str, QueueData], fresh: int) -> str:
        """Why a topic that the group did not have cannot be added; "" if it can."""
        if len(held) >= MAX_TOPICS_OF_GROUP:
            return f"topic {name[:40]!r}: {MAX_TOPICS_OF_GROUP} topics of one broker are served here"
        too_many_names = name not in self._holders and len(self._holders) + fresh >= MAX_NAMES
        if too_many_names or self._rows + len(held) - len(old) >= MAX_ROWS:
            return f"topic {name[:40]!r}: this nameserver is full ({MAX_NAMES} topics, {MAX_ROWS} rows)"
        return ""

    def _replace(self, group: _Group, topics: dict[str, QueueData]) -> None:
        old, group.topics = group.topics, topics
        for name in topics.keys() - old.keys():
            self._count(name, 1)
        for name in old.keys() - topics.keys():
            self._count(name, -1)

    def _count(self, name: str, more: int) -> None:
        """So many more groups have the topic."""
        self._rows += more
        self._holders[name] += more
        if not self._holders[name]:
            del self._holders[name]

    def change(self, change: Change, connection_id: int, now: float) -> Outcome:
        """Take in what changed since the broker told of its topics last; the broker has been heard from.

        Raises Refusal unless what it told is what is known here: then it has to register.
        """
        group = self._groups.get(change.broker_name)
        member = group.members.get(change.broker_id) if group else None
        if group is None or member is None or not _follows(change, connection_id, member, group):
            about = f"what {change.broker_name[:60]} told of its topics before is not known here: register all of them"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        group.members[change.broker_id] = member._replace(data_version=change.data_version, heard=now)
        if change.broker_id != LEADER:
            return Outcome(False)
        left_out = []
        for name in change.gone:
            self._set(group, name, group.named.get(name))
        for name, settings, why in change.topics:
            if name not in group.topics and not why:
                why = self._no_room(name, group.topics, group.topics, 0)
            if why:
                left_out.append(why)
            self._set(group, name, group.named.get(name) if why else QueueData(group.name, *settings))
        return Outcome(True, len(left_out), left_out[0] if left_out else "")

    def _set(self, group: _Group, name: str, row: QueueData | None) -> None:
        """The group's topic is this now; None: it has none of that name."""
        before = len(group.topics)
        if row is None:
            group.topics.pop(name, None)
        else:
            group.topics[name] = row
        self._count(name, len(group.topics) - before)

    def _place(self, broker: Registration, group: _Group, connection_id: int, now: float) -> None:
        for broker_id, member in list(group.members.items()):
            if member.address == broker.address and broker_id != broker.broker_id:  # it changed its role
                del group.members[broker_id]
        stores = frozenset(filter(None, (broker.store, *broker.members)))
        if broker.broker_id == LEADER:
            group.cluster, group.epoch, group.stores, group.led = broker.cluster, broker.epoch, stores, True
        if broker.broker_id == LEADER or not group.zone:
            group.zone = broker.zone
        group.members[broker.broker_id] = _Member(
            broker.address, connection_id, broker.data_version, now, broker.store, stores, broker.ha_address
        )
        self._connections.setdefault(connection_id, set()).add(group.name)

    def knows(self, broker: Registration, connection_id: int, now: float) -> bool:
        """Whether it registered all that through this connection; then it has been heard from."""
        group = self._groups.get(broker.broker_name)
        member = group.members.get(broker.broker_id) if group else None
        same = (broker.address, broker.data_version, connection_id)
        if group is None or member is None or (member.address, member.data_version, member.connection_id) != same:
            return False
        group.members[broker.broker_id] = member._replace(heard=now)
        return True

    # --- leaving

    def unregister(self, broker_name: str, broker_id: int, address: str, connection_id: int, now: float) -> bool:
        """Removes a broker that unregisters through the connection that registered it. True if it was there at that address."""
        group = self._groups.get(broker_name)
        member = group.members.get(broker_id) if group else None
        if group is None or member is None or (member.address, member.connection_id) != (address, connection_id):
            return False
        self._remove(group, broker_id, now)
        return True

    def connection_closed(self, connection_id: int, now: float) -> list[Removed]:
        """Removes the brokers that registered through it last; those that registered again through another one stay."""
        names = self._connections.pop(connection_id, ())
        return [
            self._remove(self._groups[name], broker_id, now)
            for name in sorted(names)
            for broker_id, member in self._members(name)
            if member.connection_id == connection_id
        ]

    def expire(self, now: float) -> list[Removed]:
        """Removes brokers that were silent for more than `expiry_s`."""
        removed = [
            self._remove(group, broker_id, now)
            for group in self._groups.values()
            for broker_id, member in list(group.members.items())
            if now - member.heard > self.expiry_s
        ]
        for group in list(self._groups.values()):
            if not group.members and now - group.left > self.expiry_s:
                del self._groups[group.name]
                self._wiped.discard(group.name)
        return removed

    def _members(self, broker_name: str) -> list[tuple[int, _Member]]:
        group = self._groups.get(broker_name)
        return list(group.members.items()) if group else []

    def _remove(self, group: _Group, broker_id: int, now: float) -> Removed:
        member = group.members.pop(broker_id)
        if not group.members:
            self._replace(group, {})
            group.named.clear()
            group.left = now
        return Removed(group.name, broker_id, member.address)

    def name_topic(self, topic: str, queues: Sequence[QueueData]) -> None:
        """Routes name these queues from now on, until the topic is deleted here, or its broker group leaves; what the group says
        of that topic itself wins. All of them, or none. Raises Refusal [RouteInfoManager.registerTopic]."""
        for row in queues:
            group = self._groups.get(row.broker_name)
            if group is None or not group.members:
                raise Refusal(ResponseCode.INVALID_PARAMETER, f"no broker {row.broker_name[:60]!r} is registered here")
            why = routable(topic, *same_settings(row))
            if why or (topic not in group.topics and (why := self._no_room(topic, group.topics, group.topics, 0))):
                raise Refusal(ResponseCode.INVALID_PARAMETER, why)
        for row in queues:
            group = self._groups[row.broker_name]
            group.named[topic] = row
            self._set(group, topic, row)

    def delete_topic(self, topic: str, cluster: str = "") -> bool:
        """Forget a topic ("" for all clusters) until a broker names it again; whether it was known."""
        holders = [group for group in self._groups.values() if topic in group.topics and cluster in ("", group.cluster)]
        for group in holders:
            group.named.pop(topic, None)
            self._set(group, topic, None)
        return bool(holders)

    # --- asking

    def leads_through(self, broker_name: str, connection_id: int) -> bool:
        """Whether the group's leader registered through that connection last."""
        leader = dict(self._members(broker_name)).get(LEADER)
        return leader is not None and leader.connection_id == connection_id

    def leader_of(self, broker_name: str) -> tuple[str, str]:
        """The address of the group's leader, and the one where RocketMQ's slaves copy from it; "" where nobody said any."""
        leader = dict(self._members(broker_name)).get(LEADER)
        return (leader.address, leader.ha_address) if leader else ("", "")

    def route(self, topic: str, zone: str = "") -> Route:
        """Raises Refusal (TOPIC_NOT_EXIST). A group without a leader stays in it, to be read from its followers. `zone`: only
        what clients of that zone use; that may be nothing."""
        holders = sorted((group for group in self._groups.values() if topic in group.topics), key=lambda group: group.name)
        if not holders:
            about = f"No topic route info in name server for the topic: {topic}; no registered broker has it"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, about)
        near = [group for group in holders if group.serves(zone)]
        return Route([group.view() for group in near], [self._row(group, topic) for group in near])

    def _row(self, group: _Group, topic: str) -> QueueData:
        row = group.topics[topic]
        return row._replace(perm=row.perm & ~PERM_WRITE) if group.name in self._wiped else row

    def may_write(self, broker_name: str, allowed: bool) -> int:
        """Whether routes say that topics of this broker group may be written there. How many topics that is; 0: it is unknown."""
        group = self._groups.get(broker_name)
        if group is None:
            return 0
        if allowed:
            self._wiped.discard(broker_name)
        else:
            self._wiped.add(broker_name)
        return len(group.topics)

    def is_writable(self, broker_name: str) -> bool | None:
        """What `may_write` said last; None for an unknown group."""
        return broker_name not in self._wiped if broker_name in self._groups else None

    def topics_of(self, cluster: str) -> list[str]:
        """Sorted."""
        return sorted(set().union(*(group.topics for group in self._groups.values() if group.cluster == cluster)))

    def topics_with(self, flags: int, without: int = 0) -> list[str]:
        """Topics that have these bits of their `sys_flag` somewhere, and none of the others there. Sorted."""
        found = (name for group in self._groups.values() for name, row in group.topics.items() if _has(row, flags, without))
        return sorted(set(found))

    def clusters(self) -> list[BrokerAddresses]:
        """Every broker group that has a broker, sorted by name."""
        return [self._groups[name].view() for name in sorted(self._groups) if self._groups[name].members]

    def knows_group(self, name: str) -> bool:
        """Whether it has a broker, or had one until lately (`expire`)."""
        return name in self._groups

    def sizes(self) -> list[tuple[tuple[str, str], int, int]]:
        """Of every broker group that has a broker: cluster and name, how many brokers, how many topics."""
        return [((one.cluster, one.name), len(one.members), len(one.topics)) for one in self._groups.values() if one.members]

    @property
    def topic_count(self) -> int:
        return len(self._holders)

    def checksum(self) -> int:
        """A hash of all registrations and their numbers of topics: equal tables have equal hashes."""
        rows = [(*group.view()[:3], len(group.topics)) for _, group in sorted(self._groups.items()) if group.members]
        return crc32(repr(rows).encode())

    def topics(self) -> list[str]:
        """Sorted; system, %RETRY% and %DLQ% topics included."""
        return sorted(self._holders)


def _has(row: QueueData, flags: int, without: int) -> bool:
    return row.sys_flag & flags == flags and not row.sys_flag & without


def _is_stale(broker: Registration, connection_id: int, known: _Member) -> bool:
    """Whether it was sent before a newer one, through a connection that has been replaced, and was overtaken (N5)."""
    newer = known.connection_id > connection_id and known.address == broker.address
    return newer and broker.data_version.counter <= known.data_version.counter


def _follows(change: Change, connection_id: int, member: _Member, group: _Group) -> bool:
    """Whether it goes on from what is known. The topics are those of the leader; without one, of whoever registers."""
    same = (member.address, member.connection_id, member.data_version) == (change.address, connection_id, change.since)
    return same and (change.epoch == group.epoch if change.broker_id == LEADER else LEADER in group.members)


def _check(broker: Registration) -> None:
    check_broker_name(broker.cluster)
    check_broker_name(broker.broker_name)
    host, _, port = broker.address.rpartition(":")
    if not host or not is_port(port) or len(host) > 255:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"broker address {broker.address[:60]!r}: host:port is expected")
    if not 0 <= broker.broker_id <= _MAX_ID or not 0 <= broker.epoch <= _MAX_ID:
        about = f"brokerId {broker.broker_id}, epoch {broker.epoch}: both must be 0 or more"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)
    if len(broker.zone) > MAX_ZONE or not broker.zone.isprintable():
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"zone {broker.zone[:60]!r}: at most {MAX_ZONE} printable characters")
    if len(broker.members) > MAX_MEMBERS or any(len(store) > 64 for store in (broker.store, *broker.members)):
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"a store's id has 16 characters, and {MAX_MEMBERS} members are the most")


def _full(about: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{about}, which is the most (docs/limits.md)")
