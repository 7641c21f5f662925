"""Sending: from a request to records in the log, or a refusal.

This is the hot path: one call a request, no task, no object per field. Order of checks [AbstractSendMessageProcessor]:
name, forbidden topics, the topic itself (made if it may be), permission, queue, then the records.
"""

import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError
from rmq.log import record
from rmq.log.commitlog import Unit
from rmq.log.consumequeue import ConsumeQueue, ConsumeQueues
from rmq.model import PERM_WRITE, RETRY_PREFIX, TopicConfig
from rmq.net.commands import Send, SendAnswer
from rmq.net.server import LATER, Call, Later
from rmq.routing.topics import TopicTable, not_sendable

MAX_LANES = 100_000
_answer = tuple.__new__  # SendAnswer(...) costs twice as much, and this is made for every message


class Lane(NamedTuple):
    """A queue that may be sent to, as long as its topic's settings are this very object."""

    config: TopicConfig
    queue: ConsumeQueue


class SendHandler:
    """`create(config)` makes a topic and returns once it is committed. `max_body_bytes`: of one message [maxMessageSize]."""

    def __init__(
        self,
        topics: TopicTable,
        queues: ConsumeQueues,
        propose: Callable[[Unit], None],
        create: Callable[[TopicConfig], Awaitable[None]],
        auto_create: bool,
        max_body_bytes: int,
        chance: random.Random,
    ) -> None:
        self._topics = topics
        self._queues = queues
        self._propose = propose
        self._create = create
        self._auto_create = auto_create
        self._max_body_bytes = max_body_bytes
        self._chance = chance
        self._lanes: dict[tuple[str, int], Lane] = {}

    def send(self, request: Send, call: Call) -> Later | Awaitable[Later]:
        topic = request.topic
        config = self._topics.get(topic)
        if config is None:
            return self._create_and_send(request, call)
        lane = self._lanes.get((topic, request.queue_id))
        if lane is None or lane.config is not config:
            lane = self._open_lane(topic, request.queue_id, config)
        records = request.records
        sizes, tags_codes = record.check(records, topic)
        if len(sizes) > 1 or request.batch or len(records) > self._max_body_bytes:
            self._check_size(request, len(sizes))
        self._propose(Unit(records, sizes, tags_codes, lane.queue, (_stored, call)))
        return LATER

    def _open_lane(self, topic: str, queue_id: int, config: TopicConfig) -> Lane:
        """Whether this queue may be sent to at all. Raises Refusal."""
        if not_sendable(topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"sending to topic {topic} is forbidden: it is the broker's own")
        if not config.perm & PERM_WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {topic} may not be written to (perm {config.perm})")
        most = max(config.write_queue_nums, config.read_queue_nums)
        if queue_id >= most:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"queue {queue_id} of {topic}: it has queues 0 to {most - 1}")
        if queue_id < 0:
            return Lane(config, self._queues.get(topic, self._chance.randrange(config.write_queue_nums)))
        if len(self._lanes) >= MAX_LANES:
            self._lanes.clear()  # of topics that are no more, mostly; the others come back with their next send
        lane = self._lanes[topic, queue_id] = Lane(config, self._queues.get(topic, queue_id))
        return lane

    def _check_size(self, request: Send, count: int) -> None:
        """[MessageExtEncoder, SendMessageProcessor]: what one request may hold. Raises Refusal MESSAGE_ILLEGAL."""
        if (count > 1 or request.batch) and request.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot go to a retry topic: send its messages one by one")
        if len(request.records) <= self._max_body_bytes:
            return
        total = sum(len(one.body) for one in record.iterate(request.records))
        if total > self._max_body_bytes:
            about = f"{total} bytes of bodies in one send: at most {self._max_body_bytes} are allowed"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)

    async def _create_and_send(self, request: Send, call: Call) -> Later:
        topic = request.topic
        plan = self._topics.plan_auto_create(topic, request.default_topic, request.default_topic_queue_nums, self._auto_create)
        await self._create(plan)
        if self._topics.get(topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} was deleted again while it was made")
        result = self.send(request, call)
        assert result is LATER, "the topic is there now"
        return LATER


def _stored(call: Call, unit: Unit, error: RmqError | None, late: bool) -> None:
    if error is None:
        status = ResponseCode.FLUSH_DISK_TIMEOUT if late else 0
        call.answer(_answer(SendAnswer, (unit.queue.queue_id, unit.queue_offset, unit.physical_offset, status)))
    elif isinstance(error, Refusal):
        call.refuse(error)
    else:
        raise error
