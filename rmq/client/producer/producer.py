"""Sending: records of messages, which queue, what the outcome was. `storing` carries them to a broker."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import error as StructError
from types import TracebackType
from typing import Final, NamedTuple, Self

from rmq.client.producer.storing import Outgoing, Storing
from rmq.client.shared.inflating import MAX_MESSAGE_BYTES
from rmq.client.shared.message import Message, SendResult, SendStatus, check_body, message_properties, send_status, unfit
from rmq.client.shared.observers import Observer, Watched
from rmq.client.shared.session import Session, checked_group, checked_target
from rmq.client.shared.traceformat import REGION
from rmq.errors import Closed, InvalidArgument, RmqError, partly
from rmq.javahash import consistent_bucket, java_hash
from rmq.log.records.record import drafts, properties_to_bytes
from rmq.model import MessageQueue
from rmq.net.commands import SendAnswer
from rmq.net.commands.timers import Recall
from rmq.routing.choose import QueueChooser

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
MOST_TOPICS: Final = 10_000  # that a producer remembers; whoever names topics after their users has no end of them
_REGION = properties_to_bytes({"MSG_REGION": REGION, "TRACE_ON": "true"})  # without them Java's consumers trace nothing
_NOBODY = Observer()
_OK = SendStatus.SEND_OK
_new = tuple.__new__  # makes a named tuple in a third of the time


class Producer:
    """Sends messages; safe to use from many tasks at once. Get one from `Client.producer`.

    Errors of the sending methods: InvalidArgument (nothing was tried), Refusal (the broker said no, nothing is
    stored), Unreachable (nothing was stored), Unknown (it may or may not be stored; send again if a repeat does no
    harm), Closed.
    """

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = checked_group(group)
        self._region = _REGION if session.trace is not None else b""
        self._chooser = QueueChooser(random.getrandbits(31))
        self._drafts: dict[str, Callable[[bytes, bytes, int, int], bytes]] = {}  # of topics whose names were checked
        self._storing = Storing(session, group)
        self.closed = False
        session.heartbeats.add_producer(group)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """No more sends; the brokers are told."""
        self._session.connections.check_loop()
        if not self.closed:
            self.closed = True
            await self._session.heartbeats.drop_producer(self._group)

    async def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | Selector | None = None,
        timeout: float = 3.0,
        retry_unknown: bool = False,
    ) -> SendResult:
        """Send and wait until it is stored, at most `timeout` seconds [sendMsgTimeout].

        Without `key` and `queue` the queues take turns and a failed broker group is left alone for a while; messages
        with one `key` go to one queue, in order if you wait for each; `queue` names the queue or is called to choose it.
        A group that is electing its leader, and one that cannot be reached, is tried until the time is up; refusals that
        may be gone at the next try twice more; an unknown outcome (C19) only with `retry_unknown`, which may store the
        message twice.
        """
        if self._session.observer is not None:
            return await self.send_with(message, {}, key=key, queue=queue, timeout=timeout, retry_unknown=retry_unknown)
        message_id, outgoing = self._outgoing(message, b"", key, queue, timeout, retry_unknown)
        return _result(message_id, *await self._storing.store(outgoing))

    async def send_with(
        self,
        message: Message,
        more: Mapping[str, str],
        *,
        key: str | None,
        queue: MessageQueue | Selector | None,
        timeout: float,
        half: bool = False,
        retry_unknown: bool = False,
    ) -> SendResult:
        """As `send`, with properties of the system. `half`: of a transaction."""
        added = properties_to_bytes(more)
        with self._watched([message], half) as sent:
            message_id, outgoing = self._outgoing(sent.messages[0], added, key, queue, timeout, retry_unknown)
            sent.results.append(_result(message_id, *await self._storing.store(outgoing)))
        return sent.results[0]

    def _watched(self, messages: Sequence[Message], half: bool = False) -> Watched:
        """Observers know each message by its id before it is sent."""
        ids = self._session.ids
        named = [one if one.message_id else one._replace(message_id=ids.next()) for one in messages]
        return Watched(self._session.observer or _NOBODY, self._group, named, half)

    async def recall(self, sent: SendResult, *, timeout: float = 3.0) -> None:
        """Take a message with a time back before it comes. Raises Refusal: it is due, had no time of its own (a delay level
        cannot be taken back), or the broker does not allow it (recallMessageEnable)."""
        request = Recall(sent.queue.topic, sent.recall_handle, self._group)
        done = False
        try:
            await self._session.leaders.persist(sent.queue.broker_name, request, timeout)
            done = True
        finally:
            if self._session.observer is not None:
                self._session.observer.recalled(self._group, sent.queue.topic, sent.message_id, done)

    async def send_oneway(
        self, message: Message, *, key: str | None = None, queue: MessageQueue | Selector | None = None
    ) -> None:
        """Hand over to the connection and do not wait for an answer: no promise that it is stored."""
        if self._session.observer is None:
            await self._hand_over(message, key, queue)
            return
        with self._watched([message]) as sent:
            await self._hand_over(sent.messages[0], key, queue)

    async def _hand_over(self, message: Message, key: str | None, queue: MessageQueue | Selector | None) -> None:
        _, outgoing = self._outgoing(message, b"", key, queue, self._session.settings.request_timeout_s)
        await self._storing.post(outgoing)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | Selector | None = None,
        timeout: float = 3.0,
    ) -> list[SendResult]:
        """Send many with few requests; results in the order of `messages`.

        They are cut by topic and into pieces of at most 4 MiB; each piece is stored together or not at all, in one
        queue. If a piece fails its error is raised with a note of how many messages were stored before it; where some were, it is
        not retryable, and Unknown in place of Unreachable: all of it again would store those twice.
        """
        stored: dict[int, SendResult] = {}
        if self._session.observer is None:
            await self._send_pieces(messages, key, queue, timeout, stored)
        else:
            with self._watched([*messages]) as sent:
                try:
                    await self._send_pieces(sent.messages, key, queue, timeout, stored)
                finally:
                    sent.results += stored.values()
        return [stored[index] for index in sorted(stored)]

    async def _send_pieces(
        self,
        messages: Iterable[Message],
        key: str | None,
        queue: MessageQueue | Selector | None,
        timeout: float,
        stored: dict[int, SendResult],
    ) -> None:
        """Piece by piece; what is stored is noted at once."""
        now_ms = self._session.clock.wall_ms()
        encoded = []
        for index, message in enumerate(messages):
            if message.delay_level or message.delay_s or message.deliver_at_ms or message.lite_topic:
                raise InvalidArgument("a message of a batch cannot come later, nor go to a lite topic: send it alone")
            message_id, record = self._encode(message, now_ms)
            encoded.append(_new(Encoded, (index, message, message_id, record)))
        for piece in cut(encoded):
            try:
                stored.update(await self._send_piece(piece, key, queue, timeout))
            except RmqError as error:
                failure = partly(error) if stored else error
                failure.retryable = failure.retryable and not stored
                failure.add_note(f"{len(stored)} of the {len(encoded)} messages of this batch were stored before this failure")
                raise failure from None

    async def _send_piece(
        self,
        piece: "list[Encoded]",
        key: str | None,
        queue: MessageQueue | Selector | None,
        timeout: float,
    ) -> dict[int, SendResult]:
        message, records = piece[0].message, b"".join([each.record for each in piece])
        deadline = self._session.clock.monotonic() + timeout
        choose = self._choice(message, key, queue)
        outgoing = Outgoing(message.topic, records, choose, deadline, key is not None, batch=len(piece) > 1)
        used, (_, queue_offset, place, code, _, batch_id) = await self._storing.store(outgoing)
        status, results = send_status(code), {}
        for index, _, message_id, record in piece:
            results[index] = _new(SendResult, (message_id, used, queue_offset, status, "", place))
            queue_offset += 1
            place += 0 if batch_id else len(record)
        return results

    def _encode(self, message: Message, now_ms: int, more: bytes = b"") -> tuple[str, bytes]:
        """Unique id and record of a message that keeps all the rules. `more`: own properties. Raises InvalidArgument, Closed."""
        if self.closed:
            raise Closed("this producer is closed: make a new one")
        draft = self._drafts.get(message.topic)
        if draft is None:
            if len(self._drafts) >= MOST_TOPICS:
                self._forget_topics()
            draft = self._drafts[message.topic] = drafts(checked_target(message.topic), self._session.born_host)
        body = message.body
        if type(body) is not bytes or not 0 < len(body) <= MAX_MESSAGE_BYTES:
            check_body(body, MAX_MESSAGE_BYTES)
            body = bytes(body)
        message_id = message.message_id or self._session.ids.at(now_ms)
        try:
            properties = message_properties(message, message_id) + self._region + more
            return message_id, draft(body, properties, message.flag, now_ms)
        except (UnicodeEncodeError, StructError) as error:
            raise unfit(message, error) from None

    def _forget_topics(self) -> None:
        """Those that are still used come back with their next send."""
        self._drafts.clear()
        self._chooser = QueueChooser(random.getrandbits(31))
        self._storing.forget_topics()

    def _outgoing(
        self,
        message: Message,
        more: bytes,
        key: str | None,
        queue: MessageQueue | Selector | None,
        timeout: float,
        retry_unknown: bool = False,
    ) -> tuple[str, Outgoing]:
        """With the unique id. `more`: properties of the system. Raises InvalidArgument, Closed."""
        clock = self._session.clock
        message_id, records = self._encode(message, clock.wall_ms(), more)
        lite = message.lite_topic != ""
        choose = self._choice(message, key, queue) if lite or key is not None or queue is not None else self._take_turns
        deadline = clock.monotonic() + timeout
        ordered = lite or key is not None
        return message_id, _new(Outgoing, (message.topic, records, choose, deadline, ordered, retry_unknown, False))

    def _choice(
        self,
        message: Message,
        key: str | None,
        queue: MessageQueue | Selector | None,
    ) -> Callable[[Sequence[MessageQueue], str], MessageQueue]:
        if key is not None and queue is not None:
            raise InvalidArgument("give key or queue, not both")
        if key is not None and not isinstance(key, str):
            raise InvalidArgument(f"key {key!r}: give a text, as str(number)")
        if isinstance(queue, MessageQueue):
            _chosen(queue, message.topic)
            return lambda queues, avoid: queue
        if queue is not None:
            if not callable(queue):
                raise InvalidArgument(f"queue {queue!r}: give a MessageQueue, or a function that chooses one")
            return lambda queues, avoid: _chosen(queue(queues, message), message.topic)
        if key is not None:
            return lambda queues, avoid: self._chooser.by_key(queues, key)
        if message.lite_topic:  # all of a lite topic at one broker, so that they stay in order [LiteShardingImpl]
            return lambda queues, avoid: queues[consistent_bucket(java_hash(message.lite_topic), len(queues))]
        return self._take_turns

    def _take_turns(self, queues: Sequence[MessageQueue], avoid: str) -> MessageQueue:
        isolation = self._session.isolation
        if isolation.until:
            queues = isolation.available(queues, self._session.clock.monotonic())
        return self._chooser.next(queues, avoid)


class Encoded(NamedTuple):
    """A message of a batch. `number`: its place there."""

    number: int
    message: Message
    message_id: str
    record: bytes


def _chosen(queue: object, topic: str) -> MessageQueue:
    """A queue that the program gave, or its function. Raises InvalidArgument."""
    if not isinstance(queue, MessageQueue):
        raise InvalidArgument(f"the function that chooses a queue returned {queue!r}: return one of the queues that it is given")
    if queue.topic != topic:
        raise InvalidArgument(f"{queue} is no queue of topic {topic}")
    return queue


def _result(message_id: str, queue: MessageQueue, answer: SendAnswer) -> SendResult:
    _, queue_offset, place, code, handle, _ = answer
    status = send_status(code) if code else _OK
    return _new(SendResult, (message_id, queue, queue_offset, status, handle, place))


def cut(encoded: Sequence[Encoded], max_bytes: int = MAX_MESSAGE_BYTES) -> list[list[Encoded]]:
    """Pieces of one topic and at most `max_bytes` each (a single larger one stays alone); order is kept within a topic."""
    if len({each.message.topic for each in encoded}) == 1 and sum([len(each.record) for each in encoded]) <= max_bytes:
        return [[*encoded]]
    pieces: list[list[Encoded]] = []
    open_pieces: dict[str, tuple[list[Encoded], int]] = {}
    for each in encoded:
        topic, size = each.message.topic, len(each.record)
        piece, used = open_pieces.get(topic, ([], max_bytes + 1))
        if used + size > max_bytes:
            piece, used = [], 0
            pieces.append(piece)
        piece.append(each)
        open_pieces[topic] = (piece, used + size)
    return pieces
