"""Sending: from a request to records in the log, or a refusal.

This is the hot path: one call a request, no task, no object per field. Order of checks [AbstractSendMessageProcessor]:
name, forbidden topics, the topic itself (made if it may be), permission, queue, then the records.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

from rmq.broker.pending.intake import Intake, Intercepted, as_sent
from rmq.broker.pending.turnunits import shared_bytes
from rmq.broker.shared.ports import Writer
from rmq.broker.shared.state import finish
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import InvalidArgument, Refusal, RmqError, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import fastpath, record
from rmq.log.records.checking import Checked, check
from rmq.log.records.innerbatch import MOST_MESSAGES, wrap
from rmq.log.records.many import MANY, check_many
from rmq.log.records.record import MIN_RECORD_BYTES, Record
from rmq.log.units import Fan, Unit
from rmq.model import LIGHT_PREFIX, PERM_WRITE, RETRY_PREFIX, TopicConfig
from rmq.net.codec.frames import Received
from rmq.net.commands import DraftedSend, Send, SendAnswer
from rmq.net.commands.messages import Parts, Pending
from rmq.net.transport.answering import Asked, answer_stored
from rmq.net.transport.connection import CALL_BYTES, Connection
from rmq.net.transport.server import LATER, Call, Later
from rmq.routing.kinds import (
    asks_for_kind,
    check_key,
    check_kind,
    has_lite_topics,
    holds_batches,
    is_by_urgency,
    urgent_queue,
)
from rmq.routing.topics import not_sendable

MAX_OPEN_BATCHES = 100_000
_tags_code = itemgetter(10)  # of a DraftedSend; the property costs three times as much


class QueueBatch:
    """A queue that may be sent to, as long as its topic's settings are this very object.

    `asks_for_kind`: it is not sent to itself, since the kind of a message decides where it goes, and whether it may.
    `unit` holds the sends of this turn of the loop: they are appended, indexed and answered together. The argument of its
    owner is the batch and who asked. An answered unit is forgotten, or each queue would keep its last message and who sent it.
    """

    __slots__ = ("asked", "asks_for_kind", "config", "queue", "tag_of", "unit")

    def __init__(self, config: TopicConfig, queue: ConsumeQueue) -> None:
        self.config = config
        self.queue = queue
        self.tag_of = fastpath.fast_check(config.name)
        self.asked: list[Asked] = []
        self.asks_for_kind = False
        self.unit: Unit | None = None


class SendHandler:
    """`topic(name)`: its settings, if it exists; `ensure_topic`: see `Catalog`. `all_known()` returns once this node knows all
    topics, or raises Refusal: before that a topic may exist that this node does not know. `given_up` makes a dead letter of a
    retry that came too often; None if it may come again."""

    def __init__(
        self,
        settings: NodeSettings,
        writer: Writer,
        topic: Callable[[str], TopicConfig | None],
        ensure_topic: Callable[[str, str, int, bool, bool], Awaitable[TopicConfig]],
        all_known: Callable[[], Awaitable[None]],
        intake: Intake,
        given_up: Callable[[Send], Awaitable[SendAnswer] | None],
    ) -> None:
        self.auto_create, self._max_body_bytes = settings.auto_create_topic, settings.max_message_bytes
        self._shared_bytes = shared_bytes(settings.segment_bytes)
        self._queues = writer.queues
        self._propose = writer.propose
        self._chance = writer.chance
        self._topic = topic
        self._ensure_topic = ensure_topic
        self._all_known = all_known
        self._intake, self._fast = intake, [one.take for one in intake.fast]
        self._given_up = given_up
        self._fan, self._to_lite_topic = writer.lights.fan, writer.lights.to_lite_topic
        self._batches: dict[tuple[str, int], QueueBatch] = {}
        self._of_kinds: dict[tuple[str, int], QueueBatch] = {}  # of topics whose sends are looked at one by one
        self._opened: dict[str, tuple[int, ...]] = {}  # their queues, by topic
        self._check_types, self._permission = settings.check_message_types, settings.permission

    def change_settings(self, settings: NodeSettings) -> None:
        self.auto_create, self._check_types = settings.auto_create_topic, settings.check_message_types
        self._permission = settings.permission
        self._forget_all()

    def forget(self, topic: str) -> None:
        """It was deleted or changed: what its queues keep in memory goes with them."""
        for queue_id in self._opened.pop(topic, ()):
            self._batches.pop((topic, queue_id), None)
            self._of_kinds.pop((topic, queue_id), None)

    def _forget_all(self) -> None:
        for known in (self._batches, self._of_kinds, self._opened):
            known.clear()

    def take(self, connection: Connection, received: list[Received], first: int, room: int) -> int:
        """See `Take`: all that `send` would take without further ado, without a call for each."""
        batches, most, shared = self._batches, self._max_body_bytes, self._shared_bytes
        at, left, topic, config = first, room, "", None
        for request, call_id, oneway, context, size in received[first:] if first else received:
            if (type(request) is not Send and type(request) is not DraftedSend) or left < 0:
                break
            if request[1] != topic:
                topic = request[1]
                config = self._topic(topic)
            batch = batches.get((topic, request[2]))
            if batch is None or batch.config is not config:
                break
            records = request[3]
            length = len(records)
            code: Any = None if length > most else batch.tag_of(records) if type(request) is Send else _tags_code(request)
            size += CALL_BYTES
            unit = batch.unit
            if type(code) is not int or request[7]:
                waits = connection, call_id, oneway, context, size, request[2]
                if length > most or request[7]:
                    break
                for take in self._fast:
                    if take(request, waits, code):
                        break
                else:
                    break
            elif unit is not None and unit.open and (grown := unit.size + length) <= shared:
                sizes = unit.sizes
                batch.asked.append((connection, call_id, oneway, context, size, len(sizes)))
                sizes.append(length)
                unit.parts.append(records)
                unit.tags_codes.append(code)
                unit.size = grown
            else:
                try:
                    self._begin(batch, records, (length,), (code,), (connection, call_id, oneway, context, size, 0))
                except Refusal:
                    break
            left -= size
            at += 1
        connection.under_way(at - first, room - left)
        return at

    def send(self, request: Send, call: Call) -> Later | Awaitable[Later | SendAnswer]:
        config = self._topic(request.topic)
        if config is None:
            return self._create_and_send(request, call)
        batch = self._batches.get((request.topic, request.queue_id))
        if batch is None or batch.config is not config:
            try:
                batch = self._open_batch(request.topic, request.queue_id, config)
            except Refusal:
                return self._look_again(request, call)
            if batch.asks_for_kind:
                return self._send_of_kind(request, call, config)
        usual = not request.batch and len(request.records) <= self._max_body_bytes
        return self._add(request, call, batch, batch.tag_of(request.records) if usual else None)

    def drafted(self, request: DraftedSend, call: Call) -> Later | Awaitable[Later | SendAnswer]:
        """The same for records that the remoting codec made: they are checked already."""
        known = request.tags_code
        if isinstance(known, Pending):
            return self.send(request._replace(records=as_sent(request)), call)
        batch = self._batches.get((request.topic, request.queue_id))
        config = self._topic(request.topic)
        if batch is None or batch.config is not config or len(request.records) > self._max_body_bytes:
            return self.send(request, call)
        return self._add(request, call, batch, known)

    def _add(self, request: Send, call: Call, batch: QueueBatch, code: int | Parts | None) -> Later | Awaitable[SendAnswer]:
        """`code`: of a usual record, or what is known of several; None: those must be looked at closer. Raises Refusal."""
        records = request.records
        sizes, codes, pending = _checked(records, batch) if code is None else (*_parts(records, code), False)
        if len(sizes) > 1 or request.batch or len(records) > self._max_body_bytes:
            self._check_size(request, len(sizes))
        if code is None and request.topic.startswith(RETRY_PREFIX) and (answer := self._given_up(request)):
            return answer
        if pending:
            fan = self._fan_of(request, len(sizes), call)
            if placed := self._intake.take_sent(records, len(sizes), batch.queue.queue_id):
                return self._hold(placed, batch.queue.queue_id, call)
            if fan is not None:
                return self._spread(batch, fan, codes, call)
        unit = batch.unit
        if unit is not None and unit.open and unit.size + len(records) <= self._shared_bytes:
            batch.asked.append((*call, len(unit.sizes)))
            unit.parts.append(records)
            unit.sizes += sizes
            unit.tags_codes += codes
            unit.size += len(records)
            return LATER
        self._begin(batch, records, sizes, codes, (*call, 0))
        return LATER

    def _fan_of(self, request: Send, count: int, call: Call) -> Fan | None:
        """Raises Refusal also for a batch with a message for light queues."""
        if count == 1:
            return self._fan(request.records, request.topic, call)
        if any(self._fan(record.encode(one), request.topic, call) for one in record.iterate(request.records)):
            about = "a message of a batch cannot go to light queues (INNER_MULTI_DISPATCH): send it alone"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
        return None

    def _spread(self, batch: QueueBatch, fan: Fan, codes: Sequence[int], call: Call) -> Later:
        """Stores a message that goes to light queues too, in a unit of its own. Raises Refusal."""
        self._begin(batch, fan.draft, (len(fan.draft),), codes, (*call, 0))
        assert batch.unit is not None
        batch.unit.fan = fan
        batch.unit, batch.asked = None, []  # what is sent behind it is stored behind it
        return LATER

    def _begin(self, batch: QueueBatch, records: bytes, sizes: Sequence[int], codes: Sequence[int], first: Asked) -> None:
        """Proposes a unit, to which more sends of this turn may come. Raises Refusal."""
        asked = [first]
        unit = Unit(records, sizes, codes, batch.queue, (_not_stored, (batch, asked)))
        unit.asked, unit.came, unit.tells = first, first[0].last_read, _stored
        self._propose(unit)
        batch.unit, batch.asked = unit, asked

    def _send_of_kind(self, request: Send, call: Call, config: TopicConfig) -> Later | Awaitable[SendAnswer]:
        """To a topic made for one kind of messages: this one may be refused, or go to another queue. Raises Refusal."""
        pending = check(request.records, request.topic).pending
        messages = [*record.iterate(request.records)]
        said = [record.bytes_to_properties(one.properties) for one in messages]
        for properties in said:
            check_key(properties, config)
            if self._check_types:
                check_kind(properties, config)
        if has_lite_topics(config) and (draft := self._to_lite_topic(config.name, messages, said)) is not None:
            request = request._replace(records=draft)
        queue_id = request.queue_id
        if is_by_urgency(config) and len(said) == 1 and (urgent := urgent_queue(said[0], config)) is not None:
            queue_id = urgent
        if queue_id < 0:
            queue_id = self._chance.randrange(config.write_queue_nums)
        batch = self._of_kinds.get((config.name, queue_id))
        if batch is None or batch.config is not config:
            batch = self._opened_batch(self._of_kinds, config, queue_id)
        if holds_batches(config) and (request.batch or len(messages) > 1) and not pending:
            key = _key_of(call, said[0])
            if key and not any(one.sys_flag & record.SYS_BODY for one in messages):
                return self._send_inner(request, call, batch, messages, key)
        return self._add(request, call, batch, None)

    def _send_inner(self, request: Send, call: Call, batch: QueueBatch, messages: list[Record], key: str) -> Later:
        """One record for the whole batch, which goes by that key. As in RocketMQ a batch without one is stored message by
        message; so is one with compressed bodies, as an inner batch has no flag for them [SendMessageProcessor]."""
        self._check_size(request, len(messages))
        if len(messages) > MOST_MESSAGES:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{len(messages)} messages in one batch: send at most {MOST_MESSAGES}")
        try:
            draft = wrap(messages, record.properties_to_bytes({"UNIQ_KEY": key}))
        except InvalidArgument as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if batch.unit is not None:
            batch.unit.open = False  # what comes behind the batch stays behind it
        unit = Unit(draft, (len(draft),), (0,), batch.queue, (_batch_stored, (call, key)))
        unit.open, unit.inner, unit.asked, unit.came = False, len(messages), call, call.connection.last_read
        self._propose(unit)
        return LATER

    def _hold(self, placed: Intercepted, queue_id: int, call: Call) -> Later:
        """Stores a message that waits first. As in RocketMQ the answer names its target queue, and the offsets where it waits."""
        unit = Unit(placed.draft, (len(placed.draft),), (0,), self._queues.get(placed.topic, placed.queue_id))
        unit.pending_change, unit.owner = True, (_pending_stored, (call, queue_id, placed.recall_handle))
        unit.asked, unit.came = call, call.connection.last_read
        self._propose(unit)
        self._intake.close(unit.queue)
        return LATER

    def _open_batch(self, topic: str, queue_id: int, config: TopicConfig) -> QueueBatch:
        """Whether this queue may be sent to at all. Raises Refusal."""
        if topic.startswith(LIGHT_PREFIX):
            about = f"{topic} is a light queue: send to an ordinary topic, and name it in the property INNER_MULTI_DISPATCH"
            raise Refusal(ResponseCode.NO_PERMISSION, about)
        if not_sendable(topic):
            raise Refusal(ResponseCode.NO_PERMISSION, f"sending to topic {topic} is forbidden: it is the broker's own")
        if config.order and not self._permission & PERM_WRITE:  # any other may still come from producers with an old route
            raise Refusal(ResponseCode.NO_PERMISSION, "this broker may not be written to now (brokerPermission)")
        if not config.perm & PERM_WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {topic} may not be written to (perm {config.perm})")
        most = max(config.write_queue_nums, config.read_queue_nums)
        if queue_id >= most:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"queue {queue_id} of {topic}: it has queues 0 to {most - 1}")
        if topic.startswith(RETRY_PREFIX):  # always the slow path, where retries are counted
            queue_id = queue_id if queue_id >= 0 else self._chance.randrange(config.write_queue_nums)
            batch = QueueBatch(config, self._queues.get(topic, queue_id))
            batch.tag_of = _never
            return batch
        if asks_for_kind(config, self._check_types):
            batch = QueueBatch(config, self._queues.look(topic, max(queue_id, 0)))
            batch.asks_for_kind = True
            return batch
        if queue_id < 0:
            return QueueBatch(config, self._queues.get(topic, self._chance.randrange(config.write_queue_nums)))
        return self._opened_batch(self._batches, config, queue_id)

    def _opened_batch(self, among: dict[tuple[str, int], QueueBatch], config: TopicConfig, queue_id: int) -> QueueBatch:
        if len(among) >= MAX_OPEN_BATCHES:
            self._forget_all()  # they come back with their next send
        key = config.name, queue_id
        batch = among[key] = QueueBatch(config, self._queues.get(*key))
        if queue_id not in (opened := self._opened.get(config.name, ())):
            self._opened[config.name] = (*opened, queue_id)
        return batch

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

    async def _create_and_send(self, request: Send, call: Call) -> Later | SendAnswer:
        await self._all_known()
        template, queue_nums = request.default_topic, request.default_topic_queue_nums
        await self._ensure_topic(request.topic, template, queue_nums, self.auto_create, request.unit_mode)
        return await self._send_to_known(request, call)

    async def _look_again(self, request: Send, call: Call) -> Later | SendAnswer:
        """Tries a refused send again: the topic may have changed in an earlier epoch that this leader has not applied yet."""
        await self._all_known()
        return await self._send_to_known(request, call)

    async def _send_to_known(self, request: Send, call: Call) -> Later | SendAnswer:
        config = self._topic(request.topic)
        if config is None:
            raise no_topic(request.topic, " any more: it was deleted meanwhile")
        self._open_batch(request.topic, request.queue_id, config)
        result = self.send(request, call)
        return result if result is LATER else await result


def _parts(records: bytes, code: int | Parts) -> Parts:
    return code if isinstance(code, tuple) else ((len(records),), (code,))


def _checked(records: bytes, batch: QueueBatch) -> Checked:
    """Raises Refusal."""
    many = check_many(records, batch.tag_of) if len(records) >= MANY * MIN_RECORD_BYTES else None
    return check(records, batch.config.name) if many is None else many


def _key_of(call: Call, first: Mapping[str, str]) -> str:
    """The unique id of a batch as a whole, which RocketMQ's clients give it; our client's is that of its first message."""
    given: bytes = getattr(call.context, "unique_key", b"")
    return given.decode("utf-8", "replace") if call.context else first.get("UNIQ_KEY", "")


def _never(records: bytes) -> None:
    """No record takes the fast path."""


def _pending_stored(asked: tuple[Call, int, str], unit: Unit, error: RmqError | None, late: int) -> None:
    call, queue_id, handle = asked
    if error is None:
        call.answer(SendAnswer(queue_id, unit.queue_offset, unit.physical_offset, late, handle))
    else:
        finish((call,), error)


def _batch_stored(asked: tuple[Call, str], unit: Unit, error: RmqError | None, late: int) -> None:
    call, key = asked
    if error is None:
        call.answer(SendAnswer(unit.queue.queue_id, unit.queue_offset, unit.physical_offset, late, batch_id=key))
    else:
        finish((call,), error)


def _stored(units: Sequence[Unit], late: int) -> None:
    stored = []
    for unit in units:
        batch, asked = unit.owner[1]
        unit.owner = None
        if batch.unit is unit:
            batch.unit, batch.asked = None, []
        first, sizes = unit.physical_offset, unit.sizes
        places = (first,) if len(asked) == 1 else [*accumulate(sizes, initial=first)]  # one sender: of a message, or of a batch
        stored.append((asked, unit.queue.queue_id, unit.queue_offset, places))
    answer_stored(stored, late)


def _not_stored(of: tuple[QueueBatch, list[Asked]], unit: Unit, error: RmqError | None, _late: int) -> None:
    batch, asked = of
    if batch.unit is unit:
        batch.unit, batch.asked = None, []
    assert error is not None  # else `_stored` tells them
    finish([Call(*one[:5]) for one in asked], error)
