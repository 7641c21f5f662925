"""A nameserver's handlers. The route table has the rules; this file unpacks requests and reads the clock."""

import logging
from collections.abc import Callable, Iterable, Mapping

from rmq.clock import Clock
from rmq.errors import Refusal
from rmq.guard.members import Members
from rmq.measures import Family, counter, gauge
from rmq.model import UNIT, UNIT_SUBSCRIBED, Route
from rmq.net.commands import (
    ChangeTopics,
    ClusterInfo,
    DeleteTopicInNameserver,
    GetClusterInfo,
    GetRoute,
    GetTopicList,
    RegisterBroker,
    Registered,
    Request,
    TopicList,
    UnregisterBroker,
)
from rmq.net.commands.registration import QueryDataVersion, VersionAnswer
from rmq.net.commands.routes import (
    Added,
    AddWritePerm,
    GetSystemTopics,
    GetTopicsOfCluster,
    GetUnitSubscribedOtherTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    RegisterTopic,
    Wiped,
    WipeWritePerm,
)
from rmq.net.transport.server import Call, Connection, Handler
from rmq.routing.parts import Parts
from rmq.routing.rows import reported
from rmq.routing.table import LEADER, Change, Outcome, Registration, Removed, RouteTable

log = logging.getLogger("rmq.nameserver")


