"""Asking: a message that wants a reply, and the reply [DefaultMQProducerImpl.request].

A reply comes by the connection of whoever answers last: to a broker that this client is connected to, as the producer that it
said to be. So before a question leaves every broker that could bring its reply, and answers, has heard of this client.
"""

import asyncio
import uuid
from math import inf
from struct import error as StructError

from rmq.client.producer.producer import Producer, Selector
from rmq.client.shared.message import Message, ReceivedMessage
from rmq.client.shared.session import Session
from rmq.client.shared.tasks import within
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, InvalidArgument, Refusal, Unknown, Unreachable
from rmq.log.records import record
from rmq.model import TEMPLATE_TOPIC, MessageQueue
from rmq.net.commands import Request
from rmq.net.commands.replies import CORRELATION_ID, REPLY_TO_CLIENT, TTL, PushReply

GROUP = "rmq_requests"
_INTRODUCE_S = 1.0
_IN_VAIN_S = 5.0  # so long nobody waits again for nameservers, or brokers, that do not answer
_LONGEST_TTL_S = 2e6  # who answers reads it as 32 bits of ms


class Requests:
    """The questions of one client that wait for their replies."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._producer = Producer(session, GROUP)
        self._announced = False
        self._in_vain = -inf  # when nameservers were last asked in vain where replies come to (monotonic s)
        self._mute = -inf  # when a broker was last introduced to in vain; heartbeats go on
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        session.connections.on_request.append(self._pushed)

    async def close(self) -> None:
        """Who still waits gets Unknown."""
        self._session.connections.on_request.remove(self._pushed)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unknown("the client was closed before the reply came"))
                waiting.exception()  # whoever is still sending the question does not ask for it
        await self._producer.close()

    async def ask(
        self, message: Message, key: str | None, queue: MessageQueue | Selector | None, timeout: float
    ) -> ReceivedMessage:
        """See `Client.request`."""
        clock = self._session.clock
        deadline = clock.monotonic() + timeout
        try:
            cluster = await within(clock, timeout, self._cluster(message.topic, timeout / 2))
        except TimeoutError:
            raise Unreachable(f"no nameserver told within {timeout:g} s where {message.topic} lives") from None
        if clock.monotonic() - self._mute >= _IN_VAIN_S:
            try:
                await within(clock, min(_INTRODUCE_S, timeout / 2), self._introduce())
            except TimeoutError:  # one that stands still brings no replies, and the others know this client by now
                self._mute = clock.monotonic()
        correlation = str(uuid.uuid4())
        more = {
            CORRELATION_ID: correlation,
            REPLY_TO_CLIENT: self._session.client_id,
            TTL: str(int(min(timeout, _LONGEST_TTL_S) * 1000)),
            "CLUSTER": cluster,
        }
        reply = self._waiting[correlation] = asyncio.get_running_loop().create_future()
        try:
            await self._producer.send_with(message, more, key=key, queue=queue, timeout=deadline - clock.monotonic())
            return await within(clock, max(deadline - clock.monotonic(), 0.0), reply)
        except TimeoutError:
            raise Unknown(f"no reply within {timeout:g} s; the message may or may not have been handled") from None
        finally:
            del self._waiting[correlation]

    async def _cluster(self, topic: str, patience_s: float) -> str:
        """The name of the topic's cluster, whose brokers that take replies are known then; if no nameserver tells them within
        that time, those of the topic do. Raises Refusal, Unreachable."""
        routes = self._session.routes
        try:
            route = await routes.get(topic)
        except Refusal as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            route = await routes.get(TEMPLATE_TOPIC)  # the question may make the topic, as any first message
        if not route.brokers:  # none of the client's zone
            raise Unreachable(f"no broker takes messages for {topic} now")
        cluster = route.brokers[0].cluster
        replies, clock = f"{cluster}_REPLY_TOPIC", self._session.clock
        if routes.known(replies) is None and clock.monotonic() - self._in_vain < _IN_VAIN_S:
            routes.refresh_behind(replies)
            return cluster
        try:
            await within(clock, patience_s, routes.get(replies))
        except (Unreachable, TimeoutError):
            self._in_vain = clock.monotonic()
        return cluster

    async def _introduce(self) -> None:
        """Every broker knows this client."""
        if not self._announced:  # brokers may know this client, but not that it asks
            self._announced = await self._session.heartbeats.beat()
        await self._session.heartbeats.introduce()

    def _pushed(self, push: Request) -> None:
        if not isinstance(push, PushReply):
            return
        properties = push.properties.encode()
        waiting = self._waiting.get(record.bytes_to_properties(properties).get(CORRELATION_ID, ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(ReceivedMessage(_stored(push, properties), MessageQueue(push.topic, "", push.queue_id)))


def _stored(push: PushReply, properties: bytes) -> record.Record:
    """As a message that was read. Raises BadBytes."""
    host = bytes(8)  # who answered stands in no field of it that we could prove
    try:
        draft = record.draft(
            push.topic,
            push.message,
            properties,
            flag=push.flag,
            sys_flag=push.sys_flag & record.SYS_BODY,
            born_timestamp=push.born_timestamp,
            born_host=host,
        )
    except (InvalidArgument, StructError) as error:
        raise BadBytes(f"a reply that is no message: {error}") from None
    return record.decode(draft)._replace(store_timestamp=push.store_timestamp)
