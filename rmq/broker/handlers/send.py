"""Sending: from a request to records in the log, or a refusal.

This is the hot path: one call a request, no task, no object per field. Order of checks [AbstractSendMessageProcessor]:
name, forbidden topics, the topic itself (made if it may be), permission, queue, then the records.
"""

import random
from collections.abc import Awaitable, Callable
from functools import partial

from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError
from rmq.log import record
from rmq.log.commitlog import Unit
from rmq.log.consumequeue import ConsumeQueues
from rmq.model import DLQ_PREFIX, PERM_WRITE, RETRY_PREFIX, TopicConfig
from rmq.net.commands import Send, SendAnswer
from rmq.net.server import LATER, Call, Later
from rmq.routing.topics import TopicTable, check_topic_name, not_sendable


class SendHandler:
    """`create(config)` makes a topic and returns once it is committed."""

    def __init__(
        self,
        topics: TopicTable,
        queues: ConsumeQueues,
        propose: Callable[[Unit], None],
        create: Callable[[TopicConfig], Awaitable[None]],
        auto_create: bool,
        chance: random.Random,
    ) -> None:
        self._topics = topics
        self._queues = queues
        self._propose = propose
        self._create = create
        self._auto_create = auto_create
        self._chance = chance

    def send(self, request: Send, call: Call) -> Later | Awaitable[Later]:
        config = self._topics.get(request.topic)
        if config is None:
            return self._create_and_send(request, call)
        return self._put(request, call, config)

    async def _create_and_send(self, request: Send, call: Call) -> Later:
        topic = request.topic
        check_topic_name(topic)
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or self._auto_create:
            template = request.default_topic
            plan = self._topics.plan_auto_create(topic, template, request.default_topic_queue_nums, self._auto_create)
            await self._create(plan)
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist: create it, or allow autoCreateTopicEnable")
        return self._put(request, call, config)

    def _put(self, request: Send, call: Call, config: TopicConfig) -> Later:
        topic, queue_id = request.topic, request.queue_id
        if not_sendable(topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"sending to topic {topic} is forbidden: it is the broker's own")
        if not config.perm & PERM_WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {topic} may not be written to (perm {config.perm})")
        if queue_id < 0:
            queue_id = self._chance.randrange(config.write_queue_nums)
        elif queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            most = max(config.write_queue_nums, config.read_queue_nums)
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"queue {queue_id} of {topic}: it has queues 0 to {most - 1}")
        if request.batch and topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot go to a retry topic")
        checked = record.check(request.records, topic)
        unit = Unit(request.records, checked.sizes, checked.tags_codes, self._queues.get(topic, queue_id))
        unit.owner = partial(_stored, call)
        self._propose(unit)
        return LATER


def _stored(call: Call, unit: Unit, error: RmqError | None, late: bool = False) -> None:
    if error is None:
        status = ResponseCode.FLUSH_DISK_TIMEOUT if late else 0
        call.answer(SendAnswer(unit.queue.queue_id, unit.queue_offset, unit.physical_offset, status))
    elif isinstance(error, Refusal):
        call.refuse(error)
    else:
        raise error
