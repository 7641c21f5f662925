"""Replies: stored, and handed to the client that asked [ReplyMessageProcessor].

A client that just lost its leader may not have told this one of itself yet: its reply waits for it a moment.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.catalog import Catalog
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal, RmqError
from rmq.log.records import record
from rmq.log.records.checking import check
from rmq.log.records.properties import CRC_NAME
from rmq.log.records.record import Record, host_text
from rmq.model import LIGHT_PREFIX, PERM_WRITE, TEMPLATE_TOPIC
from rmq.net.commands import SendAnswer
from rmq.net.commands.replies import REPLY_TO_CLIENT, PushReply, SendReply
from rmq.net.transport.server import Call, Connection
from rmq.routing.topics import not_sendable

WAIT_S: Final = 2.0  # for the client; RocketMQ's wait 3 s for the answer to a send
LOOK_S: Final = 0.1
PUSH_S: Final = 10.0  # for its word that it has the reply
QUEUES: Final = 4  # of a topic that it makes, or as many as the client believes


class ReplyHandler:
    """`clients(client id)`: connections of that client. `all_known`: as of `SendHandler`."""

    def __init__(
        self,
        catalog: Catalog,
        internal_producer: InternalProducer,
        clients: Callable[[str], list[Connection]],
        store_host: str,
        settings: NodeSettings,
        all_known: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._internal_producer = internal_producer
        self._clients = clients
        self._store_host = store_host
        self.auto_create, self._max_body_bytes = settings.auto_create_topic, settings.max_message_bytes
        self._reply_topic = f"{settings.cluster_name}_REPLY_TOPIC"
        self._all_known = all_known
        self._clock = clock

    async def reply(self, request: SendReply, _call: Call) -> SendAnswer:
        """Raises Refusal (SYSTEM_ERROR: it is stored, and the client did not take it)."""
        if self._catalog.topic(request.topic) is None:
            await self._make(request)
        queue_id, reply = self._checked(request)
        unit = await self._internal_producer.send(request.topic, queue_id, request.records)
        client_id = record.bytes_to_properties(reply.properties).get(REPLY_TO_CLIENT, "")
        if not client_id:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"reply message properties[{REPLY_TO_CLIENT}] is null")
        await self._push(client_id, self._pushed(request, queue_id, reply))
        return SendAnswer(queue_id, unit.queue_offset, unit.physical_offset)

    async def _make(self, request: SendReply) -> None:
        """A client with a namespace says that before the topic of the replies, too. As a send makes its topic."""
        await self._all_known()
        if self.auto_create and request.topic.endswith(f"%{self._reply_topic}"):
            queues = max(QUEUES, request.queue_id + 1)
            await self._catalog.ensure_topic(request.topic, TEMPLATE_TOPIC, queues, True, request.unit_mode)

    def _checked(self, request: SendReply) -> tuple[int, Record]:
        """The queue for it, and what it says."""
        config = self._catalog.known_topic(request.topic)
        forbidden = not_sendable(request.topic) or request.topic.startswith(LIGHT_PREFIX)
        if forbidden or not config.perm & PERM_WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {request.topic} takes no replies: use <cluster>_REPLY_TOPIC")
        if request.queue_id >= config.write_queue_nums:
            about = f"queue {request.queue_id} of {request.topic}: it has queues 0 to {config.write_queue_nums - 1}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        sizes, _, held = check(request.records, request.topic)
        if len(sizes) != 1 or held:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a reply is one message, and comes at once")
        reply = record.decode(request.records)
        if len(reply.body) > self._max_body_bytes:
            about = f"a reply of {len(reply.body)} bytes: at most {self._max_body_bytes} are allowed"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
        return request.queue_id if request.queue_id >= 0 else self._internal_producer.pick(config.write_queue_nums), reply

    def _pushed(self, request: SendReply, queue_id: int, reply: Record) -> PushReply:
        now_ms = self._clock.wall_ms()
        properties = record.bytes_to_properties(reply.properties)
        properties.pop(CRC_NAME.decode(), None)
        text = record.properties_to_bytes({**properties, "PUSH_REPLY_TIME": str(now_ms)}).decode()
        return PushReply(
            request.producer_group, request.topic, TEMPLATE_TOPIC, 4, queue_id, reply.sys_flag, reply.born_timestamp, reply.flag,
            text, reply.reconsume_times, request.unit_mode, host_text(reply.born_host), self._store_host, now_ms, reply.body,
        )  # fmt: skip

    async def _push(self, client_id: str, push: PushReply) -> None:
        """The client has it when this returns, as far as can be known. Raises Refusal."""
        deadline, connections = self._clock.monotonic() + WAIT_S, self._clients(client_id)
        while not connections and self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_S)
            connections = self._clients(client_id)
        if not connections:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"push reply message fail, channel of <{client_id}> not found.")
        try:
            await connections[-1].request(push, PUSH_S)
        except RmqError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"push reply message to {client_id} fail: {error}") from error
