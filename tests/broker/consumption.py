"""A model of what groups that pull may expect of one broker: each queue with its records, each group with its offsets, as they
are now and as a kill would leave them."""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from rmq.codes import ResponseCode as R
from rmq.delivery.resets import GroupQueue, Reset
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.innerbatch import messages_in
from rmq.model import DLQ_PREFIX, RETRY_PREFIX, GroupConfig


class Message(NamedTuple):
    """What counts of a message. `times`: how often it came again; `origin`: the topic and the id of the one that failed first."""

    body: bytes
    tag: str
    key: str
    times: int = 0
    origin: tuple[str, str] = ("", "")


class Row(NamedTuple):
    """One record, whose first message has the queue offset `base`."""

    base: int
    stored_ms: int
    messages: tuple[Message, ...]

    @property
    def end(self) -> int:
        return self.base + len(self.messages)


class Pulled(NamedTuple):
    """A message in a consumer's hand, and its record."""

    message: Message
    stored: record.Record


def in_hand(one: record.Record) -> list[Pulled]:
    """The messages of a record."""
    return [Pulled(_message(each), each) for each in messages_in(one)]


def row_of(one: record.Record) -> Row:
    return Row(one.queue_offset, one.store_timestamp, tuple(each.message for each in in_hand(one)))


def _message(one: record.Record) -> Message:
    said = record.bytes_to_properties(one.properties)
    origin = said.get("RETRY_TOPIC", ""), said.get("ORIGIN_MESSAGE_ID", "")
    return Message(one.body, said.get("TAGS", ""), said["UNIQ_KEY"], one.reconsume_times, origin)


class Queue:
    """Records [low, high) of one life of a topic. `places`: where in the log each begins."""

    def __init__(self) -> None:
        self.low = self.high = 0
        self.rows: list[Row] = []
        self.places: dict[int, int] = {}

    def append(self, stored_ms: int, *messages: Message) -> None:
        self.rows.append(Row(self.high, stored_ms, messages))
        self.high += len(messages)

    def learn(self, queue: ConsumeQueue) -> None:
        """Where the newest ones begin, as the broker's own queue says."""
        for row in reversed(self.rows):
            if row.base in self.places:
                break
            self.places[row.base] = queue.entry(row.base).offset

    def begin(self, log_start: int) -> None:
        """The log begins there now: what is below is gone."""
        self.rows = [row for row in self.rows if self.places.get(row.base, log_start) >= log_start]
        self.low = self.rows[0].base if self.rows else self.high

    def at(self, offset: int) -> Row | None:
        return next((row for row in self.rows if row.base <= offset < row.end), None)

    def search(self, stored_ms: int) -> int:
        return next((row.base for row in self.rows if row.stored_ms >= stored_ms), self.high)

    def find(self, offset: int, count: int, tags: Collection[str]) -> tuple[int, list[Row]]:
        """What a pull from there on finds, and where the next one begins. No tags: it wants all. Inner batches are in all."""
        found: list[Row] = []
        for row in self.rows:
            if row.end > offset and (not tags or len(row.messages) > 1 or row.messages[0].tag in tags):
                if found and count < len(row.messages):
                    return row.base if tags else found[-1].end, found
                found.append(row)
                count -= len(row.messages)
                if not tags and count <= 0:
                    return row.end, found
        return self.high, found


class Topic:
    """`batches`: it holds inner batches. Queues that it has no more are still there, and come back with their numbers."""

    def __init__(self, read: int, write: int, batches: bool = False) -> None:
        self.read, self.write, self.perm, self.batches = read, write, 6, batches
        self.queues: dict[int, Queue] = {}

    @property
    def count(self) -> int:
        return max(self.read, self.write)

    def queue(self, queue_id: int) -> Queue:
        return self.queues.setdefault(queue_id, Queue())


class Place(NamedTuple):
    """An offset, and a reset that no reader has followed yet."""

    offset: int
    reset: Reset | None = None


class Offsets:
    """`now`: as everybody is told; `durable`: as the log says. `last`, `sent`, `handed`: who pulled last, who was sent to the
    reset's place, where the last answer ended; these end with the broker."""

    def __init__(self) -> None:
        self.now: dict[GroupQueue, Place] = {}
        self.durable: dict[GroupQueue, Place] = {}
        self.last: dict[GroupQueue, str] = {}
        self.sent: dict[GroupQueue, str] = {}
        self.handed: dict[GroupQueue, int] = {}

    def of(self, key: GroupQueue) -> int | None:
        return self.now[key].offset if key in self.now else None

    def has_reset(self, key: GroupQueue) -> bool:
        return key in self.now and self.now[key].reset is not None

    def commit(self, key: GroupQueue, offset: int, client: str) -> None:
        """C7: back only by who pulled last. While there is a reset nothing counts."""
        if self.has_reset(key) or (offset < (self.of(key) or 0) and self.last.get(key) != client):
            return
        self.now[key] = Place(offset)

    def written(self) -> None:
        """All that is known is in the log."""
        self.durable = dict(self.now)

    def move(self, places: dict[GroupQueue, int]) -> None:
        for key, offset in places.items():
            self.now[key] = self.durable[key] = Place(offset, Reset(offset, self.last.get(key, "")))
            self.sent.pop(key, None)
            self.handed.pop(key, None)

    def follow(self, key: GroupQueue, asked: int, client: str) -> int | None:
        """Where a pull is sent because of a reset."""
        if not self.has_reset(key) or (reset := self.now[key].reset) is None:
            return None
        if self.sent.get(key) != client and (asked != reset.offset or self.sent.get(key, reset.reader) == client):
            self.sent[key] = client
            return reset.offset
        self.sent.pop(key, None)
        self.now[key] = Place(self.now[key].offset)
        return None

    def remove(self, goes: Callable[[GroupQueue], bool]) -> None:
        for table in (self.now, self.durable, self.last, self.sent, self.handed):
            for key in [key for key in table if goes(key)]:
                del table[key]  # type: ignore[attr-defined]

    def restart(self, killed: bool) -> None:
        self.now = dict(self.durable if killed else self.now)
        self.written()
        for table in (self.last, self.sent, self.handed):
            table.clear()


