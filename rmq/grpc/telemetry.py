"""The streams that RocketMQ's gRPC clients keep open: what they say of themselves, what they are told, and what they are asked
about their open transactions [ClientActivity]."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from rmq import background
from rmq.client import Client
from rmq.client.producer.producer import Producer
from rmq.client.shared.connections import forget
from rmq.client.shared.inflating import MAX_MESSAGE_BYTES
from rmq.client.shared.message import ReceivedMessage
from rmq.client.shared.routes import AT_ONCE, get_all
from rmq.client.shared.tasks import TaskSet, some_at_a_time
from rmq.codes import ResponseCode
from rmq.delivery.groups import lite_rules
from rmq.delivery.popping import MAX_MESSAGES
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError
from rmq.grpc.lites import Lites
from rmq.grpc.looks import Looks, tell_backoff
from rmq.grpc.messages import MOST, consumer_group, topic_of, written
from rmq.grpc.schema import v2
from rmq.grpc.statuses import Code, Wrong, status, status_of, unreadable
from rmq.grpc.transactions import Half, group_of
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.names import MAX_LITE_LENGTH
from rmq.net.commands import Request
from rmq.net.commands.lites import LiteTaken
from rmq.net.commands.transactions import CheckTransactionState

_log = logging.getLogger("rmq.grpc")
POLL_S = 20.0  # how long clients are told to wait for messages
_LITE = v2.ClientType.LITE_PUSH_CONSUMER, v2.ClientType.LITE_SIMPLE_CONSUMER
MOST_TOPICS = 10_000  # of a client
MOST_WAITING = 1000  # commands for one client that reads none
MOST_WAITING_BYTES = 8 << 20  # of theirs; a question has a whole message
MOST_WAITING_BYTES_OF_ALL = 256 << 20


class Waiting:
    """How many bytes of commands wait for all clients of a door."""

    def __init__(self) -> None:
        self.size = 0


class Stream:
    """One client's. `topics`: that it sends to. `lite`: it consumes lite topics; None: it did not say so far what it is."""

    def __init__(self, client_id: str, waiting: Waiting) -> None:
        self.client_id = client_id
        self._waiting = waiting
        self.listening: asyncio.Task[None] | None = None  # until the client, or the door, ends it
        self.topics: tuple[str, ...] = ()
        self.lite: bool | None = None
        self._told: asyncio.Queue[tuple[int, Any]] = asyncio.Queue(MOST_WAITING)
        self._waiting_bytes = 0

    def tell(self, command: Any) -> bool:
        """False: it has not read what it was told before, or all together have not. One command, however large, has room."""
        size = command.ByteSize()
        if self._told.full() or (self._waiting_bytes and self._waiting_bytes + size > MOST_WAITING_BYTES):
            return False
        if self._waiting.size + size > MOST_WAITING_BYTES_OF_ALL:
            return False
        self._told.put_nowait((size, command))
        self._grew(size)
        return True

    async def next(self) -> Any:
        """What it is told next."""
        size, command = await self._told.get()
        self._grew(-size)
        return command

    def gone(self) -> None:
        """Nobody reads what still waits."""
        self._grew(-self._waiting_bytes)

    def _grew(self, by: int) -> None:
        self._waiting_bytes += by
        self._waiting.size += by


