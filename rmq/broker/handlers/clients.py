"""Connected clients: heartbeats, the members of a group, and the notice to all of them when the members change."""

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Any

from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.groups import ConsumerRegistry, GroupTable, is_system_group
from rmq.delivery.members import PLACES
from rmq.errors import NotThere, Refusal
from rmq.model import ConsumerData, GroupConfig
from rmq.names import address_text, check_client_id
from rmq.net.commands import (
    ConsumerConnection,
    ConsumerList,
    GetConsumerConnection,
    GetConsumerList,
    Heartbeat,
    HeartbeatAnswer,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from rmq.net.commands.transactions import CheckTransactionState
from rmq.net.transport.server import Call, Connection, Handler

log = logging.getLogger("rmq.clients")

ALLOW, WARN, REFUSE = "allow", "warn", "refuse"  # of members of a group that subscribe to something else
MOST_UNREAD = 1024 * 1024  # a producer that has not read so many bytes yet is asked nothing more


class ClientHandlers:
    """`ensure_group(name, unit_mode)` makes group and retry topic if they may be made; `connection(id)` finds an open connection;
    `subscriptions_changed(groups)` hears of groups whose members or subscriptions changed; `may_publish(connection, topic)`:
    whether a producer may be asked after a transaction with messages of that topic."""

    def __init__(
        self,
        registry: ConsumerRegistry,
        groups: GroupTable,
        ensure_group: Callable[[str, bool], Awaitable[None]],
        connection: Callable[[int], Connection | None],
        subscriptions_changed: Callable[[Container[str]], None],
        clock: Clock,
        may_publish: Callable[[Connection, str], bool],
    ) -> None:
        self._registry = registry
        self._groups = groups
        self._ensure_group = ensure_group
        self._connection = connection
        self._subscriptions_changed = subscriptions_changed
        self._clock = clock
        self._turn = 0
        self.notifies, self.differing = True, WARN
        self._may_publish = may_publish

    def by_request(self, hearing: Callable[[Handler], Handler]) -> Mapping[type[Any], Handler]:
        """`hearing(handler)` wraps a handler, so that the leader hears too what it hears."""
        return {
            Heartbeat: hearing(self.heartbeat),
            UnregisterClient: hearing(self.unregister),
            GetConsumerList: self.members,
            GetConsumerConnection: self.connections,
        }

    async def heartbeat(self, request: Heartbeat, call: Call) -> HeartbeatAnswer:
        """A group that must not exist is left out, and the client is told; it stays a member of its other groups."""
        check_client_id(request.client_id)
        if len(request.consumers) > PLACES.of_connection:
            about = f"a heartbeat with {len(request.consumers)} consumer groups: at most {PLACES.of_connection} are allowed"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        consumers, refused = await self._allowed(request)
        peer = call.connection
        if not request.without_sub:
            consumers, differs = self._alike(peer.id, request.client_id, consumers)
            refused = refused or differs
        if peer.closed:  # the connection ended while a group was made: nobody would ever tell the registry again
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the connection has ended")
        peer.client_id = peer.client_id or request.client_id
        outcome = self._registry.heartbeat(
            connection_id=peer.id,
            client_id=request.client_id,
            language=peer.language,
            version=peer.version,
            address=address_text(*peer.client),
            consumers=consumers,
            producers=request.producers,
            fingerprint=request.heartbeat_fingerprint,
            without_sub=request.without_sub,
            now=self._clock.monotonic(),
        )
        if outcome.changed:
            self._subscriptions_changed(outcome.changed)
            self.notify(outcome.changed)
        if refused is None and outcome.refused:
            refused = Refusal(ResponseCode.SYSTEM_BUSY, f"not all of this heartbeat was taken in: {outcome.refused}")
        if refused is not None:
            raise refused
        return HeartbeatAnswer(True, outcome.sub_changed)

    async def _allowed(self, request: Heartbeat) -> tuple[list[ConsumerData], Refusal | None]:
        """The groups that exist or may be made, and what is wrong with the first of the others."""
        allowed, refused = [], None
        for consumer in request.consumers:
            try:
                await self._ensure_group(consumer.group, consumer.unit_mode)
            except Refusal as refusal:
                refused = refused or refusal
            else:
                allowed.append(consumer)
        return allowed, refused

    def _alike(
        self, connection_id: int, client_id: str, consumers: list[ConsumerData]
    ) -> tuple[list[ConsumerData], Refusal | None]:
        """Says, or refuses, what differs from the subscriptions of other members of a group. Returns the rest, as `_allowed`."""
        if self.differing == ALLOW:
            return consumers, None
        taken, refused = [], None
        for consumer in consumers:
            of_tools = is_system_group(consumer.group)
            about = "" if of_tools else self._registry.differing(connection_id, client_id, consumer)
            if about and self.differing == REFUSE:
                about = f"group {consumer.group}: {about}. All members must subscribe alike (differing_subscriptions=refuse)"
                refused = refused or Refusal(ResponseCode.INVALID_PARAMETER, about)
                continue
            if about:
                log.warning("group %s, some members get no messages, or not what they want: %s", consumer.group, about)
            taken.append(consumer)
        return taken, refused

    def unregister(self, request: UnregisterClient, call: Call) -> None:
        changed = self._registry.unregister(call.connection.id, request.client_id, request.producer_group, request.consumer_group)
        self.notify(changed)

    def closed(self, connection: Connection) -> None:
        self.notify(self._registry.connection_closed(connection.id))

    def expire(self) -> None:
        self.notify(self._registry.expire(self._clock.monotonic()))

    def notify(self, groups: Iterable[str]) -> None:
        """Tells every member of these groups to rebalance now, unless the broker or the group is set not to."""
        for group in groups if self.notifies else ():
            config = self._groups.get(group) or GroupConfig(group)
            if not config.notify_consumer_ids_changed_enable:
                continue
            for connection_id in self._registry.connections_of(group):
                connection = self._connection(connection_id)
                if connection is not None:
                    connection.push(NotifyConsumerIdsChanged(group))

    def ask_producer(self, group: str, question: CheckTransactionState) -> None:
        """Sends the request to one producer of the group; those that read take turns. None if none is connected. The request
        holds the message, and everybody may call himself a producer of that group; so the user must have the right to send it."""
        producers = [one for one in self._producers(group) if self._may_publish(one, question.topic)]
        found = [one for one in producers if one.unread_bytes < MOST_UNREAD] or producers
        if found:
            self._turn += 1
            found[self._turn % len(found)].push(question)

    def is_behind(self, group: str) -> bool:
        """Whether the group has producers, and none of them reads its questions."""
        found = self._producers(group)
        return bool(found) and all(one.unread_bytes >= MOST_UNREAD for one in found)

    def of_producer(self, client_id: str) -> list[Connection]:
        """Open connections of that client, as a producer of any group; the newest is the last. Everybody may give himself a
        client id, so those of another user than the oldest one are left out."""
        found = [one for one in map(self._connection, self._registry.producing(client_id)) if one is not None and not one.closed]
        return [one for one in found if _user(one) == _user(found[0])]

    def of_group(self, group: str) -> list[Connection]:
        """Open connections of its members."""
        found = map(self._connection, self._registry.connections_of(group))
        return [one for one in found if one is not None and not one.closed]

    def of_member(self, group: str, client_id: str) -> list[Connection]:
        """Open connections of that client, as a member of the group; the best to ask it by is the last."""
        found = map(self._connection, self._registry.connections_with(group, client_id))
        return sorted((one for one in found if one is not None and not one.closed), key=lambda one: not one.is_forwarded)

    def _producers(self, group: str) -> list[Connection]:
        found = map(self._connection, self._registry.producer_connections(group))
        return [one for one in found if one is not None and not one.closed]

    def members(self, request: GetConsumerList, _call: Call) -> ConsumerList:
        members = self._registry.members(request.consumer_group)
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer of group {request.consumer_group} is connected")
        return ConsumerList(members)

    def connections(self, request: GetConsumerConnection, _call: Call) -> ConsumerConnection:
        view = self._registry.connection_view(request.consumer_group)
        if view is None:
            raise NotThere(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{request.consumer_group}] not online")
        return ConsumerConnection(*view)


def _user(connection: Connection) -> str:
    """Who has logged in on that connection, or signed its heartbeats; "" where nobody has to."""
    who = connection.standing.login or connection.standing.beats
    return "" if who is None else str(who.user)
