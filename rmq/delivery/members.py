"""Connected clients: the members of each consumer group, their subscriptions, and the producers.

Heartbeats fill the registry. A member goes when its connection ends, or when it has not named the group for 120 s. Nothing is
stored: after a restart every client registers again. All times are monotonic seconds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from rmq.delivery.shares import Owner, Share, Shares
from rmq.model import BROADCASTING, RETRY_PREFIX, ConnectionInfo, ConsumerData, Subscription
from rmq.names import check_client_id

EXPIRY_S = 120.0
PLACES: Final = Share(of_connection=1_000, of_address=20_000, in_all=100_000)
"""How many clients in groups there may be, producers and consumers."""
SUBSCRIPTION_BYTES: Final = Share(of_connection=2 << 20, of_address=16 << 20, in_all=64 << 20)
"""Bytes of subscriptions, estimated; those of a group count for the client that sent them last."""
MAX_GROUP_LENGTH: Final = 255  # of a producer group's name [Validators]; the name is not stored
_MOST_TOLD = 200  # characters of subscriptions in a message
_ROW_BYTES = 128  # what a subscription, a tag or a code takes besides its text
K = TypeVar("K")
V = TypeVar("V")


class HeartbeatOutcome(NamedTuple):
    """`changed`: groups whose members should rebalance. `sub_changed`: the client should send its subscriptions in full.
    `refused`: what was not accepted, and why; "" if everything was."""

    changed: set[str]
    sub_changed: bool
    refused: str = ""


class ConsumerView(NamedTuple):
    """One group as the connection lists show it. The field order is that of the answer."""

    connections: list[ConnectionInfo]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: list[Subscription]


class _Member(NamedTuple):
    """A client in one group. `heard`: its last heartbeat that named the group. `wants`: a hash of what it subscribes to, 0 if it
    did not say that yet."""

    client: ConnectionInfo
    heard: float
    wants: int = 0


class _Group:
    """`members`: by connection id. A client that reconnects may be in it twice for a moment."""

    def __init__(self) -> None:
        self.members: dict[int, _Member] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.data = ConsumerData("")
        self.fingerprint = 0
        self.paid = (Owner(0, ""), 0)  # who sent the subscriptions, and their bytes

    def size_with(self, wanted: Sequence[Subscription]) -> int:
        """Estimated bytes of these subscriptions; a known one for the same topic counts instead if it is larger."""
        known = self.subscriptions
        return sum(max(_size(each), _size(known[each.topic]) if each.topic in known else 0) for each in wanted)

    def client_ids(self) -> set[str]:
        return {member.client.client_id for member in self.members.values()}

    def subscribe(self, wanted: Sequence[Subscription]) -> bool:
        """Whether topics or expressions changed.

        A newer version alone is no change: clients raise it when they rebalance, so each notice would cause the next one
        [ConsumerGroupInfo.updateSubscription].
        """
        topics = {subscription.topic for subscription in wanted}
        changed = self.subscriptions.keys() != topics
        self.subscriptions = {topic: known for topic, known in self.subscriptions.items() if topic in topics}
        for subscription in wanted:
            known = self.subscriptions.get(subscription.topic)
            if known is None or known.version < subscription.version:
                self.subscriptions[subscription.topic] = subscription
                changed = changed or known is None or known.expression != subscription.expression
        return changed


class ConsumerRegistry:
    """`expiry_s`: a client has left a group if its heartbeats have not named it for so long."""

    def __init__(self, expiry_s: float = EXPIRY_S) -> None:
        self._expiry_s = expiry_s
        self.changes = 0  # rises whenever `subscription` or `is_broadcast` may give something else
        self._groups: dict[str, _Group] = {}
        self._producers: dict[str, dict[int, _Member]] = {}
        self._places: dict[int, set[str]] = {}  # connection id -> consumer groups
        self._produces: dict[int, set[str]] = {}  # connection id -> producer groups
        self._producing: dict[str, Counter[int]] = {}  # client id -> connection id -> for how many groups
        self._topics: dict[str, set[str]] = {}  # topic -> groups that subscribe
        self._shares = Shares(PLACES)
        self._bytes = Shares(SUBSCRIPTION_BYTES)

    def heartbeat(
        self,
        connection_id: int,
        client_id: str,
        language: str,
        version: int,
        address: str,
        consumers: Sequence[ConsumerData],
        producers: Iterable[str],
        now: float,
        *,
        fingerprint: int = 0,
        without_sub: bool = False,
    ) -> HeartbeatOutcome:
        """Registers a client's groups and subscriptions, within its share. Raises Refusal for an invalid client id.

        With `without_sub` the subscriptions stay as they are (heartbeat V2 [ClientManageProcessor.heartBeatV2]).
        """
        check_client_id(client_id)
        me, owner = _Member(ConnectionInfo(client_id, address, language, version), now), _owner(connection_id, address)
        refused = ""
        for group in producers:
            refused = self._produce(owner, me, group) or refused
        changed: set[str] = set()
        sub_changed = not fingerprint  # a client of V1 always gets true
        for data in consumers:
            known = self._groups.get(data.group)
            stored = known.fingerprint if known else 0
            sub_changed |= fingerprint != stored and (stored != 0 or without_sub)
            if why := self._place(owner, self._places, data.group):
                refused = f"group {data.group}: {why}"
                continue
            is_new = self._join(connection_id, me, data.group, 0 if without_sub else _wants(data.subscriptions))
            why = "" if without_sub else self._pay(owner, data)
            refused = f"group {data.group}: {why}" if why else refused
            if (not why and not without_sub and self._subscribe(data, fingerprint)) or is_new:
                changed.add(data.group)
        return HeartbeatOutcome(changed, sub_changed, refused)

    def _produce(self, owner: Owner, me: _Member, group: str) -> str:
        if not 0 < len(group) <= MAX_GROUP_LENGTH:
            return f"producer group {group[:40]!r}: 1 to {MAX_GROUP_LENGTH} characters are allowed"
        if why := self._place(owner, self._produces, group):
            return f"producer group {group}: {why}"
        members = self._producers.setdefault(group, {})
        former = members.get(owner.connection)
        members[owner.connection] = me
        if former is None or former.client.client_id != me.client.client_id:
            self._note_producing(me, owner.connection, 1)
            if former is not None:
                self._note_producing(former, owner.connection, -1)
        return ""

    def _note_producing(self, member: _Member, connection_id: int, more: int) -> None:
        """The client produces for so many more groups through that connection."""
        groups = self._producing.setdefault(member.client.client_id, Counter())
        groups[connection_id] += more
        if not groups[connection_id]:
            del groups[connection_id]
        if not groups:
            del self._producing[member.client.client_id]

    def _place(self, owner: Owner, places: dict[int, set[str]], group: str) -> str:
        """Adds the connection to the group. Returns "", or why it could not."""
        mine = places.get(owner.connection, ())
        if group in mine:
            return ""
        if why := self._shares.refused(owner, 1):
            return f"{why} groups"
        self._shares.take(owner, 1)
        places.setdefault(owner.connection, set()).add(group)
        return ""

    def _pay(self, owner: Owner, data: ConsumerData) -> str:
        """Replaces the client's subscriptions. Returns "", or why not (too long): then the former ones stay."""
        group = self._groups[data.group]
        before, size = group.paid, group.size_with(data.subscriptions)
        self._bytes.give(*before)
        why = self._bytes.refused(owner, size)
        group.paid = before if why else (owner, size)
        self._bytes.take(*group.paid)
        return f"{why} bytes of subscriptions" if why else ""

    def differing(self, connection_id: int, client_id: str, data: ConsumerData) -> str:
        """How what this member wants differs from what another member of its group wants; "" if it does not, or if it said the
        same before. Each would get messages that are for the other [ConsumerGroupInfo: who speaks last wins]."""
        group, wants = self._groups.get(data.group), _wants(data.subscriptions)
        if group is None or (connection_id in group.members and group.members[connection_id].wants == wants):
            return ""
        members = (one for one in group.members.values() if one.client.client_id != client_id)
        other = next((one.client for one in members if one.wants not in (0, wants)), None)
        if other is None:
            return ""
        theirs = _told(group.subscriptions.values())
        return f"{client_id} subscribes to {_told(data.subscriptions)}, but {other.client_id} does not (the group: {theirs})"

    def _join(self, connection_id: int, me: _Member, name: str, wants: int) -> bool:
        """Whether the list of members changed."""
        group = self._groups.setdefault(name, _Group())
        before = group.client_ids()
        if not wants and connection_id in group.members:
            wants = group.members[connection_id].wants
        group.members[connection_id] = me._replace(wants=wants)
        return group.client_ids() != before

    def _subscribe(self, data: ConsumerData, fingerprint: int) -> bool:
        """Whether the subscriptions changed."""
        group = self._groups[data.group]
        topics = set(group.subscriptions)
        self.changes += data != group.data
        changed = group.subscribe(data.subscriptions)
        group.data, group.fingerprint = data, fingerprint
        self._index(data.group, topics, set(group.subscriptions))
        return changed

    # --- leaving: each gives the groups whose members should rebalance

    def unregister(self, connection_id: int, client_id: str, producer_group: str, consumer_group: str) -> set[str]:
        """A client leaves one producer group, one consumer group, or both ("": neither)."""
        self._drop_producer(connection_id, producer_group)
        group = self._groups.get(consumer_group)
        member = group.members.get(connection_id) if group else None
        if member is None or member.client.client_id != client_id:
            return set()
        return self._leave(connection_id, [consumer_group])

    def connection_closed(self, connection_id: int) -> set[str]:
        for group in list(self._produces.get(connection_id, ())):
            self._drop_producer(connection_id, group)
        return self._leave(connection_id, list(self._places.get(connection_id, ())))

    def expire(self, now: float) -> set[str]:
        changed: set[str] = set()
        for connection_id, name in self._silent({name: group.members for name, group in self._groups.items()}, now):
            changed |= self._leave(connection_id, [name])
        for connection_id, name in self._silent(self._producers, now):
            self._drop_producer(connection_id, name)
        return changed

    def _silent(self, groups: Mapping[str, Mapping[int, _Member]], now: float) -> list[tuple[int, str]]:
        return [
            (connection_id, name)
            for name, members in groups.items()
            for connection_id, member in members.items()
            if now - member.heard > self._expiry_s
        ]

    def _leave(self, connection_id: int, names: Iterable[str]) -> set[str]:
        changed: set[str] = set()
        for name in names:
            group = self._groups[name]
            gone = group.members.pop(connection_id)
            _discard(self._places, connection_id, name)
            self._shares.give(_owner(connection_id, gone.client.address), 1)
            if gone.client.client_id not in group.client_ids():
                changed.add(name)
            if not group.members:
                self._index(name, set(group.subscriptions), set())
                self._bytes.give(*group.paid)
                del self._groups[name]
                self.changes += 1
        return changed

    def _drop_producer(self, connection_id: int, group: str) -> None:
        members = self._producers.get(group, {})
        member = members.pop(connection_id, None)
        if member is None:
            return
        _discard(self._produces, connection_id, group)
        self._note_producing(member, connection_id, -1)
        self._shares.give(_owner(connection_id, member.client.address), 1)
        if not members:
            del self._producers[group]

    def _index(self, group: str, before: set[str], after: set[str]) -> None:
        for topic in after - before:
            self._topics.setdefault(topic, set()).add(group)
        for topic in before - after:
            _discard(self._topics, topic, group)

    # --- asking

    def group_names(self) -> list[str]:
        """Groups with a member."""
        return list(self._groups)

    def producer_names(self) -> list[str]:
        """Producer groups with a member."""
        return list(self._producers)

    def members(self, group: str) -> list[str]:
        """Client ids, sorted, each once: every member splits the queues by this list (C8)."""
        found = self._groups.get(group)
        return sorted(found.client_ids()) if found else []

    def connections_of(self, group: str) -> list[int]:
        found = self._groups.get(group)
        return sorted(found.members) if found else []

    def connections_with(self, group: str, client_id: str) -> list[int]:
        """The connections of one client as a member of the group."""
        found = self._groups.get(group)
        members = sorted(found.members.items()) if found else []
        return [number for number, member in members if member.client.client_id == client_id]

    def producer_connections(self, group: str) -> list[int]:
        found = self._producers.get(group)
        return sorted(found) if found else []

    def producing(self, client_id: str) -> list[int]:
        """Connections of that client, as a producer of any group."""
        return sorted(self._producing.get(client_id, ()))

    def producers_of(self, group: str) -> list[ConnectionInfo]:
        return [member.client for _, member in sorted(self._producers.get(group, {}).items())]

    def all_producers(self) -> Iterator[tuple[str, ConnectionInfo, float]]:
        """Each producer's group, connection, and time of its last heartbeat."""
        for group, members in sorted(self._producers.items()):
            for _, member in sorted(members.items()):
                yield group, member.client, member.heard

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found else None

    def is_broadcast(self, group: str) -> bool:
        """Whether its members said that each of them gets every message."""
        found = self._groups.get(group)
        return found is not None and found.data.message_model == BROADCASTING

    def topics_of(self, group: str) -> set[str]:
        """Topics that the group subscribes to now."""
        found = self._groups.get(group)
        return set(found.subscriptions) if found else set()

    def has_left(self, group: str, topic: str) -> bool:
        """Whether the group has members, of whom none subscribes to the topic: what waits there is nobody's delay any more
        [AdminBrokerProcessor.getConsumeStats]. Retry topics of pops are never subscribed to."""
        found = self._groups.get(group)
        if found is None or not found.subscriptions or topic.startswith(RETRY_PREFIX):
            return False
        return topic not in found.subscriptions

    def groups_of(self, topic: str) -> set[str]:
        """Groups with a member that subscribe to the topic now."""
        return set(self._topics.get(topic, ()))

    def connection_view(self, group: str) -> ConsumerView | None:
        """None if the group has no member."""
        found = self._groups.get(group)
        if found is None:
            return None
        data = found.data
        subscriptions = [found.subscriptions[topic] for topic in sorted(found.subscriptions)]
        connections = sorted(member.client for member in found.members.values())
        return ConsumerView(connections, data.consume_type, data.message_model, data.consume_from_where, subscriptions)


