"""Who is connected: the members of each consumer group, what they subscribed to, and the producers.

Learnt from heartbeats, forgotten when the connection ends or does not name a group for 120 s. Nothing here is stored: after a
restart every client says again who it is. All times are monotonic seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rmq.model import ConnectionInfo, ConsumerData, Subscription
from rmq.names import check_client_id

EXPIRY_S = 120.0
K = TypeVar("K")


class HeartbeatOutcome(NamedTuple):
    """`changed`: groups whose members should rebalance. `sub_changed`: the client should send its subscriptions in full."""

    changed: set[str]
    sub_changed: bool


class ConsumerView(NamedTuple):
    """One group as the connection lists show it; in the field order of the answer."""

    connections: list[ConnectionInfo]
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: list[Subscription]


class _Member(NamedTuple):
    """A client in one group. `heard`: its last heartbeat that named the group."""

    client: ConnectionInfo
    heard: float


class _Group:
    """`members`: by connection id. A client that reconnects may be there twice for a moment."""

    def __init__(self) -> None:
        self.members: dict[int, _Member] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.data = ConsumerData("")
        self.fingerprint = 0

    def client_ids(self) -> set[str]:
        return {member.client.client_id for member in self.members.values()}

    def subscribe(self, wanted: Sequence[Subscription]) -> bool:
        """Whether topics or expressions changed.

        A newer version alone is no change: clients raise it when they rebalance, and a notice would never end
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
    """`expiry_s`: a client that has not named a group for so long has left it."""

    def __init__(self, expiry_s: float = EXPIRY_S) -> None:
        self._expiry_s = expiry_s
        self._groups: dict[str, _Group] = {}
        self._producers: dict[str, dict[int, _Member]] = {}
        self._places: dict[int, set[str]] = {}  # connection id -> consumer groups
        self._produces: dict[int, set[str]] = {}  # connection id -> producer groups
        self._topics: dict[str, set[str]] = {}  # topic -> groups that subscribe

    def heartbeat(
        self, connection_id: int, client_id: str, language: str, version: int, address: str,
        consumers: Sequence[ConsumerData], producers: Iterable[str], now: float, *,
        fingerprint: int = 0, without_sub: bool = False,
    ) -> HeartbeatOutcome:  # fmt: skip
        """Take in what a client says of itself. Raises Refusal for a client id that may not be.

        With `without_sub` the subscriptions stay as they are (heartbeat V2 [ClientManageProcessor.heartBeatV2]).
        """
        check_client_id(client_id)
        me = _Member(ConnectionInfo(client_id, address, language, version), now)
        for group in producers:
            self._producers.setdefault(group, {})[connection_id] = me
            self._produces.setdefault(connection_id, set()).add(group)
        changed: set[str] = set()
        sub_changed = not fingerprint  # a client of V1 is always told so
        for data in consumers:
            known = self._groups.get(data.group)
            stored = known.fingerprint if known else 0
            sub_changed |= fingerprint != stored and (stored != 0 or without_sub)
            is_new = self._join(connection_id, me, data.group)
            if (not without_sub and self._subscribe(data, fingerprint)) or is_new:
                changed.add(data.group)
        return HeartbeatOutcome(changed, sub_changed)

    def _join(self, connection_id: int, me: _Member, name: str) -> bool:
        """Whether the list of members changed."""
        group = self._groups.setdefault(name, _Group())
        before = group.client_ids()
        group.members[connection_id] = me
        self._places.setdefault(connection_id, set()).add(name)
        return group.client_ids() != before

    def _subscribe(self, data: ConsumerData, fingerprint: int) -> bool:
        """Whether the subscriptions changed."""
        group = self._groups[data.group]
        topics = set(group.subscriptions)
        changed = group.subscribe(data.subscriptions)
        group.data, group.fingerprint = data, fingerprint
        self._index(data.group, topics, set(group.subscriptions))
        return changed

    # --- leaving: each gives the groups whose members should rebalance

    def unregister(self, connection_id: int, client_id: str, producer_group: str, consumer_group: str) -> set[str]:
        """A client says goodbye to one producer group, one consumer group, or both ("": neither)."""
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
            if gone.client.client_id not in group.client_ids():
                changed.add(name)
            if not group.members:
                self._index(name, set(group.subscriptions), set())
                del self._groups[name]
        return changed

    def _drop_producer(self, connection_id: int, group: str) -> None:
        _discard(self._produces, connection_id, group)
        members = self._producers.get(group, {})
        members.pop(connection_id, None)
        if not members:
            self._producers.pop(group, None)

    def _index(self, group: str, before: set[str], after: set[str]) -> None:
        for topic in after - before:
            self._topics.setdefault(topic, set()).add(group)
        for topic in before - after:
            _discard(self._topics, topic, group)

    # --- asking

    def members(self, group: str) -> list[str]:
        """Client ids, sorted, each once: every member splits the queues by this list (C8)."""
        found = self._groups.get(group)
        return sorted(found.client_ids()) if found else []

    def connections_of(self, group: str) -> list[int]:
        found = self._groups.get(group)
        return sorted(found.members) if found else []

    def producer_connections(self, group: str) -> list[int]:
        found = self._producers.get(group)
        return sorted(found) if found else []

    def producers_of(self, group: str) -> list[ConnectionInfo]:
        return [member.client for _, member in sorted(self._producers.get(group, {}).items())]

    def subscription(self, group: str, topic: str) -> Subscription | None:
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found else None

    def topics_of(self, group: str) -> set[str]:
        """Topics that the group subscribes to now."""
        found = self._groups.get(group)
        return set(found.subscriptions) if found else set()

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


def _discard(index: dict[K, set[str]], key: K, name: str) -> None:
    """Takes `name` out of the set at `key`, and an empty set out of the index."""
    names = index.get(key, set())
    names.discard(name)
    if not names:
        index.pop(key, None)
