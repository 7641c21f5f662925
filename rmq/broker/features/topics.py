"""Topics, and the system topics that every broker has."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Set

from rmq.broker.feature import Export, Feature
from rmq.broker.handlers.topics import TopicHandlers
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.state import Line
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.measures import Family, gauge
from rmq.model import TEMPLATE_TOPIC
from rmq.routing.topics import system_topics, topics_json

log = logging.getLogger("rmq.topics")


class Topics(Feature):
    """`readers`, `drop_pending`, `told`: as of `TopicHandlers`. `check_leads()` raises Refusal if this node may not change tables
    now."""

    def __init__(
        self,
        settings: NodeSettings,
        catalog: Catalog,
        readers: Callable[[str], Iterable[str]],
        drop_pending: Callable[[Set[str]], None],
        check_leads: Callable[[], None],
        told: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._check_leads = check_leads
        self._making: asyncio.Task[None] | None = None
        self.handlers = TopicHandlers(catalog, readers, drop_pending, told).by_request()
        topics = catalog.topics
        self.exports = {"topics.json": Export(lambda: topics_json(topics), lambda: (topics.changes, topics.data_version))}

    async def on_settings(self, settings: NodeSettings) -> None:
        """New topics have as many queues as the template says; only the leader changes that. Raises Refusal."""
        before, self._settings = self._settings, settings
        self._catalog.permission = settings.permission
        template = self._catalog.topic(TEMPLATE_TOPIC)
        count = settings.default_topic_queue_nums
        if before.default_topic_queue_nums == count or template is None or not self._leads():
            return
        try:
            await self._catalog.create(template._replace(read_queue_nums=count, write_queue_nums=count))
        except Refusal as refusal:
            self._settings = before  # who sets it again means it
            about = f"kept and in force, but for defaultTopicQueueNums: {refusal.remark}; set it again"
            raise Refusal(refusal.code, about) from None

    def _leads(self) -> bool:
        try:
            self._check_leads()
        except Refusal:
            return False
        return True

    def metrics(self) -> Iterable[Family]:
        yield gauge("rocketmq_topic_number", "topics, the broker's own included", self._catalog.topics.count)

    def on_leader_ready(self) -> None:
        """Makes the topics that every group needs, if they are missing."""
        self._making = asyncio.create_task(self._make_system_topics(), name="system topics")
        self._making.add_done_callback(_tell_failure)

    async def begin(self) -> None:
        if self._making is not None:
            await self._making

    async def all_known(self) -> None:
        """A leader accepts sends before this is done. Raises Refusal if this node does not lead."""
        self._check_leads()
        if self._making is not None:
            await asyncio.wait([self._making])

    async def _make_system_topics(self) -> None:
        settings, topics = self._settings, self._catalog.topics
        wanted = system_topics(
            settings.cluster_name,
            settings.broker_name,
            auto_create=settings.auto_create_topic,
            template_queue_nums=settings.default_topic_queue_nums,
            trace_topic=settings.trace_topic_name if settings.trace_topic else "",
        )
        lines: list[Line] = [("topic", config.name, list(config)) for config in wanted if topics.get(config.name) is None]
        if lines:
            await self._catalog.write(lines)


def _tell_failure(task: "asyncio.Task[None]") -> None:
    """Making the system topics failed: leadership was lost again, and the next leader makes them."""
    if not task.cancelled() and task.exception() is not None:
        log.info("the system topics were not made: %s", task.exception())
