"""Which light queues a message goes to, beside the queue of its topic [LmqDispatch, HookUtils.handleLmqQuota]."""

from collections.abc import Callable, Mapping, Sequence

from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal, being_deleted
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records.lights import light_queues_in, only_in
from rmq.log.records.peek import properties_of
from rmq.log.records.properties import LIGHT_MARK
from rmq.log.records.record import Record
from rmq.log.units import Fan
from rmq.model import DLQ_PREFIX, LITE_PROPERTY, may_be_light
from rmq.names import lite_queue
from rmq.net.transport.server import Call
from rmq.requests import Action


class LightQueues:
    """Without `light_queues` and `light_dispatch` no message goes to any: it is stored as it is, as in RocketMQ.

    `is_leaving(name)`: whether its deletion is on its way. `check_topic`: as of `Guard`."""

    def __init__(
        self,
        settings: NodeSettings,
        queues: ConsumeQueues,
        is_leaving: Callable[[str], bool],
        check_topic: Callable[[Call, str, Action, str], None],
    ) -> None:
        self.on = settings.light_queues and settings.light_dispatch
        self._most = settings.max_light_queues
        self._queues = queues
        self._is_leaving = is_leaving
        self._check_topic = check_topic

    def fan(self, draft: bytes, topic: str, call: Call) -> Fan | None:
        """For a message that a client sends. Raises Refusal: MESSAGE_ILLEGAL for wrong names, NO_PERMISSION where the client may
        not send to one, LMQ_QUOTA_EXCEEDED if it would make a light queue too many, SYSTEM_BUSY for one that is being deleted."""
        if not self._applies(draft, topic):
            return None
        names = light_queues_in(properties_of(draft))
        for name in names:
            self._check_topic(call, name, Action.PUB, "")
        there = self._queues.lights()
        new = [name for name in names if name not in there]
        if new and len(there) + len(new) > self._most:
            about = f"there are {len(there)} light queues, and {new[0]} is not among them: delete some, or raise max_light_queues"
            raise Refusal(ResponseCode.LMQ_QUOTA_EXCEEDED, about)
        return self._fan(draft, names)

    def to_lite_topic(self, topic: str, messages: Sequence[Record], said: Sequence[Mapping[str, str]]) -> bytes | None:
        """The draft of a message for a topic of type LITE, which names the light queue of its lite topic and no other
        [SendMessageProcessor]; None: it is stored as it is. `said`: its properties. Raises Refusal MESSAGE_ILLEGAL, also for a
        batch, whose messages have one place in the log."""
        lites = [one[LITE_PROPERTY] for one in said if LITE_PROPERTY in one]
        if not self.on or not lites:
            return None
        if len(messages) > 1:
            about = f"a message of a batch cannot go to a lite topic ({LITE_PROPERTY}): send it alone"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, about)
        try:
            return only_in(messages[0], lite_queue(topic, lites[0]))
        except Refusal as refusal:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, refusal.remark) from None

    def fan_of_waiting(self, draft: bytes, topic: str) -> Fan | None:
        """For a message that has waited and now comes to its topic. It was let in, so it may make light queues, and wrong names
        are as none. Raises Refusal SYSTEM_BUSY."""
        if not self._applies(draft, topic):
            return None
        try:
            names = light_queues_in(properties_of(draft))
        except Refusal:  # of a message that RocketMQ let in
            return None
        return self._fan(draft, names)

    def _applies(self, draft: bytes, topic: str) -> bool:
        return self.on and LIGHT_MARK in draft and may_be_light(topic) and not topic.startswith(DLQ_PREFIX)

    def _fan(self, draft: bytes, names: tuple[str, ...]) -> Fan | None:
        for name in names:
            if self._is_leaving(name):
                raise being_deleted(f"light queue {name}")
        return Fan(draft, tuple(self._queues.get(name, 0) for name in names)) if names else None
