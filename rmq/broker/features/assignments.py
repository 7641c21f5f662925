"""Which queues of a topic a member of a group reads, and whether it pulls or pops them [QueryAssignmentProcessor]."""

from collections.abc import Awaitable, Callable, Sequence

from rmq.broker.feature import Export, Feature
from rmq.broker.pending.routeasking import RouteAsking
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.delivery.members import ConsumerRegistry
from rmq.delivery.modes import POP, PULL, Mode, ModeTable, check_mode, modes_json
from rmq.delivery.pairs import name_of
from rmq.errors import Refusal
from rmq.model import PERM_READ, RETRY_PREFIX, MessageQueue
from rmq.net.commands.pop import Assignment, Assignments as Assigned, QueryAssignment, SetRequestMode
from rmq.net.transport.server import Call
from rmq.routing.rebalance import STRATEGIES, Strategy

BROADCASTING = "BROADCASTING"
MAX_MODES = 50_000
ANY = -1  # all queues of a broker


class Assignments(Feature):
    """`commit(lines)`: done when they are committed."""

    def __init__(
        self,
        broker_name: str,
        catalog: Catalog,
        modes: ModeTable,
        registry: ConsumerRegistry,
        routes: RouteAsking,
        commit: Callable[[list[Line]], Awaitable[None]],
    ) -> None:
        self._broker_name = broker_name
        self._catalog = catalog
        self._modes = modes
        self._registry = registry
        self._routes = routes
        self._commit = commit
        self.handlers = {QueryAssignment: self.query, SetRequestMode: self.set_mode}
        self.exports = {"messageRequestMode.json": Export(lambda: modes_json(modes), empty={"messageRequestModeMap": {}})}

    async def set_mode(self, request: SetRequestMode, _call: Call) -> None:
        topic, group = request.topic, request.consumer_group
        check_mode(request.mode)
        if topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, f"{topic}: a retry topic is read as its group reads the others")
        self._catalog.known_topic(topic)
        self._catalog.group_or_may_be(group)
        name, mode = name_of(topic, group), Mode(request.mode, request.pop_share_queue_num)
        if self._modes.get(name) is None and len(self._modes.committed()) >= MAX_MODES:
            about = f"{MAX_MODES} groups and topics have a mode already: delete groups or topics that are not used any more"
            raise Refusal(ResponseCode.SYSTEM_BUSY, about)
        self._modes.stage(name, mode)
        with undoing(lambda: self._modes.unstage(name)):
            await self._commit([("mode", name, list(mode))])

    async def query(self, request: QueryAssignment, _call: Call) -> Assigned:
        """Answers "not known" for a group whose heartbeat is still on its way, for a strategy that is not served, and where no
        nameserver has told yet what there is: others may have more of the topic."""
        topic, group, me = request.topic, request.consumer_group, request.client_id
        queues, members = await self._queues(topic), sorted(self._registry.members(group))
        strategy = STRATEGIES.get(request.strategy_name)
        if queues is None:
            return Assigned([], known=False)
        if request.message_model == BROADCASTING:
            return Assigned([Assignment(queue, PULL) for queue in queues])
        if me not in members or strategy is None:
            return Assigned([], known=False)
        mode = Mode(PULL) if topic.startswith(RETRY_PREFIX) else self._modes.of(topic, group)
        if mode.mode != POP:
            return Assigned([Assignment(queue, PULL) for queue in strategy(queues, members, me)])
        return Assigned([Assignment(queue, POP) for queue in popped_by(queues, members, me, mode.share, strategy)])

    async def _queues(self, topic: str) -> list[MessageQueue] | None:
        """None: not known. Of a broker without nameservers its own."""
        known = await self._routes.queues(topic)
        if known is not None or not self._routes.alone:
            return known
        config = self._catalog.topic(topic)
        count = config.read_queue_nums if config and config.perm & PERM_READ else 0
        return [MessageQueue(topic, self._broker_name, queue_id) for queue_id in range(count)]


def popped_by(
    queues: Sequence[MessageQueue], members: Sequence[str], me: str, share: int, strategy: Strategy
) -> list[MessageQueue]:
    """What a member pops: everything, or its own queues and those of the next `share` members [allocate4Pop]."""
    if share <= 0 or share >= len(members) - 1:
        brokers = sorted({queue.broker_name for queue in queues})
        return [MessageQueue(queues[0].topic, name, ANY) for name in brokers]
    place = members.index(me)
    if len(members) > len(queues):  # each member gets a queue
        return [sorted(queues)[place % len(queues)]] if queues else []
    sharers = [members[(place + i) % len(members)] for i in range(share + 1)]
    return sorted({queue for member in sharers for queue in strategy(queues, members, member)})
