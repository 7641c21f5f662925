"""The queues that messages of a topic may go to: those of its route, or the template's while the topic does not exist yet."""

from dataclasses import dataclass, field
from typing import Final, cast

from rmq.client.shared.session import Session
from rmq.client.shared.tasks import within
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError, Unreachable
from rmq.model import TEMPLATE_TOPIC, MessageQueue, Route
from rmq.net.commands import ClusterInfo, GetClusterInfo
from rmq.routing.choose import led_queues, writable_queues

NEW_TOPIC_QUEUES: Final = 4  # [defaultTopicQueueNums]


@dataclass(slots=True)
class _Queues:
    """The topic's queues, and those whose group has a leader. `of`: the route that they come from."""

    of: Route | None = None
    all: list[MessageQueue] = field(default_factory=list)
    led: list[MessageQueue] = field(default_factory=list)


class TopicQueues:
    """The queues for one producer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, _Queues] = {}
        self._trouble: Unreachable | None = None  # how the last question ended; the next one may end without a word

    def elsewhere(self, topic: str, broker_name: str) -> bool:
        """Whether another broker takes messages of the topic, as far as routes are known."""
        queues = self._known.get(topic)
        return queues is not None and any(queue.broker_name != broker_name for queue in queues.led)

    def known(self, topic: str, ordered: bool) -> list[MessageQueue] | None:
        """As `find`, if no nameserver must be asked. Raises Refusal, Unreachable."""
        route = self._session.routes.known(topic)
        if route is None:
            return None
        found = self._known.get(topic)
        if found is not None and found.of is route and found.led and not ordered:
            return found.led  # nearly always
        return self._of(topic, ordered, route)

    async def find(self, topic: str, ordered: bool, deadline: float) -> list[MessageQueue]:
        """Queues the message may go to; `ordered`: those without a leader, too. `deadline`: monotonic s. Raises Refusal,
        Unreachable."""
        queues = self.known(topic, ordered)
        if queues is not None:
            return queues
        left_s = max(0.001, deadline - self._session.clock.monotonic())
        try:
            queues = await within(self._session.clock, left_s, self._learn(topic, ordered))
        except TimeoutError:
            known = ";".join(self._session.nameservers.addresses)
            before = f": before, {self._trouble}" if self._trouble else ""
            about = f"no nameserver of {known} told where {topic} lives within the timeout{before}"
            raise Unreachable(about) from self._trouble
        except Unreachable as error:
            self._trouble = error
            raise
        self._trouble = None
        return queues

    async def _learn(self, topic: str, ordered: bool) -> list[MessageQueue]:
        try:
            return self._of(topic, ordered, await self._session.routes.get(topic))
        except Refusal as refusal:
            return await self._to_be(topic, refusal)

    def _of(self, topic: str, ordered: bool, route: Route) -> list[MessageQueue]:
        found = self._known.get(topic)
        if found is None or found.of is not route:
            there = writable_queues(route, topic)
            found = self._known[topic] = _Queues(route, there, led_queues(route, there))
        if not found.all and route.queues:
            about = f"topic {topic} may not be written to now at any of its brokers: see `rmq admin topicRoute -t {topic}`"
            raise Refusal(ResponseCode.NO_PERMISSION, about)
        return _some(found.all if ordered else found.led, topic)

    async def _to_be(self, topic: str, refusal: Refusal) -> list[MessageQueue]:
        """Queues of a topic that its first message will make, like the template's. Raises the refusal if it may not be made;
        Unreachable while no broker is registered at all: nameservers that were just started know nothing."""
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise refusal
        try:
            template = await self._session.routes.get(TEMPLATE_TOPIC)
        except Refusal:
            if await self._nobody_there():
                known = ";".join(self._session.nameservers.addresses)
                raise Unreachable(f"{known}: no broker is registered there, or none yet, so {topic} lives nowhere") from refusal
            hint = (
                f"topic {topic} does not exist at any registered broker: create it with `rmq admin updateTopic -t {topic} "
                "-c <cluster>`; if it should be there, see with `rmq admin clusterList` whether its broker is"
            )
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, hint) from refusal
        led = led_queues(template, writable_queues(template, TEMPLATE_TOPIC))
        queues = [queue._replace(topic=topic) for queue in led]
        return _some([queue for queue in queues if queue.queue_id < NEW_TOPIC_QUEUES], topic)

    async def _nobody_there(self) -> bool:
        """Whether no broker is registered, as far as nameservers tell."""
        try:
            return not any(cast(ClusterInfo, each).brokers for each in await self._session.nameservers.ask_all(GetClusterInfo()))
        except RmqError:
            return False


def _some(queues: list[MessageQueue], topic: str) -> list[MessageQueue]:
    if not queues:
        raise Unreachable(f"no broker takes messages for {topic} now")
    return queues
