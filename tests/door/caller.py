"""Calls the door as RocketMQ's gRPC clients do, request by request."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from rmq.access.sealing import sha1
from rmq.client import Client
from rmq.grpc.schema import v2
from rmq.grpc.seen import Seen
from rmq.grpc.service import SERVICE, Listening, served
from rmq.grpc.visitors import ForEachUser, OneForAll
from rmq.net.commands import SignedLogin
from rmq.testing import LocalBroker

HERE = "127.0.0.1"
SOON = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,1000]}}'
"""A group's retry policy: what failed comes again in a second."""


class Caller:
    """One client, by its id."""

    def __init__(self, port: int, client_id: str = "caller", ca: bytes = b"", signs: tuple[str, str] | None = None) -> None:
        """`ca`: with TLS, of that authority. `signs`: for this user, with this secret."""
        where = f"{HERE}:{port}"
        credentials = grpc.ssl_channel_credentials(ca) if ca else None
        self._channel = grpc.aio.secure_channel(where, credentials) if credentials else grpc.aio.insecure_channel(where)
        self.metadata = [("x-mq-client-id", client_id), *(signed(*signs) if signs else ())]
        self.endpoints = v2.Endpoints(scheme=v2.AddressScheme.IPv4, addresses=[v2.Address(host=HERE, port=port)])

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def connected(self) -> None:
        """The port may have been tried by the proxy itself just now, which resets who connects meanwhile."""
        await asyncio.wait_for(self._channel.channel_ready(), 60)

    async def ask(self, name: str, timeout_s: float = 20.0, **fields: Any) -> Any:
        """The answer to one request."""
        request, answer = getattr(v2, f"{name}Request"), getattr(v2, f"{name}Response")
        call = self._channel.unary_unary(
            f"/{SERVICE}/{name}", request_serializer=request.SerializeToString, response_deserializer=answer.FromString
        )
        return await call(request(**fields), metadata=self.metadata, timeout=timeout_s)

    async def send(self, topic: str, body: bytes, kind: int = v2.MessageType.NORMAL, **system: Any) -> Any:
        """The entry of the answer."""
        properties = v2.SystemProperties(message_type=kind, **system)
        message = v2.Message(topic=v2.Resource(name=topic), body=body, system_properties=properties)
        return (await self.ask("SendMessage", messages=[message])).entries[0]

    def receiving(self, group: str, topic: str, **others: Any) -> Any:
        """The stream of an asked receive."""
        fields = {
            "batch_size": 32,
            "invisible_duration": ms(60_000),
            "long_polling_timeout": ms(5_000),
            "filter_expression": v2.FilterExpression(type=v2.FilterType.TAG, expression="*"),
        } | others
        if fields.get("auto_renew"):
            del fields["invisible_duration"]
        call = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=v2.ReceiveMessageRequest.SerializeToString,
            response_deserializer=v2.ReceiveMessageResponse.FromString,
        )
        fields.setdefault("message_queue", v2.MessageQueue(topic=v2.Resource(name=topic), id=-1))
        request = v2.ReceiveMessageRequest(group=v2.Resource(name=group), **fields)
        return call(request, metadata=self.metadata, timeout=30.0)

    async def receive(self, group: str, topic: str, **others: Any) -> tuple[int, list[Any]]:
        """Code of the status, and the messages."""
        code, found = 0, []
        async for part in self.receiving(group, topic, **others):
            code = part.status.code or code
            if part.HasField("message"):
                found.append(part.message)
        return code, found

    async def ack(self, group: str, topic: str, *messages: Any) -> list[int]:
        """Code of each."""
        entries = [v2.AckMessageEntry(message_id=id_of(one), receipt_handle=handle_of(one)) for one in messages]
        answer = await self.ask("AckMessage", group=v2.Resource(name=group), topic=v2.Resource(name=topic), entries=entries)
        return [entry.status.code for entry in answer.entries]

    @asynccontextmanager
    async def telemetry(self, settings: Any) -> AsyncIterator[Any]:
        """The stream, once the settings are answered, and that answer: (stream, answer)."""
        call = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=v2.TelemetryCommand.SerializeToString,
            response_deserializer=v2.TelemetryCommand.FromString,
        )
        stream = call(metadata=self.metadata)
        try:
            await stream.write(v2.TelemetryCommand(settings=settings))
            yield stream, await asyncio.wait_for(stream.read(), 10)
        finally:
            stream.cancel()


@asynccontextmanager
async def door(broker: LocalBroker, user: str = "", password: str = "") -> AsyncIterator[int]:
    async with broker.client(user=user, password=password) as client:
        inside = OneForAll(client)
        async with served(inside, Listening(HERE, 0), Seen(client, inside, "door")) as port:
            yield port


@asynccontextmanager
async def doors(broker: LocalBroker) -> AsyncIterator[int]:
    """One for each user who signs."""

    def make(newest: Callable[[], SignedLogin]) -> Client:
        return Client(broker.nameserver, clock=broker.clock, user=newest)

    async with broker.client() as asking:
        inside = ForEachUser(asking, make)
        async with served(inside, Listening(HERE, 0), Seen(asking, inside, "door")) as port:
            yield port


def signed(user: str, secret: str, time: str = "20261128T120000Z") -> list[tuple[str, str]]:
    """As RocketMQ's clients do it."""
    digest = hmac.new(secret.encode(), time.encode(), sha1).hexdigest()
    said = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return [("x-mq-date-time", time), ("authorization", said)]


def ms(milliseconds: int) -> Any:
    found = v2.Settings().request_timeout.__class__()
    found.FromMilliseconds(milliseconds)
    return found


def id_of(message: Any) -> str:
    return str(message.system_properties.message_id)


def handle_of(message: Any) -> str:
    return str(message.system_properties.receipt_handle)


def publishing(*topics: str) -> Any:
    return v2.Settings(
        client_type=v2.ClientType.PRODUCER, publishing=v2.Publishing(topics=[v2.Resource(name=topic) for topic in topics])
    )


def subscribing(group: str, *topics: str) -> Any:
    entries = [v2.SubscriptionEntry(topic=v2.Resource(name=topic)) for topic in topics]
    subscription = v2.Subscription(group=v2.Resource(name=group), subscriptions=entries)
    return v2.Settings(client_type=v2.ClientType.PUSH_CONSUMER, subscription=subscription)
