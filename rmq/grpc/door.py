"""RocketMQ's gRPC service, version 2, before a cluster: clients of RocketMQ 5 that speak nothing else come in here
[GrpcMessagingApplication]. It is a client of the cluster itself, keeps nothing, and there may be as many as one likes."""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio

from rmq.client import Client
from rmq.errors import BadBytes, RmqError
from rmq.grpc import transactions
from rmq.grpc.lites import Lites
from rmq.grpc.looks import Looks
from rmq.grpc.messages import consumer_group, read, topic_of, written
from rmq.grpc.receiving import Asked, Receiving
from rmq.grpc.schema import PACKAGE, v2
from rmq.grpc.statuses import STORED, Code, Wrong, overall, status, status_of
from rmq.grpc.telemetry import POLL_S, Streams
from rmq.model import PERM_READ, PERM_WRITE
from rmq.net.commands.timers import Recall, RecallAnswer
from rmq.net.commands.transactions import EndTransaction
from rmq.net.transport.network import TCP

_log = logging.getLogger("rmq.grpc")
SERVICE = f"{PACKAGE}.MessagingService"
MAX_REQUEST_BYTES = 16 << 20
_GROUP = "PROXY_SEND"  # of what is no transaction: gRPC's producers have no group
_SEND_S = 3.0
_GRACE_S = 2.0  # for requests that are at work when the door closes
_MARGIN_S = 0.5  # of a client's patience, for the way
MAX_REQUESTS = 10_000  # at once, streams of clients among them; more are refused by gRPC
_COMMIT, _ROLLBACK = 8, 12
_PERMS = {
    PERM_READ: v2.Permission.READ,
    PERM_WRITE: v2.Permission.WRITE,
    PERM_READ | PERM_WRITE: v2.Permission.READ_WRITE,
}
Context = Any  # grpc.aio.ServicerContext


class Listening(NamedTuple):
    """`credentials`: of TLS."""

    host: str
    port: int
    credentials: grpc.ServerCredentials | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@asynccontextmanager
async def served(client: Client, listening: Listening) -> AsyncIterator[int]:
    """The port, while the door is open. Raises OSError if it cannot be opened."""
    await _check_free(listening)
    door = Door(client)
    options = [
        ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_REQUESTS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, door.handlers()),))
    try:
        if listening.credentials is None:
            port = server.add_insecure_port(listening.address)
        else:
            port = server.add_secure_port(listening.address, listening.credentials)
    except RuntimeError:
        await door.close()
        raise OSError(f"cannot listen on {listening.address}: gRPC's library does not say why") from None
    await server.start()
    try:
        yield int(port)
    finally:
        door.end_streams()
        await server.stop(_GRACE_S)
        await door.close()


async def _check_free(listening: Listening) -> None:
    """Raises OSError, which says more than gRPC's library does."""
    try:
        listener = await TCP.listen(asyncio.Protocol, listening.host, listening.port)
    except OSError as error:
        raise OSError(f"cannot listen on {listening.address}: {error.strerror or error}") from None
    listener.close()


