"""The producer's choice of a queue, and which broker groups to leave alone for a while.

Chance and time come in as arguments.
"""

from collections.abc import Sequence

from rmq.javahash import java_hash
from rmq.model import PERM_READ, PERM_WRITE, BrokerAddresses, MessageQueue, Route

LEADER = 0  # key of the leader among a broker group's addresses [MixAll.MASTER_ID]


def writable_queues(route: Route, topic: str) -> list[MessageQueue]:
    """Queues that take messages once their group has a leader, sorted."""
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queues
        if data.perm & PERM_WRITE
        for queue_id in range(data.write_queue_nums)
    )


def led_queues(route: Route, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """The queues of broker groups that have a leader now [MQClientInstance.topicRouteData2TopicPublishInfo]."""
    led = {group.name for group in route.brokers if LEADER in group.addresses}
    return [queue for queue in queues if queue.broker_name in led]


def readable_queues(route: Route, topic: str) -> list[MessageQueue]:
    """Queues to divide among the members of a group, sorted [MQClientInstance.topicRouteData2TopicSubscribeInfo]."""
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queues
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    )


class QueueChooser:
    """Takes the queues of each topic in turn. `start` should be random, so that many new producers do not all begin at the same
    queue. A turn for all topics together would leave out queues of a producer that goes from topic to topic."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._turns: dict[str, int] = {}  # of each topic

    def next(self, queues: Sequence[MessageQueue], avoid: str = "") -> MessageQueue:
        """The next queue, of another broker group than `avoid` (where the last try failed) if there is one [TopicPublishInfo].

        Raises ValueError without queues.
        """
        if not queues:
            raise ValueError("there is no queue to choose from")
        topic, count = queues[0].topic, len(queues)
        turn = first = self._turns.get(topic, self._start) + 1
        while avoid and queues[turn % count].broker_name == avoid:
            turn += 1
            if turn - first == count:  # all are of that group
                break
        self._turns[topic] = turn
        return queues[turn % count]

    def by_key(self, queues: Sequence[MessageQueue], key: str) -> MessageQueue:
        """The same queue for the same key while the list is the same, and the same as Java clients [SelectMessageQueueByHash].

        Raises ValueError without queues.
        """
        if not queues:
            raise ValueError("there is no queue to choose from")
        remainder = abs(java_hash(key)) % len(queues)  # Java takes the remainder first; its absolute value is the same
        return queues[remainder]


_PENALTIES_MS = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000))
FAILED_MS = 10_000  # an error counts as this latency


class Isolation:
    """Broker groups that were slow or failed are left alone for a while [MQFaultStrategy]. Times: monotonic seconds."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}  # when a group was, or is, to be left alone
        self._epochs: dict[str, int] = {}

    def report(self, broker_name: str, latency_ms: float, now: float) -> None:
        """Notes how long a request took (FAILED_MS for one that failed)."""
        penalty_ms = next((penalty for latency, penalty in _PENALTIES_MS if latency_ms >= latency), 0)
        if penalty_ms:
            self.until[broker_name] = now + penalty_ms / 1000
        else:
            self.until.pop(broker_name, None)

    def route_seen(self, brokers: Sequence[BrokerAddresses]) -> None:
        """A group with a newer epoch has a new leader: the latency of the old one no longer counts."""
        for group in brokers:
            if group.epoch > self._epochs.get(group.name, group.epoch):
                self.until.pop(group.name, None)
            self._epochs[group.name] = max(group.epoch, self._epochs.get(group.name, 0))

    def available(self, queues: Sequence[MessageQueue], now: float) -> Sequence[MessageQueue]:
        """Queues of groups that are not isolated; all of them if none is left."""
        if not self.until:
            return queues
        self.until = {name: until for name, until in self.until.items() if until > now}
        free = [queue for queue in queues if queue.broker_name not in self.until]
        return free or queues
