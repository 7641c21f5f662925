"""`Client` joins the parts and hands out producers and consumers. No behaviour of its own."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Literal

from rmq.client.consumer.consumer import Consumer
from rmq.client.consumer.lights import LightConsumer
from rmq.client.consumer.lites import LiteConsumer
from rmq.client.consumer.offsets import BrokerOffsets, OffsetStore
from rmq.client.consumer.plan import FIRST, LAST, Mode, Plan, Start, make_plan, wanted_of
from rmq.client.consumer.simple import SimpleConsumer
from rmq.client.producer.producer import Producer, Selector
from rmq.client.producer.requests import Requests
from rmq.client.producer.transactions import Check, TransactionProducer
from rmq.client.shared.liveness import Liveness
from rmq.client.shared.message import Message, ReceivedMessage, light_name
from rmq.client.shared.session import Session, checked_group, checked_topic, open_session
from rmq.client.shared.settings import ClientSettings
from rmq.client.shared.tasks import TaskSet
from rmq.client.shared.traces import TRACE_GROUP
from rmq.clock import Clock, SystemClock
from rmq.delivery.sql import compile_sql
from rmq.errors import Closed, InvalidArgument
from rmq.model import MessageQueue
from rmq.net.codec.limits import OF_CLIENTS
from rmq.net.commands import SignedLogin
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.network import network_with
from rmq.net.transport.tls import Tls
from rmq.scram import Credentials

DEFAULT_PRODUCER_GROUP = "rmq_producer"
MAX_CACHED_MESSAGES = 1000  # [pullThresholdForQueue]
MAX_CACHED_BYTES = 100 * 1024 * 1024  # [pullThresholdSizeForQueue]
HANDLER_S = 15 * 60.0  # [consumeTimeout]


class Client:
    """A program's connection to a cluster: `async with Client("127.0.0.1:9876") as client`.

    `nameservers`: "host:port;host:port" or a list. `instance` names this client among those of its host (default: the
    process and a random number); a broadcast consumer finds its offsets by it, so give one there. Two at a time must not have
    the same: they would count as one member of a group, and both get all its messages. `user`, `password`: each
    connection logs in with them, if the cluster wants to know; the password itself does not travel (a proxy gives a function in
    their place: the newest signature of whom this client speaks for). `clock` is for tests.
    `tls`: connections are encrypted, and the other side shows a certificate of one of its authorities (`Tls()`: of the system's)
    with the name or address that a nameserver told. Raises InvalidArgument. A client, and all that it hands out, belongs to the
    loop in which it was entered; others get InvalidArgument.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str],
        *,
        instance: str = "",
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        tls: Tls | None = None,
        user: str | Callable[[], SignedLogin] = "",
        password: str = "",
    ) -> None:
        clock = clock or SystemClock()
        credentials = user if callable(user) else Credentials(user, password) if user else None
        dialer = Dialer(clock, network_with(tls, clock), credentials=credentials, limits=OF_CLIENTS)
        self.session: Session = open_session(nameservers, instance, settings or ClientSettings(), dialer)
        self._instance = instance
        self._tasks = TaskSet()
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._requests: Requests | None = None
        self._state = "new"
        self._ending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Client":
        self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """How brokers list this client."""
        return self.session.client_id

    def start(self) -> None:
        """Begin heartbeats and route refreshes (needs the running loop); `async with` does it."""
        self.session.connections.enter()
        if self._state == "new":
            self._state = "open"
            session = self.session
            self._tasks.start(session.routes.keep_fresh(), "refresh routes")
            self._tasks.start(session.routes.keep_led(), "find leaders")
            liveness = Liveness(session.connections, session.routes, session.clock)
            self._tasks.start(liveness.keep_asking(), "ask leaders")
            self._tasks.start(self.session.heartbeats.keep_beating(), "heartbeats")
            if session.trace is not None:
                session.trace.start(Producer(replace(session, observer=None), TRACE_GROUP).send)

    async def close(self) -> None:
        """Consumers leave in order, producers are unregistered, connections closed. That goes on if who waits for it is
        cancelled; called again it waits for the rest."""
        self.session.connections.check_loop()
        self._state = "closed"
        asking = asyncio.current_task()
        for consumer in self._consumers:
            consumer.begin_leaving(asking)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="close the client")
        if not any(consumer.waits_for(asking) for consumer in self._consumers):
            await asyncio.shield(self._ending)

    async def _end(self) -> None:
        for consumer in self._consumers:
            await consumer.left()
        await asyncio.gather(*(producer.close() for producer in self._producers))
        if self._requests is not None:
            await self._requests.close()
        if self.session.trace is not None:
            await self.session.trace.close()
        await self._tasks.close()
        await self.session.heartbeats.close()
        await self.session.nameservers.close()
        await self.session.connections.close()

    def producer(self, group: str = DEFAULT_PRODUCER_GROUP) -> Producer:
        """A producer; close it, or let the client do so. Raises InvalidArgument for a bad name, Closed."""
        self._check_open()
        producer = Producer(self.session, group)
        self._producers = [*(each for each in self._producers if not each.closed), producer]
        return producer

    async def request(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | Selector | None = None,
        timeout: float = 3.0,
    ) -> ReceivedMessage:
        """Send a message and wait, `timeout` seconds in all, for the reply of whoever handles it (`Consumer.reply`, or
        RocketMQ's clients). `key`, `queue`: as of `Producer.send`. Raises as that, and Unknown if no reply came in time."""
        self._check_open()
        if self._requests is None:
            self._requests = Requests(self.session)
        return await self._requests.ask(message, key, queue, timeout)

    def transaction_producer(
        self, check: Check, group: str = DEFAULT_PRODUCER_GROUP, *, topics: Iterable[str] | str = ()
    ) -> TransactionProducer:
        """A producer that can also send in transactions. `check` is asked for the outcome of a transaction when
        nobody reported it in time; also of transactions that an earlier run, or another member of the group, left open.
        `topics`: their brokers know this producer from the start, others from its first send on. Raises InvalidArgument, Closed.
        """
        self._check_open()
        producer = TransactionProducer(self.session, group, check, topics)
        self._producers = [*(each for each in self._producers if not each.closed), producer]
        return producer

    def consumer(
        self,
        group: str,
        topics: Mapping[str, str] | Iterable[str] | str,
        *,
        sql: str | None = None,
        mode: Mode = "cluster",
        start: Start = LAST,
        max_messages: int = MAX_CACHED_MESSAGES,
        max_bytes: int = MAX_CACHED_BYTES,
        auto_commit: bool = True,
        ordered: bool = False,
        max_retries: int | None = None,
        handler_timeout: float = HANDLER_S,
    ) -> Consumer:
        """A member of `group`, to be used with `async with`.

        `topics`: {"Topic": "TagA || TagB"}, or names for everything in them. `sql`: only messages of whose properties an SQL92
        expression is true, as "a > 3 AND b = 'x'", where the brokers allow it (enablePropertyFilter). `mode`: "cluster" (each
        message to one member) or "broadcast" (each to every member). `start`: where a group begins in a queue it has no offset
        of: "last" (but a topic so young that its first message is still at hand is read from there), "first", a datetime
        or Unix ms. `max_messages`, `max_bytes`: what one queue may hold in memory. With `auto_commit=False` only
        `Consumer.commit` finishes what iteration and `receive` gave out. `ordered`: the next message of a queue comes when
        the one before is finished, and no two members handle one queue at the same time. `max_retries`: how often a message
        that failed comes again before it goes to the dead letters (default: as the group's settings say, which is 16 times;
        in order: for ever). `handler_timeout`: seconds after which a handler is cancelled and has failed, unless
        in order or of a broadcast. Raises InvalidArgument, Closed.
        """
        self._check_open()
        version = self.session.clock.wall_ms()
        limits, retrying = (max_messages, max_bytes), (max_retries, handler_timeout)
        plan = make_plan(group, topics, sql, mode, start, limits, auto_commit, ordered, retrying, version)
        _check_whole(sql)
        consumer = Consumer(self.session, plan, self._offsets(plan))
        self._consumers = [*(each for each in self._consumers if not each.closed), consumer]
        return consumer

    def simple_consumer(
        self,
        group: str,
        topics: Mapping[str, str] | Iterable[str] | str,
        *,
        sql: str | None = None,
        start: Literal["last", "first"] = LAST,
    ) -> SimpleConsumer:
        """One that takes messages of `group` when it asks and acknowledges each. `topics`, `sql`, `start`: as of `consumer`,
        but no broker needs to allow `sql`.

        Raises InvalidArgument, Closed.
        """
        self._check_open()
        if start not in (FIRST, LAST):
            raise InvalidArgument(f'start {start!r}: give "last" or "first"')
        wanted = wanted_of(topics, sql)
        _check_whole(sql)
        return SimpleConsumer(self.session, checked_group(group), wanted, start == FIRST)

    def light_consumer(self, group: str, name: str, topic: str, *, start: Literal["last", "first"] = FIRST) -> LightConsumer:
        """A reader of one light queue: the messages of `topic` whose `light_queues` have that name. `group` keeps an offset in it
        and has no settings (`%LMQ%` is put before both names); `start`: where it begins without one.

        Raises InvalidArgument, Closed.
        """
        self._check_open()
        if start not in (FIRST, LAST):
            raise InvalidArgument(f'start {start!r}: give "last" or "first"')
        return LightConsumer(self.session, light_name(group), light_name(name), checked_topic(topic), start == FIRST)

    def lite_consumer(self, group: str, topic: str, lite_topics: Iterable[str] = ()) -> LiteConsumer:
        """One that takes messages of these lite topics of `topic`, in order in each. An administrator has made the topic
        (message.type=LITE) and bound the group to it (lite.bind.topic). Raises InvalidArgument, Closed.
        """
        self._check_open()
        return LiteConsumer(self.session, checked_group(group), checked_topic(topic), lite_topics)

    def _offsets(self, plan: Plan) -> OffsetStore:
        session = self.session
        if plan.broadcast:
            from rmq.client.consumer.fileoffsets import FileOffsets  # loads aiofiles, which most services do not need

            return FileOffsets(session.settings.offsets_directory / (self._instance or "DEFAULT") / f"{plan.group}.json")
        return BrokerOffsets(plan.group, session, zero_if_in_memory=plan.start == LAST)

    def _check_open(self) -> None:
        """Raises Closed, and InvalidArgument in another loop or thread."""
        self.session.connections.check_loop()
        if self._state == "closed":
            raise Closed("this client is closed: make a new one")


def _check_whole(sql: str | None) -> None:
    """Raises InvalidArgument for an expression of which only the beginning counts. RocketMQ takes it, and so do brokers and
    `rmq proxy` for its clients; who wrote it meant something else."""
    if sql is not None and (word := compile_sql(sql).behind):
        about = f"sql {sql!r}: brokers ignore {word!r} and all behind it, as RocketMQ does"
        raise InvalidArgument(f"{about}: conditions are joined by AND and OR, and there is neither LIKE nor arithmetic")
