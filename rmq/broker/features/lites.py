"""Lite topics: who wants which, pops of any of them, what tools ask, and their end when nobody writes to them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from rmq.broker.feature import Feature, Job
from rmq.broker.handlers.liteadmin import LiteAdminHandlers
from rmq.broker.handlers.lites import LiteHandlers
from rmq.broker.pending.lites import LiteEvents
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.stats import counted
from rmq.config.settings import NodeSettings
from rmq.delivery.groups import lite_rules
from rmq.errors import StoreError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.measures import Family, gauge
from rmq.model import LITE_EXPIRATION
from rmq.names import lite_parts
from rmq.net.commands.lites import LitePopAnswer, PopLite
from rmq.routing.kinds import has_lite_topics

log = logging.getLogger("rmq.lites")

OPEN_S = 0.25
EXPIRE_S = 10.0
MOST_AT_ONCE = 500  # lite topics that one record deletes
EndLights = Callable[[Mapping[str, int]], Awaitable[None]]


class Lites(Feature):
    """`end_lights(ends)`: see `Lights.end`."""

    def __init__(
        self,
        lites: LiteEvents,
        asked: LiteHandlers,
        admin: LiteAdminHandlers,
        end_lights: EndLights,
        reader: Reader,
        settings: NodeSettings,
    ) -> None:
        self._lites, self._asked, self._end_lights = lites, asked, end_lights
        self._reader, self._settings = reader, settings
        self._began_ms = lites.clock.wall_ms() - lites.clock.since_boot() * 1000
        self.handlers = {**asked.by_request(), **admin.by_request(), PopLite: counted(asked.pop, reader.stats, _handed_out)}
        self.jobs = (
            Job(OPEN_S, "lite topics", lites.opened),
            Job(EXPIRE_S, "lite subscriptions", self._expire),
            Job(lambda: self._settings.lite_expiry_interval_ms / 1000, "lite topics to delete", self.end_idle),
        )

    async def on_settings(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._asked.change_settings(settings)

    def _expire(self) -> None:
        self._lites.expire(self._settings.lite_subscription_timeout_ms / 1000)

    async def end_idle(self) -> None:
        """Deletes lite topics that nobody wrote to for as long as their topic says [LiteLifecycleManager]. Raises Refusal.

        For so long by the clock of the machine, too: a wall clock that jumps ahead makes nothing old (T1).
        """
        clock = self._lites.clock
        now_ms = min(clock.wall_ms(), int(self._began_ms + clock.since_boot() * 1000))
        names = list(self._reader.queues.lights())
        idle = await asyncio.to_thread(lambda: self._idle(self._long_lived(names, now_ms)))
        for first in range(0, len(idle), MOST_AT_ONCE):
            await self._end_lights(dict(idle[first : first + MOST_AT_ONCE]))

    def _long_lived(self, names: Sequence[str], now_ms: int) -> list[tuple[ConsumeQueue, int]]:
        """The lite topics that expire, and until when (ms) a message there keeps them. In any thread."""
        queues, topic = self._reader.queues, self._lites.catalog.topic
        found, since_ms = [], dict[str, int]()
        for name in names:
            parent = lite_parts(name)[0]
            if parent not in since_ms:
                config = topic(parent) if parent else None
                minutes = int(config.attributes.get(LITE_EXPIRATION, "-1")) if config and has_lite_topics(config) else -1
                since_ms[parent] = now_ms - max(minutes * 60_000, self._settings.lite_min_ttl_ms) if minutes > 0 else 0
            if since_ms[parent] and (queue := queues.find(name, 0)) is not None and queue.min < queue.max:
                found.append((queue, since_ms[parent]))
        return found

    def _idle(self, some: Sequence[tuple[ConsumeQueue, int]]) -> list[tuple[str, int]]:
        """In any thread. With the end of each; a queue whose last message cannot be read is left to those that mend it."""
        found = []
        for queue, since_ms in some:
            try:
                if self._reader.store_time(queue.entry(queue.max - 1).offset) < since_ms:
                    found.append((queue.topic, queue.max))
            except (StoreError, OSError) as error:
                log.info("lite topic %s is not looked at: %s", queue.topic, error)
        return found

    def led_metrics(self) -> Iterable[Family]:
        subscriptions = self._lites.subscriptions
        yield gauge("rmq_lite_clients", "clients that want lite topics", len(subscriptions.clients))
        yield gauge("rmq_lite_subscriptions", "pairs of a client and a lite topic that it wants", subscriptions.count)

    def on_topic_changed(self, topic: str) -> None:
        config = self._lites.catalog.topic(topic)
        if config is None or not has_lite_topics(config):
            self._lites.drop(self._lites.subscriptions.of_topic(topic))

    def on_group_changed(self, group: str) -> None:
        clients = self._lites.subscriptions.of_group(group)
        if not clients:
            return
        config = self._lites.catalog.group(group)
        rules = lite_rules(config) if config else None
        stay = [one for one in clients if rules and (one.topic, one.wants_all) == (rules.topic, rules.wildcard)]
        self._lites.drop(one for one in clients if one not in stay)
        self._lites.look_through(stay)

    def on_leadership_lost(self) -> None:
        self._lites.clear()

    def on_log_replaced(self) -> None:
        self._lites.clear()


def _handed_out(answer: LitePopAnswer) -> int:
    return answer.order_count_info.count(";") + 1