class Coming(NamedTuple):
    """A failed message that waits for its time."""

    topic: str
    message: Message
    due_ms: int


class Books:
    """All that one broker knows of the topics and groups of a history. `members`: clients in each group."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, GroupConfig | None] = dict.fromkeys(groups)
        self.members: dict[str, set[str]] = {group: set() for group in groups}
        self.forbidden: set[tuple[str, str]] = set()
        self.offsets = Offsets()
        self.coming: list[Coming] = []

    def ensure(self, group: str) -> GroupConfig:
        """A group, and its retry topic, is made on its first use."""
        config = self.groups[group] or GroupConfig(group)
        self.groups[group] = config
        if config.retry_queue_nums:
            self.topics.setdefault(RETRY_PREFIX + group, Topic(config.retry_queue_nums, config.retry_queue_nums))
        return config

    def store(self, topic: str, queue_id: int, now_ms: int, *messages: Message) -> None:
        """One record, or of a topic without batches one for each."""
        target = self.topics[topic]
        for some in [messages] if target.batches else [(one,) for one in messages]:
            target.queue(queue_id).append(now_ms, *some)

    def dead(self, group: str, now_ms: int, message: Message) -> None:
        topic = DLQ_PREFIX + group
        self.topics.setdefault(topic, Topic(1, 1))
        self.store(topic, 0, now_ms, message)

    def arrived(self, topic: str, one: record.Record) -> None:
        """A failed message came to its retry topic, which had been waiting, and not before its time. One may wait there twice."""
        row = row_of(one)
        found = [each for each in self.coming if each[:2] == (topic, *row.messages)]
        assert found, f"{row} came to {topic}, where it was not to come"
        due = [each for each in found if each.due_ms <= one.store_timestamp]
        assert due, f"{row} came too early"
        self.coming.remove(max(due, key=lambda each: each.due_ms))
        self.topics[topic].queue(one.queue_id).append(one.store_timestamp, *row.messages)

    def delete_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)
        self.offsets.remove(lambda key: key.topic == topic)
        self.coming = [one for one in self.coming if one.topic != topic]
        self.forbidden = {pair for pair in self.forbidden if pair[1] != topic}

    def delete_group(self, group: str, clean: bool) -> None:
        if self.groups[group] is None:
            return
        self.groups[group] = None
        self.forbidden = {pair for pair in self.forbidden if pair[0] != group}
        for readers in (self.offsets.last, self.offsets.handed):
            for key in [key for key in readers if key.group == group]:
                del readers[key]  # type: ignore[attr-defined]
        if clean:
            self.offsets.remove(lambda key: key.group == group)

    def ends(self, key: GroupQueue) -> list[int]:
        """Where the queue begins and ends, as clients are told; of batches that never came it begins at -1."""
        topic = self.topics.get(key.topic)
        if topic is None or key.queue_id >= topic.count:
            return [-1, 0] if topic is not None and topic.batches else [0, 0]
        queue = topic.queue(key.queue_id)
        return [-1 if topic.batches and not queue.high else queue.low, queue.high]

    def query(self, key: GroupQueue) -> int | None:
        """The offset that a client is told to begin at; None: it is told that there is none."""
        topic, known = self.topics.get(key.topic), self.offsets.of(key)
        if known is not None:
            return known
        return 0 if topic is None or key.queue_id >= topic.count or topic.queue(key.queue_id).low <= 0 else None

    def progress(self, key: GroupQueue) -> tuple[int, int, int, int]:
        """End, offset, pull offset and time of the last one consumed, as tools see them."""
        queue, known = self.topics[key.topic].queue(key.queue_id), self.offsets.of(key)
        offset = known or 0
        pulled = min(max(self.offsets.handed.get(key, 0), offset), max(queue.high, offset))
        last = queue.at(offset - 1)
        return queue.high, offset, pulled, last.stored_ms if last else 0

    def may_not_read(self, key: GroupQueue) -> int:
        """Why a pull is refused [PullMessageProcessor]."""
        config, topic = self.groups.get(key.group), self.topics.get(key.topic)
        if config is not None and not config.consume_enable:
            return R.NO_PERMISSION
        if topic is None:
            return R.TOPIC_NOT_EXIST
        if (key.group, key.topic) in self.forbidden or not topic.perm & 4:
            return R.NO_PERMISSION
        return 0 if key.queue_id < topic.read else R.INVALID_PARAMETER

    def may_not_commit(self, key: GroupQueue, offset: int) -> int:
        config, topic = self.groups[key.group], self.topics.get(key.topic)
        if topic is None:
            return R.TOPIC_NOT_EXIST
        if key.queue_id >= topic.count:
            return R.INVALID_PARAMETER
        if config is None:
            return R.SUBSCRIPTION_GROUP_NOT_EXIST
        return R.INVALID_PARAMETER if offset > topic.queue(key.queue_id).high else 0
