"""Recalls a timed message before it is due [RecallMessageProcessor]: a message that cancels it waits in the same slot."""

from collections.abc import Mapping
from typing import Any

from rmq.broker.pending.delays import TimerInterceptor
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.due import Cancelling, target_of, timer_out_ms, timer_slot
from rmq.errors import Refusal, no_topic
from rmq.log.records import record
from rmq.model import PERM_WRITE
from rmq.net.commands.timers import Recall, RecallAnswer, read_handle
from rmq.net.transport.server import Call, Handler

TAG = "_RECALL_TAG_"


class RecallHandler:
    """`broker_name`: as handles name this broker. `enabled`: whether messages may be recalled at all."""

    def __init__(
        self,
        timers: TimerInterceptor,
        cancelling: Cancelling,
        internal_producer: InternalProducer,
        clock: Clock,
        broker_name: str,
        enabled: bool,
    ) -> None:
        self._timers = timers
        self._cancelling = cancelling
        self._broker_name = broker_name
        self._internal_producer = internal_producer
        self._clock = clock
        self.enabled = enabled

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {Recall: self.recall}

    async def recall(self, request: Recall, _call: Call) -> RecallAnswer:
        """Succeeds for every well-formed handle that is not due yet, as in RocketMQ, whether such a message waits or not."""
        if not self.enabled:
            raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden: set recallMessageEnable=true")
        config = self._internal_producer.topic(request.topic)
        if config is None:
            raise no_topic(request.topic, ": there is nothing to recall in it")
        if not config.perm & PERM_WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"topic {request.topic} may not be written to (perm {config.perm})")
        if (handle := read_handle(request.recall_handle)) is None:
            raise _illegal("recall handle is invalid")
        topic, broker_name, deliver_ms, key = handle
        if topic != request.topic:
            raise _illegal("recall failed, topic not match")
        if broker_name != self._broker_name:  # clients ask another one where that one cannot be reached
            raise _illegal(f"recall failed, broker service not available: the message waits at {broker_name[:255]}")
        now_ms = self._clock.wall_ms()
        if deliver_ms <= now_ms:
            raise _illegal("recall failed, timestamp invalid: the message is due")
        properties = record.properties_to_bytes(
            {
                "TAGS": TAG,
                "UNIQ_KEY": key,
                "TIMER_DELIVER_MS": str(deliver_ms),
                "TIMER_DEL_UNIQKEY": key,
                "PGROUP": request.producer_group,
                "BORN_TIMESTAMP": str(now_ms),
            }
        )
        draft = record.draft(topic, b"0", properties, born_timestamp=now_ms, born_host=self._internal_producer.host)
        placed = self._timers.take(record.decode(draft), 0)
        if placed is None:  # it became due since the clock was read
            raise _illegal("recall failed, timestamp invalid: the message is due")
        due_ms = timer_slot(timer_out_ms(deliver_ms))
        with self._cancelling.writing(due_ms, target_of(topic, key)):
            await self._internal_producer.send(placed.topic, placed.queue_id, placed.draft)
        return RecallAnswer(key)


def _illegal(about: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, about)
