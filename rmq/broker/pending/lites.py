"""Lite topics at the leader: which clients want which, who hears of what, and what is closed until when [LiteEventDispatcher].

All of it is in memory: clients declare again what they want, and what was handed out is in the table of ordered pops.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rmq.broker.pending.ordered import OrderedPopReader
from rmq.broker.pending.popwaits import PopWaits
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.longpoll import Bell
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.due import STEP_MS
from rmq.delivery.groups import LiteRules, lite_rules
from rmq.delivery.lites import LiteClient, LiteSubscriptions, Openings
from rmq.errors import Refusal, no_group
from rmq.model import LITE_PREFIX, TopicConfig
from rmq.names import lite_family
from rmq.routing.kinds import has_lite_topics

SLICE: Final = 250  # lite topics that are looked at before others are served
_FOREVER_MS: Final = 1 << 62
WAITING: Final = -2  # the "queue" of pops that wait for any lite topic of their client


class LiteEvents:
    """`watch(topic, bell)`: as of `LongPolls.watch_lites`."""

    def __init__(
        self,
        catalog: Catalog,
        ordered: OrderedPopReader,
        waits: PopWaits,
        watch: Callable[[str, Bell | None], None],
        clock: Clock,
    ) -> None:
        self.catalog = catalog
        self.ordered = ordered
        self.waits = waits
        self.clock = clock
        self._watch = watch
        self.subscriptions = LiteSubscriptions(self._watched)
        self.openings = Openings()
        self._looked_ms = 0  # at the openings
        ordered.told.append(self.told)

    def bound(self, group: str, topic: str) -> LiteRules:
        """The rules of a group that is bound to that topic of type LITE. Raises Refusal, which says what is missing."""
        self.parent(topic)
        config = self.catalog.group(group)
        if config is None and not self.catalog.auto_group:
            raise no_group(group, f": make it, with the attribute +lite.bind.topic={topic}")
        rules = lite_rules(config) if config else None  # one that its first use would make is bound to nothing
        if rules is None or rules.topic != topic:
            raise _invalid(f"group {group} is not bound to topic {topic}: set its attribute +lite.bind.topic={topic}")
        return rules

    def parent(self, topic: str) -> TopicConfig:
        """That topic, of type LITE. Raises Refusal."""
        config = self.catalog.known_topic(topic)
        if not has_lite_topics(config):
            raise _invalid(f"topic {topic} has no lite topics: its message.type is not LITE")
        return config

    def _watched(self, topic: str, on: bool) -> None:
        self._watch(topic, self._rung if on else None)

    def _rung(self, queue: str, _queue_id: int, _codes: Iterable[int] | None) -> None:
        """A message was committed there."""
        self.heard(queue)

    def heard(self, queue: str, group: str = "") -> None:
        """The lite topic may have something: one client of each group, or of that one, looks."""
        for clients in self.subscriptions.heard(queue, group).values():
            for client in clients:
                if self.wake(client):
                    self.subscriptions.had_turn(client, queue)
                    break

    def told(self, place: tuple[str, str, int], opens_ms: int) -> None:
        """See `OrderedPopReader`."""
        group, queue, _ = place
        if not queue.startswith(LITE_PREFIX):
            return
        self.openings.put(group, queue, opens_ms and self.ordered.opens_ms(place, self.clock.wall_ms()))
        if not opens_ms and self.ordered.reader.has_more(*place):
            self.heard(queue, group)

    def opened(self) -> None:
        """Messages whose time is over come again. Where the clock was set back, all are looked at once more."""
        now_ms = self.clock.wall_ms()
        was_set_back, self._looked_ms = now_ms < self._looked_ms - STEP_MS, now_ms
        for group, queue in self.openings.due(_FOREVER_MS if was_set_back else now_ms):
            self.heard(queue, group)

    def look_through(self, clients: Iterable[LiteClient]) -> None:
        """They look for everything that they may have missed."""
        for client in clients:
            client.events.missed = True
            self.wake(client)

    def expire(self, timeout_s: float) -> None:
        """Clients that have not been heard of for long are gone."""
        for client in self.subscriptions.silent(self.clock.monotonic() - timeout_s):
            self.leave(client)

    def leave(self, client: LiteClient) -> None:
        self.subscriptions.leave(client)
        self.waits.wake_all_at(place_of(client))

    def drop(self, clients: Iterable[LiteClient]) -> None:
        """Their topic or group is gone, or another one now."""
        for client in list(clients):
            self.leave(client)

    def clear(self) -> None:
        """This node leads no more."""
        self.subscriptions.clear()
        self.openings.clear()

    def wake(self, client: LiteClient) -> bool:
        return self.waits.wake(place_of(client))

    async def next_of(self, client: LiteClient) -> str | None:
        """The next light queue that may have something for the client; beyond what it was told of it looks for itself."""
        if (queue := client.events.next()) is None and client.events.missed:
            await self._look_for_all(client)
            queue = client.events.next()
        return queue

    async def _look_for_all(self, client: LiteClient) -> None:
        """Looks through all that the client wants for what it was not told of."""
        client.events.missed, now_ms = False, self.clock.wall_ms()
        for number, queue in enumerate(self.wanted_by(client)):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            place = (client.key.group, queue, 0)
            if self.ordered.may_have(place, "", now_ms):
                client.events.note(queue)
                if client.events.missed:
                    return
            else:
                self.closed(place, now_ms)

    def closed(self, place: tuple[str, str, int], now_ms: int) -> None:
        """The group may not have more there now: somebody else has it, or just takes it. It hears when that is over."""
        if self.ordered.reader.has_more(*place):
            self.openings.put(*place[:2], max(self.ordered.opens_ms(place, now_ms), now_ms))

    def wanted_by(self, client: LiteClient) -> Sequence[str]:
        """The light queues of a client's lite topics; of one that wants all, those that there are."""
        return self.there_are(client.topic) if client.wants_all else list(client.queues)

    def there_are(self, topic: str) -> list[str]:
        """The light queues of all lite topics of that topic."""
        family = lite_family(topic)
        return [name for name in self.ordered.reader.reader.queues.lights() if name.startswith(family)]


def place_of(client: LiteClient) -> tuple[str, str, int]:
    return (*client.key, WAITING)


def _invalid(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)
