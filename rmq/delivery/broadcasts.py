"""Where the clients of broadcast groups are, as a broker remembers it for those who come by another way [BroadcastOffsetManager].

A broadcast client keeps its offsets itself. When it comes by a proxy instead, or no longer, it does not find them: the broker
sends it to where it was, or where the slowest of its group was. In memory; of the slowest ones others make state records. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

EXPIRES_S: Final = 300.0  # a client that has not pulled for so long is forgotten [broadcastOffsetExpireMaxSecond]
ABSENT_EXPIRES_S: Final = 120.0  # one that is no member any more [broadcastOffsetExpireSecond]
MAX_PLACES: Final = 200_000  # clients, each in each queue

TopicAndGroup = tuple[str, str]


class Puller(NamedTuple):
    """`by_proxy`: the way by which the client came last. `pulled_s`: when (monotonic)."""

    by_proxy: bool
    pulled_s: float
    offsets: dict[int, int]


class BroadcastOffsets:
    def __init__(self) -> None:
        self._pullers: dict[TopicAndGroup, dict[str, Puller]] = {}
        self._count = 0

    def may_begin(self, place: TopicAndGroup, client: str, asked: int, by_proxy: bool) -> bool:
        """Whether the client does not know where it is: it asks for no offset, or came by another way until now."""
        known = self._pullers.get(place, {}).get(client)
        if known is None:
            return by_proxy and asked < 0
        return (known.by_proxy and asked < 0) or known.by_proxy != by_proxy

    def reached(self, place: TopicAndGroup, client: str, queue_id: int) -> int | None:
        known = self._pullers.get(place, {}).get(client)
        return None if known is None else known.offsets.get(queue_id)

    def pulled(self, place: TopicAndGroup, client: str, queue_id: int, offset: int, by_proxy: bool, now_s: float) -> None:
        """Notes a pull. Of too many all are forgotten: then what is kept of the slowest counts."""
        if self._count >= MAX_PLACES:
            self._pullers.clear()
            self._count = 0
        clients = self._pullers.setdefault(place, {})
        known = clients.get(client)
        offsets = {} if known is None else known.offsets
        self._count += queue_id not in offsets
        offsets[queue_id] = offset
        clients[client] = Puller(by_proxy, now_s, offsets)

    def forget(self, topic: str) -> None:
        """The topic was deleted, or changed."""
        self._forget(lambda place: place[0] == topic)

    def forget_group(self, group: str) -> None:
        """The group was deleted."""
        self._forget(lambda place: place[1] == group)

    def _forget(self, gone: Callable[[TopicAndGroup], bool]) -> None:
        for place in [place for place in self._pullers if gone(place)]:
            self._count -= sum(len(one.offsets) for one in self._pullers.pop(place).values())

    def expire(self, is_member: Callable[[str, str], bool], now_s: float) -> None:
        """`is_member(group, client)`: whether it is connected."""
        for place, clients in list(self._pullers.items()):
            for client, one in list(clients.items()):
                silent_s = now_s - one.pulled_s
                if silent_s >= EXPIRES_S or (silent_s >= ABSENT_EXPIRES_S and not is_member(place[1], client)):
                    self._count -= len(clients.pop(client).offsets)
            if not clients:
                del self._pullers[place]

    def slowest(self) -> Iterable[tuple[TopicAndGroup, dict[int, int]]]:
        """The lowest offset of all clients in each queue."""
        for place, clients in self._pullers.items():
            lowest: dict[int, int] = {}
            for one in clients.values():
                for queue_id, offset in one.offsets.items():
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
            yield place, dict(sorted(lowest.items()))
