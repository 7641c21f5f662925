"""The port: RocketMQ's gRPC service on it, each request through the door of whoever asks."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from rmq.errors import RmqError
from rmq.grpc.door import Context, Door
from rmq.grpc.schema import PACKAGE, v2
from rmq.grpc.seen import Seen
from rmq.grpc.statuses import Code, Wrong, status, unreadable
from rmq.names import address_text
from rmq.net.transport.network import TCP

_log = logging.getLogger("rmq.grpc")
SERVICE = f"{PACKAGE}.MessagingService"
MAX_REQUEST_BYTES = 16 << 20
MAX_REQUESTS = 10_000  # at once, streams of clients among them; more are refused by gRPC
PING_MS, ANSWER_MS = 60_000, 20_000  # who does not answer a ping in time is gone; gRPC's library would ask each two hours
_GRACE_S = 2.0  # for requests that are at work when the port is closed, and for streams that are refused
_METHODS: dict[str, Callable[[Door, Any, Context], Awaitable[Any]]] = {
    "QueryRoute": Door.query_route,
    "Heartbeat": Door.heartbeat,
    "SendMessage": Door.send_message,
    "QueryAssignment": Door.query_assignment,
    "AckMessage": Door.ack_message,
    "ForwardMessageToDeadLetterQueue": Door.forward_message_to_dead_letter_queue,
    "EndTransaction": Door.end_transaction,
    "NotifyClientTermination": Door.notify_client_termination,
    "ChangeInvisibleDuration": Door.change_invisible_duration,
    "RecallMessage": Door.recall_message,
    "SyncLiteSubscription": Door.sync_lite_subscription,
}


class Doors(Protocol):
    def entered(self, context: Context) -> AbstractAsyncContextManager[Door]:
        """The door of whoever asks, which stays until the request is answered. Raises Wrong, RmqError."""

    def __iter__(self) -> Iterator[Door]:
        """All that there are."""

    def end_streams(self) -> None: ...

    async def close(self) -> None: ...


class Listening(NamedTuple):
    """`credentials`: of TLS."""

    host: str
    port: int
    credentials: grpc.ServerCredentials | None = None

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)


@asynccontextmanager
async def served(doors: Doors, listening: Listening, seen: Seen) -> AsyncIterator[int]:
    """The port, while it is open; the doors are closed behind it. Raises OSError if it cannot be opened."""
    try:
        await _check_free(listening)
        options = [
            ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", PING_MS),
            ("grpc.keepalive_timeout_ms", ANSWER_MS),
            ("grpc.http2.ping_timeout_ms", ANSWER_MS),
        ]
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_REQUESTS)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, _handlers(doors, seen)),))
        port = _opened(server, listening)
        await server.start()
        try:
            yield port
        finally:
            doors.end_streams()
            await server.stop(_GRACE_S)
    finally:
        await doors.close()


async def _check_free(listening: Listening) -> None:
    """Raises OSError, which says more than gRPC's library does."""
    try:
        listener = await TCP.listen(asyncio.Protocol, listening.host, listening.port)
    except OSError as error:
        raise OSError(f"cannot listen on {listening.address}: {error.strerror or error}") from None
    await listener.close()


def _opened(server: grpc.aio.Server, listening: Listening) -> int:
    try:
        if listening.credentials is None:
            return int(server.add_insecure_port(listening.address))
        return int(server.add_secure_port(listening.address, listening.credentials))
    except RuntimeError:
        raise OSError(f"cannot listen on {listening.address}: gRPC's library does not say why") from None


def _handlers(doors: Doors, seen: Seen) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
    async def receive_message(request: Any, context: Context) -> AsyncIterator[Any]:
        with seen.asked("ReceiveMessage") as asked:
            try:
                _check_read(request)
                async with doors.entered(context) as door, aclosing(door.receive_message(request, context)) as parts:
                    async for part in parts:
                        asked.code = part.status.code or asked.code
                        yield part
            except (Wrong, RmqError) as error:
                yield v2.ReceiveMessageResponse(status=asked.refused(error))

    async def telemetry(said: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        with seen.asked("Telemetry", timed=False) as asked:
            try:
                async with doors.entered(context) as door, aclosing(door.telemetry(said, context)) as commands:
                    asked.code = Code.OK
                    async for command in commands:
                        yield command
            except (Wrong, RmqError) as error:
                # Clients write first, and take an earlier end for a broken connection.
                with suppress(TimeoutError, StopAsyncIteration):
                    async with asyncio.timeout(_GRACE_S):
                        await anext(said)
                yield v2.TelemetryCommand(status=asked.refused(error))

    return {name: _alone(doors, seen, name, method) for name, method in _METHODS.items()} | {
        "ReceiveMessage": grpc.unary_stream_rpc_method_handler(
            receive_message,
            request_deserializer=reader(v2.ReceiveMessageRequest),
            response_serializer=v2.ReceiveMessageResponse.SerializeToString,
        ),
        "Telemetry": grpc.stream_stream_rpc_method_handler(
            telemetry,
            request_deserializer=reader(v2.TelemetryCommand),
            response_serializer=v2.TelemetryCommand.SerializeToString,
        ),
    }


def reader(kind: Any) -> Callable[[bytes], Any]:
    """Reads requests of that kind; None: it is none. gRPC's library would log each one that cannot be read, with a traceback."""

    def read(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError:
            return None

    return read


def _check_read(request: Any) -> None:
    if request is None:
        raise unreadable()


def _alone(
    doors: Doors, seen: Seen, name: str, method: Callable[[Door, Any, Context], Awaitable[Any]]
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Of one request and one answer. Errors are statuses in the answer, as RocketMQ gives them."""
    request, answer = getattr(v2, f"{name}Request"), getattr(v2, f"{name}Response")

    async def handle(given: Any, context: Context) -> Any:
        with seen.asked(name) as asked:
            try:
                _check_read(given)
                async with doors.entered(context) as door:
                    found = await method(door, given, context)
                asked.code = found.status.code
            except (Wrong, RmqError) as error:
                found = answer(status=asked.refused(error))
            except Exception:
                _log.exception("%s failed; this is a bug, please report it", name)
                asked.code = Code.INTERNAL_SERVER_ERROR
                found = answer(status=status(asked.code, "an error in the door: its log says it"))
            return found

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=reader(request), response_serializer=answer.SerializeToString
    )
