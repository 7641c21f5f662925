"""Answering: what a handler returns goes back to whoever asked [MessageUtil.createReplyMessage]."""

import inspect
import logging
from collections.abc import Awaitable, Callable

from rmq.client.shared.inflating import MAX_MESSAGE_BYTES
from rmq.client.shared.message import ReceivedMessage, check_body
from rmq.client.shared.session import Session
from rmq.errors import InvalidArgument, RmqError
from rmq.log.records import record
from rmq.net.commands.replies import CORRELATION_ID, MSG_TYPE, REPLY, REPLY_TO_CLIENT, TTL, SendReply

_log = logging.getLogger("rmq.client")
_TRY_S = 3.0
_PAUSE_S = 0.1
LONGEST_MS = 10_000

Answerer = Callable[[ReceivedMessage], bytes | Awaitable[bytes | None] | None]


def _whole(text: str) -> int:
    """What is no number of a usual length, from whoever asked, is 0."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


class Replies:
    """Of one consumer. `group`: its own, which brokers see as the sender's."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    def replying(self, answerer: Answerer) -> Callable[[ReceivedMessage], Awaitable[None]]:
        """A handler that sends back what `answerer` returns, if that is not None and the message asks for a reply."""

        async def handle(message: ReceivedMessage) -> None:
            found = answerer(message)
            body = await found if inspect.isawaitable(found) else found
            if body is not None and REPLY_TO_CLIENT in message.properties:
                await self._send(message, body)

        return handle

    async def _send(self, question: ReceivedMessage, body: bytes) -> None:
        """Until somebody took it, nobody waits for it any more, or 10 s are over: each try is stored, and the handler is held up.
        First to the broker of the question: who asked is there."""
        if not isinstance(body, bytes | bytearray | memoryview) or not len(body):
            raise InvalidArgument(f"a reply of {type(body).__name__}: return bytes, at least one, or None")
        check_body(body, MAX_MESSAGE_BYTES)
        clock, properties = self._session.clock, question.properties
        left_ms = question.born_timestamp + _whole(properties.get(TTL, "")) - clock.wall_ms()
        until_s = clock.monotonic() + min(left_ms, LONGEST_MS) / 1000
        pause_s, first = _PAUSE_S, question.queue.broker_name
        topic = f"{properties.get('CLUSTER', '')}_REPLY_TOPIC"
        request = SendReply(self._group, topic, -1, self._record(topic, question, bytes(body)))
        while True:
            trouble = await self._tried(first, request)
            for name in await self._others(topic, first) if trouble is not None else ():
                trouble = await self._tried(name, request)
                if trouble is None:
                    break
            if trouble is None:
                return
            if clock.monotonic() >= until_s:
                _log.warning("the reply to %s was taken by nobody: %s", question, trouble)
                return
            await clock.sleep(pause_s)
            pause_s *= 2

    async def _tried(self, broker_name: str, request: SendReply) -> RmqError | None:
        """None: it took the reply."""
        try:
            await self._session.leaders.request(broker_name, request, _TRY_S)
        except RmqError as error:
            return error
        return None

    async def _others(self, topic: str, first: str) -> list[str]:
        """Asked for only when the first one has not taken the reply: nameservers may stand still."""
        try:
            names = {data.broker_name for data in (await self._session.routes.get(topic)).queues}
        except RmqError:  # no such topic, or no nameserver answers
            return []
        return sorted(names - {first})

    def _record(self, topic: str, question: ReceivedMessage, body: bytes) -> bytes:
        kept = {name: question.properties.get(name, "") for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL)}
        properties = {"UNIQ_KEY": self._session.ids.next(), MSG_TYPE: REPLY, **{name: one for name, one in kept.items() if one}}
        return record.draft(
            topic,
            body,
            record.properties_to_bytes(properties),
            born_timestamp=self._session.clock.wall_ms(),
            born_host=self._session.born_host,
        )