class Streams:
    """All that are open at this door. The brokers know it as a producer of each topic that one of them sends to, so they ask here
    after transactions [SendMessageActivity]."""

    def __init__(self, client: Client, looks: Looks, lites: Lites) -> None:
        self._client = client
        self._looks = looks
        self._lites = lites
        self._open: dict[str, Stream] = {}
        self._waiting = Waiting()
        self._senders: Counter[str] = Counter()  # streams of each topic
        self._producers: dict[str, Producer] = {}
        self._closing = TaskSet()  # producers; not in a stream's own task, which may be cancelled
        client.session.connections.on_request.append(self._asked)

    def end(self) -> None:
        """The door closes: clients would keep their streams open."""
        for client_id in self._open:
            self.end_one(client_id)

    def end_one(self, client_id: str) -> None:
        stream = self._open.get(client_id)
        if stream is not None and stream.listening is not None:
            stream.listening.cancel()

    async def close(self) -> None:
        forget(self._client.session.connections.on_request, self._asked)
        producers, self._producers = self._producers, {}
        await asyncio.gather(*(producer.close() for producer in producers.values()))
        await self._closing.close()  # of the rest brokers hear by the end of the connection

    @property
    def count(self) -> int:
        return len(self._open)

    def is_open(self, client_id: str) -> bool:
        return client_id in self._open

    def is_lite(self, client_id: str) -> bool | None:
        """None: it did not say so far, or its stream has ended; a door that stops ends the streams first."""
        stream = self._open.get(client_id)
        return stream.lite if stream is not None else None

    async def producer(self, topic: str) -> Producer | None:
        """That sends halves to this topic, which must be there; None if no stream does: nobody here could be asked after them.
        Raises RmqError."""
        await self._client.session.routes.get(topic)
        return self._producers.get(topic)

    async def serve(self, client_id: str, said: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """What one client is told, until it goes."""
        stream = self._open[client_id] = Stream(client_id, self._waiting)
        listening = stream.listening = background.start(self._listen(stream, said), f"stream of {client_id}")
        waiting = asyncio.create_task(stream.next())
        try:
            while True:
                await asyncio.wait((waiting, listening), return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    return
                yield waiting.result()
                waiting = asyncio.create_task(stream.next())
        finally:
            waiting.cancel()
            listening.cancel()
            self._gone(stream)

    async def _listen(self, stream: Stream, said: AsyncIterator[Any]) -> None:
        """Until the client ends its stream."""
        async for command in said:
            if command is None:
                self._tell(stream, v2.TelemetryCommand(status=status_of(unreadable())))
            elif command.HasField("settings"):
                try:
                    answer = v2.TelemetryCommand(status=status(), settings=await self._settings(stream, command.settings))
                except (Wrong, RmqError) as error:
                    answer = v2.TelemetryCommand(status=status_of(error))
                self._tell(stream, answer)

    def _tell(self, stream: Stream, command: Any) -> None:
        if not stream.tell(command):
            _log.warning("%s does not read what it is asked: it will be asked again", stream.client_id)

    def _gone(self, stream: Stream) -> None:
        stream.gone()
        if self._open.get(stream.client_id) is stream:
            del self._open[stream.client_id]
            self._lites.forget(stream.client_id)
        topics, stream.topics = stream.topics, ()
        self._release(topics)

    def _release(self, topics: tuple[str, ...]) -> None:
        """One stream fewer sends to each."""
        self._senders.subtract(topics)
        gone = [topic for topic in topics if self._senders[topic] <= 0]
        for topic in gone:
            del self._senders[topic]
        if producers := [self._producers.pop(topic) for topic in gone if topic in self._producers]:
            closing = some_at_a_time(AT_ONCE, Producer.close, producers)  # brokers are told of each
            self._closing.start(closing, f"close {len(producers)} producers")

    # --- settings

    async def _settings(self, stream: Stream, given: Any) -> Any:
        """What is asked for, as far as it is the client's to say, and the rest. Raises Wrong, RmqError."""
        count = max(len(given.publishing.topics), len(given.subscription.subscriptions))
        if count > MOST_TOPICS:
            raise Wrong(Code.BAD_REQUEST, f"{count} topics: a client sends to, or consumes, at most {MOST_TOPICS}")
        found = v2.Settings()
        found.CopyFrom(given)
        kind = given.WhichOneof("pub_sub")
        if kind == "publishing":
            await self._publishes(stream, found)
        elif kind == "subscription":
            await self._subscribes(stream, found)
        else:
            raise Wrong(Code.UNRECOGNIZED_CLIENT_TYPE, "the settings say neither what is sent nor what is consumed")
        return found

    async def _publishes(self, stream: Stream, settings: Any) -> None:
        topics = tuple(dict.fromkeys(topic_of(topic) for topic in settings.publishing.topics))
        self._senders.update(topics)  # at once: another stream may end meanwhile, and its producers with it
        try:
            there = await self._there(topics)
        except BaseException:  # also when this stream ends
            self._release(topics)
            raise
        self._release(tuple({*topics}.difference(there)))
        before, stream.topics = stream.topics, there
        for topic in there:
            if topic not in self._producers:  # the brokers are told of each
                self._producers[topic] = self._client.producer(group_of(topic))
        self._release(before)
        settings.publishing.max_body_size, settings.publishing.validate_message_type = MAX_MESSAGE_BYTES, True
        settings.backoff_policy.max_attempts = 3
        backoff = settings.backoff_policy.exponential_backoff
        backoff.initial.FromMilliseconds(10)
        backoff.max.FromMilliseconds(1000)
        backoff.multiplier = 2

    async def _there(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Those of them that exist: who names one that does not is still asked after transactions of the others. Raises RmqError,
        also if none exists."""
        found = await get_all(self._client.session.routes, topics)
        there = tuple(topic for topic, route in zip(topics, found, strict=True) if not isinstance(route, RmqError))
        for error in found:
            missing = isinstance(error, Refusal) and error.code == ResponseCode.TOPIC_NOT_EXIST
            if isinstance(error, RmqError) and not (missing and there):
                raise error
        return there

    async def _subscribes(self, stream: Stream, settings: Any) -> None:
        wanted = settings.subscription
        topics = [topic_of(entry.topic) for entry in wanted.subscriptions]
        if not topics:
            raise Wrong(Code.BAD_REQUEST, "a consumer without a topic: subscribe to one first")
        group = await self._looks.group(consumer_group(wanted.group), topics[0])
        stream.lite = settings.client_type in _LITE
        if stream.lite and (rules := lite_rules(group)) is not None:
            wanted.lite_subscription_quota, wanted.max_lite_topic_size = min(rules.quota, MOST), MAX_LITE_LENGTH
        wanted.fifo, wanted.receive_batch_size = group.consume_message_orderly, MAX_MESSAGES
        if not wanted.HasField("long_polling_timeout"):
            wanted.long_polling_timeout.FromMilliseconds(int(POLL_S * 1000))
        settings.backoff_policy.max_attempts = min(group.retry_max_times + 1, MOST)
        tell_backoff(group, settings.backoff_policy)

    # --- transactions

    def _asked(self, question: Request) -> None:
        """A broker asks after a transaction that nobody ended: one of those that send to its topic knows. Or it tells a client
        that another one has a lite topic now."""
        if isinstance(question, LiteTaken) and (taken_from := self._open.get(question.client_id)) is not None:
            self._lites.taken(question)
            command = v2.NotifyUnsubscribeLiteCommand(lite_topic=question.lite_topic)
            self._tell(taken_from, v2.TelemetryCommand(status=status(), notify_unsubscribe_lite_command=command))
        if not isinstance(question, CheckTransactionState):
            return
        try:
            stored = record.decode(question.message)
            message = ReceivedMessage(stored, MessageQueue(stored.topic, question.bname, stored.queue_id))
            ours = message.properties.get("PGROUP") == group_of(stored.topic)
            streams = [each for each in self._open.values() if ours and stored.topic in each.topics]
            if streams:
                stream = random.choice(streams)
                half = Half(question.bname, question.tran_state_table_offset, question.commit_log_offset, question.msg_id)
                command = v2.RecoverOrphanedTransactionCommand(message=written(message), transaction_id=half.text())
                self._tell(stream, v2.TelemetryCommand(status=status(), recover_orphaned_transaction_command=command))
        except (BadBytes, InvalidArgument) as error:
            _log.error("%s asks after a transaction that cannot be read: %s", question.bname, error)
