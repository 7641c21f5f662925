"""What a nameserver answers. The rules are the route table's; here a request is taken apart and the time looked up."""

import logging
from collections.abc import Mapping

from rmq.clock import Clock
from rmq.model import Route
from rmq.net.commands import (
    ClusterInfo,
    DeleteSetting,
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
from rmq.net.transport.server import Call, Connection, Handler
from rmq.routing.parts import Parts
from rmq.routing.table import Registration, Removed, RouteTable

log = logging.getLogger("rmq.nameserver")


class RouteHandlers:
    def __init__(self, table: RouteTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._parts = Parts()

    def by_request(self) -> Mapping[type[Request], Handler]:
        """Hello and Ping are the server's own."""
        return {
            GetRoute: self.route,
            GetClusterInfo: self.clusters,
            GetTopicList: self.topics,
            RegisterBroker: self.register,
            UnregisterBroker: self.unregister,
            DeleteTopicInNameserver: self.delete_topic,
            DeleteSetting: lambda _request, _call: None,
        }

    def route(self, request: GetRoute, _call: Call) -> Route:
        return self._table.route(request.topic)

    def clusters(self, _request: GetClusterInfo, _call: Call) -> ClusterInfo:
        return ClusterInfo(self._table.clusters())

    def topics(self, _request: GetTopicList, _call: Call) -> TopicList:
        return TopicList(self._table.topics())

    def register(self, request: RegisterBroker, call: Call) -> Registered:
        """Raises Refusal: see `rmq.routing.claims`."""
        connection_id = call.connection.id
        whose = (request._replace(topics=[], part=0), request.parts)
        topics = self._parts.join(connection_id, whose, request.part, request.parts, request.topics)
        if topics is None:
            return Registered()
        broker = Registration(
            request.cluster_name, request.broker_name, request.broker_id, request.broker_addr, request.epoch, topics,
            request.data_version, request.store, request.members, request.whole,
        )  # fmt: skip
        found = self._table.register(broker, connection_id, self._clock.monotonic())
        if found.changed:
            who = (broker.broker_name, broker.broker_id, broker.address)
            log.info("%s (%d, %s) in epoch %d holds %d topics", *who, broker.epoch, len(topics))
            if found.left_out:
                log.warning("%s (%d, %s): %d topics are left out: %s", *who, found.left_out, found.about)
        return Registered(found.left_out, found.about)

    def unregister(self, request: UnregisterBroker, call: Call) -> None:
        broker = Removed(request.broker_name, request.broker_id, request.broker_addr)
        if self._table.unregister(*broker, call.connection.id, self._clock.monotonic()):
            _tell([broker], "said goodbye")

    def delete_topic(self, request: DeleteTopicInNameserver, _call: Call) -> None:
        self._table.delete_topic(request.topic, request.cluster_name)

    # --- not asked by anybody

    def closed(self, connection: Connection) -> None:
        """A broken connection is the first sign of a dead broker."""
        self._parts.forget(connection.id)
        _tell(self._table.connection_closed(connection.id, self._clock.monotonic()), "lost its connection")

    def expire(self) -> None:
        _tell(self._table.expire(self._clock.monotonic()), "was silent for too long")


def _tell(removed: list[Removed], why: str) -> None:
    for broker in removed:
        log.info("%s (%d, %s) %s and left the routes", *broker, why)
