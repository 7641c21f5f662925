"""A nameserver and a broker in one, on real sockets, that does what a test tells it: for everything that a healthy broker
never does (refusals, lost answers, moved offsets). It keeps messages in lists and nothing else.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.model import BrokerAddresses, MessageQueue, QueueData, Route
from rmq.net.commands import (
    PULL_COMMIT_OFFSET,
    PULL_SUSPEND,
    Answer,
    ConsumerList,
    GetConsumerList,
    GetMaxOffset,
    GetMinOffset,
    GetRoute,
    Heartbeat,
    HeartbeatAnswer,
    NotifyConsumerIdsChanged,
    OffsetAnswer,
    Ping,
    Pull,
    PullAnswer,
    QueryConsumerOffset,
    SearchOffset,
    Send,
    SendAnswer,
    UnregisterClient,
    UpdateConsumerOffset,
    UpdateTopic,
)
from rmq.net.commands.locks import LockedQueues, LockQueues, UnlockQueues
from rmq.net.commands.retries import SendBack
from rmq.net.transport.server import LATER, Call, Connection, Later, Server

STORE_HOST = record.host_bytes("127.0.0.1", 10911)
Fault = Callable[[Any, Call], None]  # what to do instead of serving a request


class Broker:
    """`topics`: name -> number of queues. `faults`: by type of request, what happens to the next ones of it."""

    def __init__(self, name: str = "a", topics: dict[str, int] | None = None) -> None:
        self.name = name
        self.topics = dict(topics or {})
        self.route: Callable[[str], Route] = self.own_route
        self.address = ""
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.locks: dict[tuple[str, MessageQueue], str] = {}  # nobody loses one by time here
        self.members: dict[str, dict[str, Connection]] = defaultdict(dict)
        self.heartbeats: list[Heartbeat] = []
        self.requests: list[Any] = []
        self.suggests = 0  # broker id to pull from next
        self.faults: dict[type[Any], list[Fault]] = defaultdict(list)
        self._held: list[tuple[Pull, Call]] = []
        self._server: Server | None = None

    async def start(self, port: int = 0) -> "Broker":
        served = {
            GetRoute: self._get_route, Heartbeat: self._heartbeat, UnregisterClient: self._unregister,
            GetConsumerList: self._consumer_list, Send: self._send, Pull: self._pull, QueryConsumerOffset: self._query,
            UpdateConsumerOffset: self._update, GetMaxOffset: self._max, GetMinOffset: lambda request, call: OffsetAnswer(0),
            SendBack: lambda request, call: None, LockQueues: self._lock, UnlockQueues: self._unlock,
            SearchOffset: lambda request, call: OffsetAnswer(request.timestamp),
            Ping: lambda request, call: None,
            UpdateTopic: lambda request, call: self.topics.update({request.topic: request.write_queue_nums}),
        }  # fmt: skip
        self._server = Server({kind: self._watched(handler) for kind, handler in served.items()}, on_close=self._closed)
        host, bound = await self._server.listen("127.0.0.1", port)
        self.address = f"{host}:{bound}"
        return self

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            self._held.clear()
            await server.close(0)

    def also(self, kind: type[Any], handler: Callable[[Any, Call], Answer | Later]) -> None:
        """From now on it serves that request too."""
        assert self._server is not None
        self._server.handlers = {**self._server.handlers, kind: handler}

    @property
    def connected(self) -> int:
        """How many connections are open."""
        return len(self._server.connections) if self._server else 0

    def cut_connections(self) -> None:
        """As a pulled cable with a reset."""
        for connection in self._server.connections if self._server else []:
            connection.abort("cut by the test")

    def seen(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.requests if type(each) is kind]

    def put(self, topic: str, queue_id: int, count: int, tag: str = "") -> None:
        """Messages "0", "1", ... stored without a producer."""
        for _ in range(count):
            properties = record.properties_to_bytes({"TAGS": tag} if tag else {})
            body = str(len(self.queues[topic, queue_id])).encode()
            self.append(topic, queue_id, record.draft(topic, body, properties, born_timestamp=1, born_host=bytes(8)))
        self._answer_held()

    # --- serving ------------------------------------------------------------------------------------------------------

    def _watched(self, handler: Callable[[Any, Call], Answer | Later]) -> Callable[[Any, Call], Answer | Later]:
        def handle(request: Any, call: Call) -> Answer | Later:
            self.requests.append(request)
            if self.faults[type(request)]:
                self.faults[type(request)].pop(0)(request, call)
                return LATER
            return handler(request, call)

        return handle

    def own_route(self, topic: str) -> Route:
        if topic not in self.topics:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
        count = self.topics[topic]
        return Route([BrokerAddresses("c", self.name, {0: self.address})], [QueueData(self.name, count, count, 6)])

    def _get_route(self, request: GetRoute, call: Call) -> Route:
        return self.route(request.topic)

    def _send(self, request: Send, call: Call) -> SendAnswer:
        count = len(list(record.iterate(request.records)))
        first = len(self.queues[request.topic, request.queue_id])
        at = 0
        for each in record.iterate(request.records):
            self.append(request.topic, request.queue_id, request.records[at : at + each.total_size])
            at += each.total_size
        self.topics.setdefault(request.topic, request.default_topic_queue_nums)
        self._answer_held()
        assert len(self.queues[request.topic, request.queue_id]) == first + count
        return SendAnswer(request.queue_id, first, 0)

    def append(self, topic: str, queue_id: int, draft: bytes) -> None:
        stored = bytearray(draft)
        number = len(self.queues[topic, queue_id])
        record.stamp(stored, [(0, [len(stored)], queue_id, number)], number * 1000, bytes(8) + STORE_HOST)
        self.queues[topic, queue_id].append(bytes(stored))

    def _pull(self, request: Pull, call: Call) -> Answer | Later:
        key = (request.consumer_group, request.topic, request.queue_id)
        if request.sys_flag & PULL_COMMIT_OFFSET:
            self.offsets[key] = request.commit_offset
        answer = self._found(request)
        if answer.status == ResponseCode.PULL_NOT_FOUND and request.sys_flag & PULL_SUSPEND:
            self._held.append((request, call))
            asyncio.get_running_loop().call_later(request.suspend_timeout_millis / 1000, self._give_up, request, call)
            return LATER
        return answer

    def _give_up(self, request: Pull, call: Call) -> None:
        if (request, call) in self._held:
            self._held.remove((request, call))
            call.answer(self._found(request))

    def _found(self, request: Pull) -> PullAnswer:
        queue = self.queues[request.topic, request.queue_id]
        begin, end = request.queue_offset, len(queue)
        if begin > end:
            return PullAnswer(end, 0, end, status=ResponseCode.PULL_OFFSET_MOVED)
        if begin == end:
            return PullAnswer(end, 0, end, b"", ResponseCode.PULL_NOT_FOUND, self.suggests)
        messages = queue[begin : begin + request.max_msg_nums]
        return PullAnswer(begin + len(messages), 0, end, b"".join(messages), 0, self.suggests)

    def _answer_held(self) -> None:
        held, self._held = self._held, []
        for request, call in held:
            answer = self._found(request)
            if answer.status == ResponseCode.PULL_NOT_FOUND:
                self._held.append((request, call))
            else:
                call.answer(answer)

    def _query(self, request: QueryConsumerOffset, call: Call) -> OffsetAnswer:
        offset = self.offsets.get((request.consumer_group, request.topic, request.queue_id))
        if offset is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, "none")
        return OffsetAnswer(offset)

    def _update(self, request: UpdateConsumerOffset, call: Call) -> None:
        self.offsets[request.consumer_group, request.topic, request.queue_id] = request.commit_offset

    def _lock(self, request: LockQueues, call: Call) -> LockedQueues:
        owners = {queue: self.locks.setdefault((request.consumer_group, queue), request.client_id) for queue in request.queues}
        return LockedQueues([queue for queue, owner in owners.items() if owner == request.client_id])

    def _unlock(self, request: UnlockQueues, call: Call) -> None:
        for key in [(request.consumer_group, queue) for queue in request.queues]:
            if self.locks.get(key) == request.client_id:
                del self.locks[key]

    def _max(self, request: GetMaxOffset, call: Call) -> OffsetAnswer:
        return OffsetAnswer(len(self.queues[request.topic, request.queue_id]))

    # --- groups -------------------------------------------------------------------------------------------------------

    def _heartbeat(self, request: Heartbeat, call: Call) -> HeartbeatAnswer:
        self.heartbeats.append(request)
        for consumer in request.consumers:
            if self.members[consumer.group].get(request.client_id) is not call.connection:
                self.members[consumer.group][request.client_id] = call.connection
                self.notify(consumer.group)
        return HeartbeatAnswer()

    def _unregister(self, request: UnregisterClient, call: Call) -> None:
        if self.members[request.consumer_group].pop(request.client_id, None):
            self.notify(request.consumer_group)

    def _closed(self, connection: Connection) -> None:
        for group, members in self.members.items():
            for client_id in [each for each, other in members.items() if other is connection]:
                del members[client_id]
                self.notify(group)

    def notify(self, group: str) -> None:
        for connection in self.members[group].values():
            connection.push(NotifyConsumerIdsChanged(group))

    def _consumer_list(self, request: GetConsumerList, call: Call) -> ConsumerList:
        return ConsumerList(sorted(self.members[request.consumer_group]))


def route_at(topic: str, *brokers: Broker) -> Route:
    """The topic's route through all of them, in this order."""
    routes = [each.own_route(topic) for each in brokers]
    return Route([one for each in routes for one in each.brokers], [one for each in routes for one in each.queues])


def refuse(code: int, remark: str = "by the test", hint: str = "") -> Fault:
    return lambda request, call: call.refuse(Refusal(code, remark, hint))


def never_answer(request: Any, call: Call) -> None:
    """The request is swallowed."""


def cut_link(request: Any, call: Call) -> None:
    call.connection.abort("cut by the test")


def bodies(broker: Broker, topic: str) -> dict[int, list[bytes]]:
    """What is stored of a topic, by queue."""
    return {
        queue_id: [record.decode(each).body for each in stored]
        for (name, queue_id), stored in broker.queues.items()
        if name == topic and stored
    }


def numbers(count: int) -> Iterator[bytes]:
    return (str(number).encode() for number in range(count))


def queue(topic: str, queue_id: int, broker_name: str = "a") -> MessageQueue:
    return MessageQueue(topic, broker_name, queue_id)
