"""Producers and members of groups at one broker, with our frames and with RocketMQ's, who keep books of what must be there."""

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any, Self

from rmq.codes import ResponseCode as R
from rmq.delivery.resets import GroupQueue
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.records.delays import LEVELS_MS
from rmq.model import BROADCASTING, RETRY_PREFIX, ConsumerData, Subscription
from rmq.net.commands import (
    GetConsumeStats,
    GetMaxOffset,
    GetMinOffset,
    GetTopicStats,
    Heartbeat,
    Pull,
    PullAnswer,
    QueryConsumerOffset,
    Send,
    UpdateConsumerOffset,
)
from rmq.net.commands.resets import ResetOffset
from rmq.net.commands.retries import SendBack
from rmq.testing import LocalBroker, TestClock
from tests.broker.consumption import Books, Coming, Message, Pulled, Queue, Row, Topic, in_hand, row_of
from tests.broker.javaclient import JavaClient
from tests.broker.support import BORN, Peer, send
from tests.net.java_peer import batch_body, read_answer

TOPICS = ("T", "B", "t" * 127)
GROUPS = ("g", "h" * 120)
BROADCAST = "b"
MEMBERS = ("m1", "m2", "java")  # clients that may be members; "tool" never is
READER = "TOOLS_CONSUMER"
TAGS = ("a", "b", "c")
WANTED = {"*": (), "a": ("a",), "a || b": ("a", "b")}


class Java:
    """A client with RocketMQ's frames that is asked as ours are."""

    def __init__(self, client: JavaClient) -> None:
        self.client = client

    async def ask(self, request: Any) -> Any:
        header, body = await self.client.ask(request)
        return self._read(header, body, type(request))

    async def send(self, topic: str, queue_id: int, messages: list[Message]) -> Any:
        if len(messages) == 1:
            answer = self.client.send(messages[0].body, topic, e=str(queue_id), i=_properties(messages[0]).decode())
        else:
            body = batch_body([(0, one.body, _properties(one)) for one in messages])
            answer = self.client.send(body, topic, code=320, e=str(queue_id), i=f"UNIQ_KEY\x01{messages[0].key}\x02")
        return self._read(*await answer, Send)

    def _read(self, header: Any, body: bytes, request: type[Any]) -> Any:
        if header.code not in (0, R.PULL_NOT_FOUND, R.PULL_RETRY_IMMEDIATELY, R.PULL_OFFSET_MOVED):
            raise Refusal(header.code, header.remark)
        return read_answer(header, body, request)

    async def tell(self, request: Any) -> None:
        self.client.tell(request)
        await self.ask(QueryConsumerOffset("g", "nowhere", 0))  # it was read


