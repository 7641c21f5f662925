"""How far consumer groups are behind, and since when."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rmq.client import Client
from rmq.client.admin import one
from rmq.client.admin.calls import leading
from rmq.client.admin.one import ConsumerConnection, ConsumeStats
from rmq.dashboard.bounded import BROKERS_S, ask_all
from rmq.model import BROADCASTING, BrokerAddresses, QueueProgress, Subscription


class Group(NamedTuple):
    """A consumer group now. `queues`: those of all brokers that answered. `parts`: its members as each broker lists them."""

    name: str
    queues: list[QueueProgress]
    tps: float
    parts: dict[str, ConsumerConnection]
    silent: dict[str, str]

    @property
    def lag(self) -> int:
        return sum(behind(row) for row in self.queues)

    @property
    def since_ms(self) -> int:
        """Among queues with waiting messages, the one whose last consumed message is oldest: the store time of that message. 0 if
        nothing waits, or the group never consumed there."""
        return min((row.last_timestamp for row in self.queues if behind(row) and row.last_timestamp), default=0)

    @property
    def members(self) -> dict[str, tuple[str, str, int]]:
        """Client id -> address, language, version, as the first broker that lists the client tells them."""
        return {
            each.client_id: (each.address, each.language, each.version)
            for part in reversed(self.parts.values())
            for each in part.connections
        }

    @property
    def mode(self) -> str:
        return next((part.message_model.lower() for part in self.parts.values()), "")

    @property
    def how(self) -> str:
        """Pull or push."""
        kinds = {part.consume_type for part in self.parts.values()}
        return "/".join(sorted("pull" if "ACTIVE" in kind else "pop" if "POP" in kind else "push" for kind in kinds))

    @property
    def is_broadcast(self) -> bool:
        return self.mode == BROADCASTING.lower()

    @property
    def subscriptions(self) -> list[Subscription]:
        found = {(each.topic, each.expression): each for part in self.parts.values() for each in part.subscriptions}
        return sorted(found.values())

    @property
    def differing(self) -> list[str]:
        """Topics whose subscriptions differ between brokers: members disagree, so which messages each gets is left to chance."""
        expressions: dict[str, set[str]] = {}
        for each in self.subscriptions:
            expressions.setdefault(each.topic, set()).add(each.expression)
        return sorted(topic for topic, found in expressions.items() if len(found) > 1)


def behind(row: QueueProgress) -> int:
    return max(0, row.broker_offset - row.consumer_offset)


async def groups_now(
    client: Client, names: Sequence[str], brokers: Iterable[BrokerAddresses], topic: str = "", seconds: float = BROKERS_S
) -> list[Group]:
    """The groups in the order of `names`. Asks all brokers about each."""
    addresses = [leading(group) for group in brokers]
    pairs = [(name, address) for name in names for address in addresses]
    stats, silent = await ask_all(
        {
            **{("stats", name, at): one.consume_stats(client, name, at, topic) for name, at in pairs},
            **{("members", name, at): one.connection(client, name, at) for name, at in pairs},
        },
        seconds,
        lambda key: key[2],
    )
    found = []
    for name in names:
        queues: list[QueueProgress] = []
        tps = 0.0
        parts: dict[str, ConsumerConnection] = {}
        for at in addresses:
            progress, members = stats.get(("stats", name, at)), stats.get(("members", name, at))
            if isinstance(progress, ConsumeStats):
                queues += progress.queues
                tps += progress.consume_tps
            if isinstance(members, ConsumerConnection):
                parts[at] = members
        quiet = {at: why for (kind, who, at), why in silent.items() if who == name and kind == "stats"}
        found.append(Group(name, sorted(queues), tps, parts, quiet))
    return found
