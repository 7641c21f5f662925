"""Failed messages, which a consumer gives back (36), or sends to the retry topic when it cannot [SendMessageProcessor].

Each becomes a new record in the log: in the retry topic (after a delay), or a dead letter. The answer goes out when that is
committed: only then the original counts as finished (C10).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmq.broker.pending.intake import Intake, Intercepted
from rmq.broker.pending.internalproducer import InternalProducer, handed_on
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import CheckTopic
from rmq.codes import ResponseCode
from rmq.delivery.retry import DROPPED, Fate, after_failure, counted, group_of, is_given_up, properties_of
from rmq.errors import BadBytes, InvalidArgument, Refusal
from rmq.log.records import record
from rmq.log.records.innerbatch import is_inner_batch, messages_in
from rmq.log.records.record import Record
from rmq.model import DLQ_PREFIX, PERM_WRITE, GroupConfig, TopicConfig
from rmq.net.commands import Send, SendAnswer
from rmq.net.commands.retries import SendBack
from rmq.net.transport.server import Call, Handler
from rmq.requests import Action
from rmq.routing.topics import not_sendable


class SendBackHandlers:
    """`locked(group)`: whether a member of the group holds a queue. `check_topic`: as of `Guard`."""

    def __init__(
        self,
        catalog: Catalog,
        internal_producer: InternalProducer,
        intake: Intake,
        locked: Callable[[str], bool],
        check_topic: CheckTopic,
    ) -> None:
        self._catalog = catalog
        self._internal_producer = internal_producer
        self._intake = intake
        self._locked = locked
        self._check_topic = check_topic
        self.retried: Counter[str] = Counter()  # by group: messages that come again, and dead letters
        self.dead: Counter[str] = Counter()

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {SendBack: self.send_back}

    def forget(self, group: str) -> None:
        """The group was deleted."""
        del self.retried[group], self.dead[group]

    async def send_back(self, request: SendBack, call: Call) -> None:
        """Raises Refusal; SYSTEM_ERROR when no message begins at that offset: then the consumer sends it itself."""
        await self._catalog.ensure_group(request.group, request.unit_mode)
        config = self._catalog.group(request.group) or GroupConfig(request.group)
        if config.retry_queue_nums <= 0:
            return  # the group wants no retries
        source = await self._source(request)
        self._check_topic(call, source.topic, Action.SUB, request.group)  # it names an offset, and the group gets what is there
        most = config.retry_max_times if request.max_reconsume_times < 0 else request.max_reconsume_times
        fate = after_failure(request.group, source.reconsume_times, request.delay_level, most, config.retry_policy)
        known = record.bytes_to_properties(source.properties)
        message_id = record.message_id(source.store_host, source.physical_offset)
        again = source._replace(reconsume_times=counted(source.reconsume_times))
        await self._store(request.group, again, fate, properties_of(known, source.topic, message_id, *fate[1:]))

    async def _source(self, request: SendBack) -> Record:
        found = await asyncio.to_thread(self._internal_producer.find, request.offset)
        source = None if found is None else _meant(request.origin_msg_id, record.decode(found))
        # A record of the broker's own topics was never handed to a consumer: it waits, or is state.
        if source is None or not_sendable(source.topic):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {request.offset}")
        return source

    def given_up(self, request: Send) -> Awaitable[SendAnswer] | None:
        """Makes a dead letter of a message that a consumer sends to its retry topic, if it came too often."""
        message = record.decode(request.records)
        group = group_of(request.topic)
        config = self._catalog.group(group) or GroupConfig(group)
        most = config.retry_max_times if request.max_reconsume_times < 0 else request.max_reconsume_times
        if not is_given_up(message.reconsume_times, most, self._locked(group)):
            return None
        return self._store(group, message, Fate(DLQ_PREFIX + group, 0), {"DELAY": "-1"})  # [handleRetryAndDLQ]

    async def _store(self, group: str, message: Record, fate: Fate, properties: dict[str, str]) -> SendAnswer:
        """Stores the message in a queue of that topic, or where it waits first. Raises Refusal."""
        config = await self._topic(fate)
        queue_id = self._internal_producer.pick(config.write_queue_nums)
        try:
            draft = handed_on(message, fate.topic, None, properties=properties.items(), without=map(str.encode, DROPPED))
        except InvalidArgument as error:  # no room for properties that say where it came from
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        placed = None if fate.dead else self._wait(record.decode(draft), queue_id)
        place = (fate.topic, queue_id, draft) if placed is None else (placed.topic, placed.queue_id, placed.draft)
        unit = await self._internal_producer.send(*place)
        (self.dead if fate.dead else self.retried)[group] += 1
        return SendAnswer(queue_id, unit.queue_offset, unit.physical_offset)

    def _wait(self, message: Record, queue_id: int) -> Intercepted | None:
        """Where it waits. None: it comes again at once, since its properties leave no room for those of a message that waits."""
        try:
            return self._intake.take(message, queue_id)
        except Refusal as refusal:
            if refusal.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            return None

    async def _topic(self, fate: Fate) -> TopicConfig:
        config = self._catalog.topic(fate.topic) or await self._catalog.ensure_topic(fate.topic)
        if not config.perm & PERM_WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {fate.topic} may not be written to (perm {config.perm})")
        return config


def _meant(message_id: str, stored: Record) -> Record | None:
    """The message with that id: one of an inner batch, or the record itself."""
    if not is_inner_batch(stored):
        return stored if _is_meant(message_id, stored) else None
    try:
        found = messages_in(stored)
    except BadBytes:
        return None
    return next((one for one in found if record.bytes_to_properties(one.properties).get("UNIQ_KEY") == message_id), None)


def _is_meant(message_id: str, source: Record) -> bool:
    """Whether it is the right message: after a change of master that lost the log's end another one may stand there."""
    unique = record.bytes_to_properties(source.properties).get("UNIQ_KEY", "")
    return not (message_id and unique) or message_id in (unique, record.message_id(source.store_host, source.physical_offset))