class Door:
    """Its methods are those of the service, each from a request to its answer."""

    def __init__(self, client: Client) -> None:
        self._session = client.session
        self._looks = Looks(client)
        self._lites = Lites(client)
        self._streams = Streams(client, self._looks, self._lites)
        self._receiving = Receiving(client, self._lites, self._streams.is_open)
        self._producer = client.producer(_GROUP)

    def end_streams(self) -> None:
        self._streams.end()

    async def close(self) -> None:
        await self._receiving.close()
        await self._streams.close()
        await self._producer.close()

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        alone = {
            "QueryRoute": self.query_route,
            "Heartbeat": self.heartbeat,
            "SendMessage": self.send_message,
            "QueryAssignment": self.query_assignment,
            "AckMessage": self.ack_message,
            "ForwardMessageToDeadLetterQueue": self.forward_message_to_dead_letter_queue,
            "EndTransaction": self.end_transaction,
            "NotifyClientTermination": self.notify_client_termination,
            "ChangeInvisibleDuration": self.change_invisible_duration,
            "RecallMessage": self.recall_message,
            "SyncLiteSubscription": self.sync_lite_subscription,
        }
        found = {name: _alone(name, method) for name, method in alone.items()}
        found["ReceiveMessage"] = grpc.unary_stream_rpc_method_handler(
            self.receive_message,
            request_deserializer=v2.ReceiveMessageRequest.FromString,
            response_serializer=v2.ReceiveMessageResponse.SerializeToString,
        )
        found["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self.telemetry,
            request_deserializer=v2.TelemetryCommand.FromString,
            response_serializer=v2.TelemetryCommand.SerializeToString,
        )
        return found

    # --- where

    async def query_route(self, request: Any, _: Context) -> Any:
        """All queues. Their brokers are reached where the client reached this door: through it."""
        topic = topic_of(request.topic)
        route, types = await self._session.routes.get(topic), await self._looks.types(topic)
        answer = v2.QueryRouteResponse(status=status())
        for data in sorted(route.queues):
            for queue_id in range(max(data.read_queue_nums, data.write_queue_nums)):
                perm = data.perm & (
                    (PERM_READ if queue_id < data.read_queue_nums else 0)
                    | (PERM_WRITE if queue_id < data.write_queue_nums else 0)
                )
                queue = self._queue(request, data.broker_name, queue_id, _PERMS.get(perm, v2.Permission.NONE))
                queue.accept_message_types.extend(types)
                answer.message_queues.append(queue)
        return answer

    async def query_assignment(self, request: Any, _: Context) -> Any:
        """Each broker as a whole: whoever asks first has its next messages."""
        route = await self._session.routes.get(topic_of(request.topic))
        answer = v2.QueryAssignmentResponse(status=status())
        for data in sorted(route.queues):
            if data.perm & PERM_READ:
                queue = self._queue(request, data.broker_name, -1, _PERMS.get(data.perm & 6, v2.Permission.NONE))
                answer.assignments.append(v2.Assignment(message_queue=queue))
        return answer

    def _queue(self, request: Any, broker_name: str, queue_id: int, permission: int) -> Any:
        broker = v2.Broker(name=broker_name, id=0, endpoints=request.endpoints)
        return v2.MessageQueue(topic=request.topic, id=queue_id, permission=permission, broker=broker)

    async def heartbeat(self, _: Any, __: Context) -> Any:
        return v2.HeartbeatResponse(status=status())

    async def notify_client_termination(self, _: Any, __: Context) -> Any:
        """Its stream says it, too."""
        return v2.NotifyClientTerminationResponse(status=status())

    async def telemetry(self, said: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for command in self._streams.serve(_client_id(context), said):
            yield command

    # --- sending

    async def send_message(self, request: Any, context: Context) -> Any:
        """One after the other."""
        answer = v2.SendMessageResponse()
        for given in request.messages:
            try:
                entry = await self._send(given, _seconds(context, _SEND_S))
            except (Wrong, RmqError) as error:
                entry = v2.SendResultEntry(status=status_of(error), message_id=given.system_properties.message_id)
            answer.entries.append(entry)
        if not answer.entries:
            raise Wrong(Code.BAD_REQUEST, "no message")
        answer.status.CopyFrom(overall([entry.status for entry in answer.entries]))
        return answer

    async def _send(self, given: Any, timeout_s: float) -> Any:
        message, more, group, half = read(given)
        producer = self._producer
        if half:
            producer, more = (
                await self._streams.producer(message.topic),
                more | {"TRAN_MSG": "true", "PGROUP": transactions.group_of(message.topic)},
            )
        sent = await producer.send_with(message, more, key=group, queue=None, timeout=timeout_s, half=half)
        entry = v2.SendResultEntry(
            status=status(STORED[sent.status], sent.status.name),
            message_id=sent.message_id,
            offset=sent.queue_offset,
            recall_handle=sent.recall_handle,
        )
        if half:
            waiting = transactions.Half(sent.queue.broker_name, sent.queue_offset, sent.physical_offset, sent.message_id)
            entry.transaction_id = waiting.text()
        return entry

    async def end_transaction(self, request: Any, context: Context) -> Any:
        topic, half = topic_of(request.topic), transactions.parse(request.transaction_id)
        decisions = {v2.TransactionResolution.COMMIT: _COMMIT, v2.TransactionResolution.ROLLBACK: _ROLLBACK}
        decision = decisions.get(request.resolution)
        if decision is not None:  # who does not know yet is asked again
            end = EndTransaction(
                transactions.group_of(topic),
                half.queue_offset,
                half.physical_offset,
                decision,
                half.message_id,
                request.source == v2.TransactionSource.SOURCE_SERVER_CHECK,
                half.message_id,
                topic,
            )
            await self._session.leaders.request(half.broker_name, end, _seconds(context, _SEND_S))
        return v2.EndTransactionResponse(status=status())

    async def recall_message(self, request: Any, context: Context) -> Any:
        topic = topic_of(request.topic)
        route = await self._session.routes.get(topic)
        error: Exception = Wrong(Code.TOPIC_NOT_FOUND, f"no broker has {topic}")
        for data in sorted(route.queues):
            try:
                recall = Recall(topic, request.recall_handle, _GROUP)
                found = await self._session.leaders.request(data.broker_name, recall, _seconds(context, _SEND_S))
                assert isinstance(found, RecallAnswer)
                return v2.RecallMessageResponse(status=status(), message_id=found.msg_id)
            except RmqError as refused:
                error = refused
        raise error

    # --- receiving

    async def receive_message(self, request: Any, context: Context) -> AsyncIterator[Any]:
        def said(found: Any) -> Any:
            return v2.ReceiveMessageResponse(status=found)

        try:
            asked = await self._asked(request, context)
            given = await self._receiving.receive(asked)
        except (Wrong, RmqError) as error:
            yield said(status_of(error))
            return
        if not given:
            yield said(status(Code.MESSAGE_NOT_FOUND, "no message came in time"))
            return
        complete = False
        try:
            yield said(status())
            for message, receipt, attempt in given:
                try:
                    yield v2.ReceiveMessageResponse(message=written(message, receipt.text(), receipt.held.invisible_ms, attempt))
                except BadBytes as error:
                    self._receiving.let_go(asked.group, receipt)
                    _log.error("%s is not handed out, it comes again: %s", message, error)
            done = v2.ReceiveMessageResponse()
            done.delivery_timestamp.FromMilliseconds(self._session.clock.wall_ms())
            yield done
            complete = True
        finally:
            if not complete:  # nobody knows what of it came
                self._receiving.give_back(asked, given)

    async def _asked(self, request: Any, context: Context) -> Asked:
        group, queue = consumer_group(request.group), request.message_queue
        topic = topic_of(queue.topic)
        wait_s = request.long_polling_timeout.ToMilliseconds() / 1000 if request.HasField("long_polling_timeout") else POLL_S
        return Asked(
            client_id=_client_id(context),
            group=group,
            topic=topic,
            broker_name=queue.broker.name,
            most=request.batch_size,
            hidden_ms=0 if request.auto_renew else request.invisible_duration.ToMilliseconds(),
            wait_s=max(0.0, min(wait_s, POLL_S, _seconds(context, POLL_S) - _MARGIN_S)),
            expression=request.filter_expression.expression or "*",
            sql=request.filter_expression.type == v2.FilterType.SQL,
            ordered=(await self._looks.group(group, topic)).consume_message_orderly,
            attempt_id=request.attempt_id,
            lite=self._streams.is_lite(_client_id(context)),
        )

    async def sync_lite_subscription(self, request: Any, context: Context) -> Any:
        client_id = _client_id(context)
        await self._lites.change(client_id, request, self._streams.is_open(client_id))
        return v2.SyncLiteSubscriptionResponse(status=status())

    async def ack_message(self, request: Any, _: Context) -> Any:
        group, topic = topic_of(request.group), topic_of(request.topic)

        async def one(entry: Any) -> Any:
            try:
                await self._receiving.ack(group, topic, entry.receipt_handle, entry.lite_topic)
                found = status()
            except (Wrong, RmqError) as error:
                found = status_of(error)
            return v2.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=found)

        if not request.entries:
            raise Wrong(Code.BAD_REQUEST, "no receipt handle")
        entries = await asyncio.gather(*map(one, request.entries))
        return v2.AckMessageResponse(status=overall([entry.status for entry in entries]), entries=entries)

    async def change_invisible_duration(self, request: Any, _: Context) -> Any:
        receipt = await self._receiving.change(
            topic_of(request.group),
            topic_of(request.topic),
            request.receipt_handle,
            request.invisible_duration.ToMilliseconds(),
            request.lite_topic,
            request.suspend,
        )
        return v2.ChangeInvisibleDurationResponse(status=status(), receipt_handle=receipt)

    async def forward_message_to_dead_letter_queue(self, request: Any, _: Context) -> Any:
        group, topic = topic_of(request.group), topic_of(request.topic)
        await self._receiving.bury(group, topic, request.receipt_handle, request.message_id, request.lite_topic)
        return v2.ForwardMessageToDeadLetterQueueResponse(status=status())


def _client_id(context: Context) -> str:
    return str(dict(context.invocation_metadata() or ()).get("x-mq-client-id", "")) or str(context.peer())


def _seconds(context: Context, most: float) -> float:
    """The client's patience."""
    left = context.time_remaining()
    return most if left is None else min(most, left)


def _alone(name: str, method: Callable[[Any, Context], Awaitable[Any]]) -> "grpc.RpcMethodHandler[Any, Any]":
    """Of one request and one answer. Errors are statuses in the answer, as RocketMQ gives them."""
    request, answer = getattr(v2, f"{name}Request"), getattr(v2, f"{name}Response")

    @functools.wraps(method)
    async def handle(asked: Any, context: Context) -> Any:
        try:
            return await method(asked, context)
        except (Wrong, RmqError) as error:
            return answer(status=status_of(error))
        except Exception:
            _log.exception("%s failed; this is a bug, please report it", name)
            return answer(status=status(Code.INTERNAL_SERVER_ERROR, "an error in the door: its log says it"))

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=request.FromString, response_serializer=answer.SerializeToString
    )