class RouteHandlers:
    """`order_conf(topic)`: how many queues of an ordered topic each broker has, "" if nobody said it; `orders()`: of
    all topics, by topic, for RocketMQ's brokers. `drops()`: whether topics
    that a broker of RocketMQ names no more leave the routes.
    `leads(connection, broker group)` is called when the group's leader registered through that connection."""

    def __init__(
        self,
        table: RouteTable,
        members: Members,
        order_conf: Callable[[str], str],
        orders: Callable[[], dict[str, str]],
        drops: Callable[[], bool],
        leads: Callable[[int, str], None],
        clock: Clock,
    ) -> None:
        self._order_conf = order_conf
        self._orders = orders
        self._drops = drops
        self._leads = leads
        self._table = table
        self._members = members
        self._clock = clock
        self._parts = Parts()
        self._registered = 0
        self._refused = 0

    def by_request(self) -> Mapping[type[Request], Handler]:
        """All handlers but Hello and Ping, which the server answers."""
        return {
            GetRoute: self.route,
            GetClusterInfo: self.clusters,
            GetTopicList: self.topics,
            RegisterBroker: self.register,
            ChangeTopics: self.change,
            UnregisterBroker: self.unregister,
            QueryDataVersion: self.knows,
            DeleteTopicInNameserver: self.delete_topic,
            GetTopicsOfCluster: self.topics_of_cluster,
            GetSystemTopics: self.system_topics,
            WipeWritePerm: self.wipe,
            AddWritePerm: self.add,
            RegisterTopic: self.name_topic,
            GetUnitTopics: lambda _request, _call: TopicList(self._table.topics_with(UNIT)),
            GetUnitSubscribedTopics: lambda _request, _call: TopicList(self._table.topics_with(UNIT_SUBSCRIBED)),
            GetUnitSubscribedOtherTopics: lambda _request, _call: TopicList(self._table.topics_with(UNIT_SUBSCRIBED, UNIT)),
        }

    def route(self, request: GetRoute, _call: Call) -> Route:
        return self._table.route(request.topic, request.zone)._replace(order_conf=self._order_conf(request.topic))

    def clusters(self, _request: GetClusterInfo, _call: Call) -> ClusterInfo:
        return ClusterInfo(self._table.clusters())

    def topics(self, _request: GetTopicList, _call: Call) -> TopicList:
        return TopicList(self._table.topics())

    def topics_of_cluster(self, request: GetTopicsOfCluster, _call: Call) -> TopicList:
        return TopicList(self._table.topics_of(request.cluster))

    def system_topics(self, _request: GetSystemTopics, _call: Call) -> TopicList:
        groups = self._table.clusters()
        leaders = [one.addresses[0] for one in groups if 0 in one.addresses]
        return TopicList(sorted({name for one in groups for name in (one.cluster, one.name)}), leaders[0] if leaders else "")

    def wipe(self, request: WipeWritePerm, _call: Call) -> Wiped:
        count = self._table.may_write(request.broker_name, False)
        if count:
            log.warning("routes say of %d topics of %s that they may not be written", count, request.broker_name)
        return Wiped(count)

    def add(self, request: AddWritePerm, _call: Call) -> Added:
        return Added(self._table.may_write(request.broker_name, True))

    def register(self, request: RegisterBroker, call: Call) -> Registered:
        """Raises Refusal: see `rmq.routing.claims`, `Members`."""
        self._members.check(call.connection, [request.broker_addr])
        connection_id = call.connection.id
        whose = (request._replace(topics=[], part=0), request.parts)
        topics = self._parts.join(
            connection_id, whose, request.part, request.parts, [reported(topic) for topic in request.topics]
        )
        if topics is None:
            return Registered()
        broker = Registration(
            request.cluster_name, request.broker_name, request.broker_id, request.broker_addr, request.epoch, topics,
            request.data_version, request.store, request.members, request.whole or self._drops(), request.zone,
            request.ha_server_addr,
        )  # fmt: skip
        found = self._take(broker, connection_id)
        if self._table.leads_through(broker.broker_name, connection_id):
            self._leads(connection_id, broker.broker_name)
        if found.changed:
            who = (broker.broker_name, broker.broker_id, broker.address)
            log.info("%s (%d, %s) in epoch %d holds %d topics", *who, broker.epoch, len(topics))
            _warn(found, broker)
        master = self._table.leader_of(broker.broker_name) if broker.broker_id != LEADER else ("", "")
        orders = {} if request.whole else self._orders()  # ours look for none, and their frames hold 2 MiB of such
        return Registered(found.left_out, found.about, *master, orders)

    def _take(self, broker: Registration, connection_id: int) -> Outcome:
        try:
            found = self._table.register(broker, connection_id, self._clock.monotonic())
        except Refusal:
            self._refused += 1
            raise
        self._registered += 1
        return found

    def change(self, request: ChangeTopics, call: Call) -> Registered:
        """Raises Refusal: see `RouteTable.change`, `Members`."""
        self._members.check(call.connection, [request.broker_addr])
        topics = [reported(topic) for topic in request.topics]
        change = Change(*request[:4], topics, request.gone, request.since, request.data_version)
        found = self._table.change(change, call.connection.id, self._clock.monotonic())
        self._registered += 1
        _warn(found, change)
        return Registered(found.left_out, found.about)

    def knows(self, request: QueryDataVersion, call: Call) -> VersionAnswer:
        self._members.check(call.connection, [request.broker_addr])
        cluster, name, broker_id, address, version = request
        broker = Registration(cluster, name, broker_id, address, 0, [], version)
        return VersionAnswer(not self._table.knows(broker, call.connection.id, self._clock.monotonic()))

    def unregister(self, request: UnregisterBroker, call: Call) -> None:
        broker = Removed(request.broker_name, request.broker_id, request.broker_addr)
        if self._table.unregister(*broker, call.connection.id, self._clock.monotonic()):
            _tell([broker], "said goodbye")

    def delete_topic(self, request: DeleteTopicInNameserver, _call: Call) -> None:
        self._table.delete_topic(request.topic, request.cluster_name)

    def name_topic(self, request: RegisterTopic, _call: Call) -> None:
        self._table.name_topic(request.topic, request.queues)

    def metrics(self) -> Iterable[Family]:
        table = self._table
        groups = table.sizes()
        yield gauge("rmq_nameserver_topics", "topics that clients find here", table.topic_count)
        labels = ("cluster", "broker")
        brokers = [(names, float(count)) for names, count, _ in groups]
        yield Family("rmq_nameserver_brokers", "gauge", "registered brokers of a group", labels, brokers)
        topics = [(names, float(count)) for names, _, count in groups]
        yield Family("rmq_nameserver_broker_topics", "gauge", "topics of a group of brokers", labels, topics)
        yield gauge("rmq_nameserver_view", "a checksum of who is registered: the same at all nameservers", table.checksum())
        yield counter("rmq_nameserver_registrations_total", "registrations that were taken", self._registered)
        yield counter("rmq_nameserver_refused_total", "registrations that were refused", self._refused)

    # --- without a request

    def closed(self, connection: Connection) -> None:
        """A broken connection is the first sign of a dead broker."""
        self._parts.forget(connection.id)
        _tell(self._table.connection_closed(connection.id, self._clock.monotonic()), "lost its connection")

    def expire(self) -> None:
        _tell(self._table.expire(self._clock.monotonic()), "was silent for too long")


def _warn(found: Outcome, broker: Registration | Change) -> None:
    if found.left_out:
        who = (broker.broker_name, broker.broker_id, broker.address)
        log.warning("%s (%d, %s): %d topics are left out: %s", *who, found.left_out, found.about)


def _tell(removed: list[Removed], why: str) -> None:
    for broker in removed:
        log.info("%s (%d, %s) %s and left the routes", *broker, why)