def _owner(connection_id: int, address: str) -> Owner:
    """`address`: host and port."""
    return Owner(connection_id, address.rpartition(":")[0])


def _own(subscriptions: Iterable[Subscription]) -> Iterator[tuple[str, str]]:
    """Topic and expression of each, retry topics left out: clients add them."""
    for one in subscriptions:
        if not one.topic.startswith(RETRY_PREFIX):
            tags = sorted(filter(None, map(str.strip, one.expression.split("||"))))
            yield one.topic, " || ".join(tags) or "*" if one.expression_type == "TAG" else one.expression


def _wants(subscriptions: Iterable[Subscription]) -> int:
    return hash(frozenset(_own(subscriptions))) or 1


def _told(subscriptions: Iterable[Subscription]) -> str:
    text = ", ".join(f"{topic}: {expression}" for topic, expression in sorted(_own(subscriptions)))
    return (text if len(text) <= _MOST_TOLD else text[:_MOST_TOLD] + "...") or "nothing"


def _size(one: Subscription) -> int:
    """Bytes, about."""
    texts = len(one.topic) + len(one.expression) + len(one.expression_type) + sum(map(len, one.tags))
    return texts + _ROW_BYTES * (1 + len(one.tags) + len(one.codes))


def _discard(index: dict[K, set[V]], key: K, name: V) -> None:
    """Removes `name` from the set at `key`, and the set if it is empty then."""
    names = index.get(key, set())
    names.discard(name)
    if not names:
        index.pop(key, None)