class Ours(Java):
    """A client of ours."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def ask(self, request: Any) -> Any:
        return await self.peer.ask(request)

    async def send(self, topic: str, queue_id: int, messages: list[Message]) -> Any:
        return await self.ask(_draft(topic, queue_id, *messages)._replace(batch=len(messages) > 1))

    async def tell(self, request: Any) -> None:
        self.peer.channel.post(request)
        await self.ask(QueryConsumerOffset("g", "nowhere", 0))


def _properties(one: Message) -> bytes:
    said = {"UNIQ_KEY": one.key, "TAGS": one.tag, "RETRY_TOPIC": one.origin[0], "ORIGIN_MESSAGE_ID": one.origin[1]}
    return record.properties_to_bytes({name: value for name, value in said.items() if value})


def _draft(topic: str, queue_id: int, *messages: Message) -> Send:
    made = [
        record.draft(topic, one.body, _properties(one), born_timestamp=1000, born_host=BORN, reconsume_times=one.times)
        for one in messages
    ]
    return Send("p", topic, queue_id, b"".join(made))


class Consumers:
    """`held`: what members pulled lately, which they may give back. `books`: the model."""

    def __init__(self, broker: LocalBroker, seed: int) -> None:
        self.broker = broker
        self.clock: TestClock = broker.clock
        self.chance = random.Random(seed)
        self.books = Books((*GROUPS, BROADCAST))
        self.held: dict[str, list[Pulled]] = {group: [] for group in GROUPS}
        self.number = 0
        self.lately = GroupQueue("g", "T", 0)

    async def begin(self) -> Self:
        self._open = AsyncExitStack()
        address = self.broker.address
        peers = {name: await Peer.connect(address, name) for name in ("m1", "m2", "tool", "b1")}
        for peer in peers.values():
            self._open.push_async_callback(peer.close)
        java = Java(await self._open.enter_async_context(JavaClient.connect(address)))
        self.clients: dict[str, Java] = {name: Ours(peer) for name, peer in peers.items()} | {"java": java}
        await java.ask(Heartbeat("java"))
        self.tool = self.clients["tool"]
        for members in self.books.members.values():
            members.clear()
        for _ in range(self.chance.randint(0, 3)):
            await self.join()
        return self

    async def end(self) -> None:
        await self._open.aclose()

    # --- what clients may choose from

    def key(self) -> GroupQueue:
        """Often one that something was done to lately."""
        if self.chance.random() < 0.6:
            return self.lately
        group = self.chance.choice(GROUPS)
        topic = self.chance.choice((*TOPICS, *TOPICS, RETRY_PREFIX + group))
        self.lately = GroupQueue(group, topic, self.chance.choice((0, 0, 0, 1, 2)))
        return self.lately

    def queue(self, key: GroupQueue) -> Queue:
        topic = self.books.topics.get(key.topic)
        return topic.queue(key.queue_id) if topic else Queue()

    async def code(self, client: Java, request: Any) -> int:
        try:
            await client.ask(request)
        except Refusal as refusal:
            return int(refusal.code)
        return 0

    # --- producers

    async def send(self) -> None:
        """Singles and batches, of both clients."""
        name, queue_id = self.chance.choice(TOPICS), self.chance.choice((0, 0, 1, 2))
        if self.lately.topic in TOPICS and self.chance.random() < 0.5:
            name, queue_id = self.lately.topic, self.lately.queue_id
        client = self.clients[self.chance.choice(("tool", "java"))]
        new = range(self.number, self.number + self.chance.randint(1, 4))
        self.number = new.stop
        messages = [Message(b"%d" % number, self.chance.choice(TAGS), f"K{number:030}") for number in new]
        topic = self.books.topics.setdefault(name, Topic(4, 4))  # its first message makes it
        refused = not topic.perm & 2 or queue_id >= topic.count
        try:
            await client.send(name, queue_id, messages)
        except Refusal:
            assert refused
        else:
            assert not refused
            self.books.store(name, queue_id, self.clock.wall_ms(), *messages)

    async def grow(self) -> None:
        for _ in range(10):
            await self.tool.ask(send("F", b"x" * 3000))

    # --- consumers

    async def join(self) -> None:
        """A heartbeat makes its groups, and their retry topics."""
        name, group = self.chance.choice(MEMBERS), self.chance.choice(GROUPS)
        self.books.members[group].add(name)
        groups = [each for each in GROUPS if name in self.books.members[each]]
        wanted = [Subscription(topic) for topic in TOPICS]
        await self.clients[name].ask(Heartbeat(name, [], [ConsumerData(each, subscriptions=wanted) for each in groups]))
        for each in groups:
            self.books.ensure(each)

    async def pull(self) -> None:
        """From where the group is, or anywhere; it may carry an offset."""
        name = self.chance.choice((*MEMBERS, "tool"))
        key = self.key()
        queue, known = self.queue(key), self.books.offsets.of(key)
        asked = known or 0
        if self.chance.random() < 0.4:
            asked = self.chance.randint(0, queue.high + 2)
        carried = self.chance.choice((-1, -1, asked, self.chance.randint(0, queue.high + 1)))
        expression, count = self.chance.choice(("*", "*", *WANTED)), self.chance.choice((1, 2, 3, 32))
        flag = 4 if carried < 0 else 5
        request = Pull(*key, asked, count, flag, max(carried, 0), subscription=expression)
        if code := self.books.may_not_read(key):
            assert await self.code(self.clients[name], request) == code
            return
        answer: PullAnswer = await self.clients[name].ask(request)
        books = self.books.offsets
        books.last[key] = name
        if carried >= 0 and self.books.groups[key.group] is not None and carried <= queue.high:
            books.commit(key, carried, name)
        found = self._answered(answer, key, name, count, expression, asked)
        self.held[key.group] = [*self.held[key.group][-20:], *(each for one in found for each in in_hand(one))]

    def _answered(
        self, answer: PullAnswer, key: GroupQueue, name: str, count: int, expression: str, asked: int
    ) -> list[record.Record]:
        """The records of an answer, which is the right one."""
        queue, books = self.queue(key), self.books.offsets
        rows: list[Row] = []
        if (to := books.follow(key, asked, name)) is not None:
            expected = R.PULL_OFFSET_MOVED, to
        elif queue.low <= asked < queue.high:
            after, rows = queue.find(asked, count, WANTED[expression])
            books.handed[key] = after
            expected = R(0) if rows else R.PULL_RETRY_IMMEDIATELY, after
        elif asked == queue.high:
            expected = R.PULL_NOT_FOUND, asked
        else:
            expected = R.PULL_OFFSET_MOVED, queue.high if asked > queue.high else queue.low
        found = list(record.iterate(answer.messages))
        assert (answer.status, answer.next_begin_offset, [*map(row_of, found)]) == (*expected, rows), (key, name, asked)
        assert (answer.min_offset, answer.max_offset) == (queue.low, queue.high)
        return found

    async def commit(self) -> None:
        """By a member or a tool, with an answer or one-way; forward, back, or behind the end."""
        name, key = self.chance.choice((*MEMBERS, "tool")), self.key()
        queue, books = self.queue(key), self.books.offsets
        offset = books.handed.get(key, queue.high)
        if self.chance.random() < 0.5:
            offset = self.chance.randint(0, queue.high + 1)
        request, code = UpdateConsumerOffset(*key, offset), self.books.may_not_commit(key, offset)
        if self.chance.random() < 0.3:
            await self.clients[name].tell(request)
            if not code:
                books.commit(key, offset, name)
            return
        assert await self.code(self.clients[name], request) == code, (name, request)
        if code:
            return
        members = self.books.members[key.group]
        lower = offset < (books.of(key) or 0) or books.has_reset(key)
        if name in members or not (members or lower):
            books.commit(key, offset, name)
            books.written()
        else:
            books.move({key: offset})

    async def give_back(self) -> None:
        """A message that was pulled [CONSUMER_SEND_MSG_BACK]: it comes again, later, or is a dead letter."""
        group = self.chance.choice(GROUPS)
        if not self.held[group]:
            return
        message, stored = self.chance.choice(self.held[group])
        level, most = self.chance.choice((0, 0, 1, 2, 3, -1)), self.chance.choice((-1, -1, -1, 0, 1, 2))
        client = self.clients[self.chance.choice(("m1", "java"))]
        request = SendBack(stored.physical_offset, group, level, message.key, stored.topic, False, most)
        code = await self.code(client, request)
        config = self.books.ensure(group)
        if not config.retry_queue_nums:
            assert code == 0
            return
        gone = stored.physical_offset < self.broker.serving.store.log.start
        assert code == (R.SYSTEM_ERROR if gone else 0)
        if gone:
            return
        origin = (
            message.origin[0] or stored.topic,
            message.origin[1] or record.message_id(stored.store_host, stored.physical_offset),
        )
        again = message._replace(times=message.times + 1, origin=origin)
        if level < 0 or message.times >= (config.retry_max_times if most < 0 else most):
            self.books.dead(group, self.clock.wall_ms(), again)
        else:
            wait_ms = LEVELS_MS[min(level or 3 + message.times, len(LEVELS_MS)) - 1]
            self.books.coming.append(Coming(RETRY_PREFIX + group, again, self.clock.wall_ms() + wait_ms))

    async def retry_by_hand(self) -> None:
        """A consumer sends a message to its retry topic itself; it counted the coming try."""
        group = self.chance.choice(GROUPS)
        if not self.held[group] or (config := self.books.groups[group]) is None:
            return
        message, stored = self.chance.choice(self.held[group])
        again = message._replace(times=message.times + 1, origin=(stored.topic, "id"))
        most = self.chance.choice((-1, 0, 1, 2))
        topic = RETRY_PREFIX + group
        await self.tool.ask(_draft(topic, 0, again)._replace(reconsume_times=again.times, max_reconsume_times=most))
        self.books.topics.setdefault(topic, Topic(1, 1))
        if again.times > (config.retry_max_times if most < 0 else most):
            self.books.dead(group, self.clock.wall_ms(), again)
        else:
            self.books.store(topic, 0, self.clock.wall_ms(), again)

    async def broadcast(self) -> None:
        """A group whose members keep their offsets: tools neither see nor set them."""
        consumer = ConsumerData(BROADCAST, message_model=BROADCASTING, subscriptions=[Subscription("T")])
        await self.clients["b1"].ask(Heartbeat("b1", [], [consumer]))
        self.books.ensure(BROADCAST)
        key = GroupQueue(BROADCAST, "T", 0)
        if not self.books.may_not_read(key):
            asked = self.chance.randint(0, self.queue(key).high)
            answer = await self.clients["b1"].ask(Pull(*key, asked, sys_flag=4))
            self._answered(answer, key, "b1", 32, "*", asked)
            assert await self.code(self.tool, ResetOffset("T", BROADCAST)) == R.INVALID_PARAMETER
        assert (await self.tool.ask(GetConsumeStats(BROADCAST))).queues == []

    # --- what must be so

    async def check(self) -> None:
        """Where queues begin and end, and where groups are, is as the books say."""
        topics, store, key = self.books.topics, self.broker.serving.store, self.key()
        asked = [GetConsumeStats(group, topic_list=";".join(topics)) for group in GROUPS]
        said = await asyncio.gather(*map(self.tool.ask, [*map(GetTopicStats, topics), *asked]))
        for (name, topic), stats in zip(topics.items(), said, strict=False):
            assert len(stats.queues) == topic.count
            for queue_id, queue in topic.queues.items():
                queue.begin(store.log.start)
                queue.learn(store.queues.look(name, queue_id))
            for (_, _, queue_id), low, high, _ in stats.queues:
                queue = topic.queue(queue_id)
                if name.startswith(RETRY_PREFIX) and high > queue.high:
                    await self._read(name, queue_id, queue.high, high, arrived=True)
                assert (low, high) == (queue.low, queue.high), (name, queue_id)
        for group, stats in zip(GROUPS, said[-len(GROUPS) :], strict=True):
            found = {GroupQueue(group, mq.topic, mq.queue_id): tuple(of) for mq, *of in stats.queues}
            keys = [GroupQueue(group, name, queue_id) for name, topic in topics.items() for queue_id in range(topic.count)]
            assert found == {key: self.books.progress(key) for key in keys}
        ends = [(await self.tool.ask(asked(key.topic, key.queue_id))).offset for asked in (GetMinOffset, GetMaxOffset)]
        assert ends == self.books.ends(key)
        known = self.books.query(key)
        assert await self.code(self.tool, ask := QueryConsumerOffset(*key)) == (R.QUERY_NOT_FOUND if known is None else 0)
        assert known is None or (await self.tool.ask(ask)).offset == known

    async def look(self) -> None:
        """At everything that can be read."""
        await self.check()
        for name, topic in self.books.topics.items():
            for queue_id in range(topic.read) if topic.perm & 4 else ():
                queue = topic.queue(queue_id)
                assert await self._read(name, queue_id, queue.low, queue.high) == queue.rows

    async def _read(self, name: str, queue_id: int, at: int, end: int, arrived: bool = False) -> list[Row]:
        queue, rows = self.books.topics[name].queue(queue_id), []
        while at < end:
            answer = await self.tool.ask(Pull(READER, name, queue_id, at, sys_flag=4))
            for one in record.iterate(answer.messages):
                if arrived:
                    self.books.arrived(name, one)
                rows.append(row_of(one))
                assert queue.places.setdefault(one.queue_offset, one.physical_offset) == one.physical_offset
            assert at < answer.next_begin_offset
            at = answer.next_begin_offset
        return rows
