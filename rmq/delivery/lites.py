"""Which client wants which lite topics, and which of them may have something for it [LiteSubscriptionRegistry,
LiteEventDispatcher]. Pure.

Only the leader keeps this, in memory: clients declare it again. An event says that a lite topic may have messages for a group;
each client of the group that wants it has the event, so nothing is lost with a client, and the first that pops takes them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rmq.names import lite_parts

SLOT_MS = 250
MOST_OF_ONE = 1000  # clients that want one lite topic, or all of a topic: each hears of each message


class ClientKey(NamedTuple):
    group: str
    client_id: str


class Events:
    """Light queues that may have something, in the order in which that was heard. Beyond `most` it knows only that there are
    more: `missed`, then whoever empties it looks through all."""

    __slots__ = ("_names", "missed", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.missed = False
        self._names: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._names)

    def note(self, queue: str) -> None:
        if queue in self._names:
            return
        if len(self._names) < self.most:
            self._names[queue] = None
        else:
            self.missed = True

    def put_first(self, queues: Iterable[str]) -> None:
        """A few, also beyond `most`."""
        self._names = dict.fromkeys([*queues, *self._names])

    def next(self) -> str | None:
        """The oldest, which it forgets."""
        queue = next(iter(self._names), None)
        if queue is not None:
            del self._names[queue]
        return queue


class LiteClient:
    """A client of a group, and the light queues of the lite topics of `topic` that it wants. `wants_all`: it has no set, and
    shares its events with the others of its group. `heard_s`: when it declared or popped last; `accessed_ms`, `consumed_ms`:
    of its pops. `owner`: its connection. `whole`: it has declared its whole set here."""

    __slots__ = ("accessed_ms", "consumed_ms", "events", "heard_s", "key", "owner", "queues", "topic", "wants_all", "whole")

    def __init__(self, key: ClientKey, topic: str, wants_all: bool, events: Events) -> None:
        self.key = key
        self.topic = topic
        self.wants_all = wants_all
        self.events = events
        self.queues: dict[str, None] = {}
        self.heard_s = 0.0
        self.accessed_ms, self.consumed_ms = -1, 0
        self.owner: object = None
        self.whole = wants_all

    def wants(self, queue: str) -> bool:
        return self.wants_all or queue in self.queues


class LiteSubscriptions:
    """`watched(topic, on)`: from now on somebody wants lite topics of that topic, or nobody any more."""

    def __init__(self, watched: Callable[[str, bool], None]) -> None:
        self._watched = watched
        self.clients: dict[ClientKey, LiteClient] = {}
        self._of_group: dict[str, dict[ClientKey, LiteClient]] = {}
        self._by_queue: dict[str, dict[ClientKey, LiteClient]] = {}  # those that wait longest for their turn first
        self._wanting_all: dict[str, dict[ClientKey, LiteClient]] = {}  # by topic
        self._of_topic: dict[str, int] = {}  # how many clients
        self.count = 0  # of pairs of a client and a lite topic; a client that wants all counts as one [activeNum]

    @property
    def size(self) -> int:
        """What it takes in memory: pairs, and clients."""
        return self.count + len(self.clients)

    def get(self, group: str, client_id: str) -> LiteClient | None:
        return self.clients.get(ClientKey(group, client_id))

    def is_crowded(self, queue: str) -> bool:
        """Whether as many clients want that lite topic as may hear of each message there."""
        return len(self._by_queue.get(queue, ())) >= MOST_OF_ONE

    def wants_all_of(self, topic: str) -> int:
        """How many clients want all lite topics of that topic."""
        return len(self._wanting_all.get(topic, ()))

    def of_group(self, group: str) -> list[LiteClient]:
        return list(self._of_group.get(group, {}).values())

    def join(self, key: ClientKey, topic: str, wants_all: bool, most_events: int) -> LiteClient:
        """The client; one that is known under another topic, or wanted something else, begins anew."""
        known = self.clients.get(key)
        if known is not None and known.topic == topic and known.wants_all == wants_all:
            known.events.most = most_events
            return known
        if known is not None:
            self.leave(known)
        others = self._wanting_all.get(topic, {}).values() if wants_all else ()
        shared = next((one.events for one in others if one.key.group == key.group), None)
        client = self.clients[key] = LiteClient(key, topic, wants_all, shared or Events(most_events))
        self._of_group.setdefault(key.group, {})[key] = client
        if wants_all:
            self._wanting_all.setdefault(topic, {})[key] = client
            self.count += 1
        self._of_topic[topic] = self._of_topic.get(topic, 0) + 1
        if self._of_topic[topic] == 1:
            self._watched(topic, True)
        return client

    def add(self, client: LiteClient, queue: str) -> bool:
        """Whether that is new."""
        if queue in client.queues:
            return False
        client.queues[queue] = None
        self._by_queue.setdefault(queue, {})[client.key] = client
        self.count += 1
        return True

    def remove(self, client: LiteClient, queue: str) -> bool:
        """Whether the client had it."""
        if queue not in client.queues:
            return False
        del client.queues[queue]
        self.count -= 1
        left = self._by_queue[queue]
        del left[client.key]
        if not left:
            del self._by_queue[queue]
        return True

    def leave(self, client: LiteClient) -> None:
        if self.clients.get(client.key) is not client:
            return
        for queue in list(client.queues):
            self.remove(client, queue)
        del self.clients[client.key]
        _drop(self._of_group, client.key.group, client.key)
        if client.wants_all:
            _drop(self._wanting_all, client.topic, client.key)
            self.count -= 1
        self._of_topic[client.topic] -= 1
        if not self._of_topic[client.topic]:
            del self._of_topic[client.topic]
            self._watched(client.topic, False)

    def of_topic(self, topic: str) -> list[LiteClient]:
        return [client for client in self.clients.values() if client.topic == topic] if topic in self._of_topic else []

    def clear(self) -> None:
        for client in list(self.clients.values()):
            self.leave(client)

    def who(self, queue: str, group: str = "") -> Iterator[LiteClient]:
        """Clients that want that lite topic, of that group or of all."""
        everybody = self._wanting_all.get(lite_parts(queue)[0], {}) if self._wanting_all else {}
        for some in (self._by_queue.get(queue, {}), everybody):
            for client in some.values():
                if not group or client.key.group == group:
                    yield client

    def heard(self, queue: str, group: str = "") -> dict[str, list[LiteClient]]:
        """The lite topic may have something: those who want it, by group; the one whose turn it is first."""
        found: dict[str, list[LiteClient]] = {}
        for client in self.who(queue, group):
            client.events.note(queue)
            found.setdefault(client.key.group, []).append(client)
        return found

    def had_turn(self, client: LiteClient, queue: str) -> None:
        """The others come first next time."""
        for some in (self._by_queue.get(queue, {}), self._wanting_all.get(client.topic, {})):
            if client.key in some:
                some[client.key] = some.pop(client.key)

    def silent(self, since_s: float) -> list[LiteClient]:
        """Clients that were not heard of since then."""
        return [client for client in self.clients.values() if client.heard_s < since_s]


def _drop(table: dict[str, dict[ClientKey, LiteClient]], name: str, key: ClientKey) -> None:
    del table[name][key]
    if not table[name]:
        del table[name]


class Openings:
    """When a group may have more of a light queue because the time of what it was given is over."""

    def __init__(self) -> None:
        self._slots: dict[int, set[tuple[str, str]]] = {}
        self._slot_of: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._slot_of)

    def put(self, group: str, queue: str, ms: int) -> None:
        """At that time, and no other; 0: never."""
        place = (group, queue)
        known = self._slot_of.pop(place, None)
        if known is not None:
            self._slots[known].discard(place)
            if not self._slots[known]:
                del self._slots[known]
        if ms:
            slot = self._slot_of[place] = ms // SLOT_MS + 1
            self._slots.setdefault(slot, set()).add(place)

    def due(self, now_ms: int) -> list[tuple[str, str]]:
        """Those whose time has come, which it forgets."""
        over: Iterable[int] = sorted(slot for slot in self._slots if slot * SLOT_MS <= now_ms)
        found = [place for slot in over for place in self._slots.pop(slot)]
        for place in found:
            del self._slot_of[place]
        return found

    def clear(self) -> None:
        self._slots.clear()
        self._slot_of.clear()
