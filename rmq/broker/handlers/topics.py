"""Topics: making, changing, deleting and listing them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from typing import Any

from rmq.broker.shared.catalog import Catalog
from rmq.codes import ResponseCode
from rmq.delivery.popping import pop_retry_topics
from rmq.errors import Refusal
from rmq.model import TopicConfig
from rmq.net.commands import DeleteTopic, GetAllTopicConfig, GetTopicConfig, TopicConfigs, TopicList, UpdateTopic, UpdateTopics
from rmq.net.commands.routes import GetBrokerSystemTopics
from rmq.net.transport.server import Call, Handler


class TopicHandlers:
    """`readers(topic)`: groups that have an offset there. `drop_pending(topics)` drops their commits that are not written yet.
    `told()`: until the nameservers know of all changes; so clients find a topic when its making is answered, as in RocketMQ
    [AdminBrokerProcessor.updateAndCreateTopic]."""

    def __init__(
        self,
        catalog: Catalog,
        readers: Callable[[str], Iterable[str]],
        drop_pending: Callable[[Set[str]], None],
        told: Callable[[], Awaitable[None]],
    ) -> None:
        self._catalog = catalog
        self._topics = catalog.topics
        self._readers = readers
        self._drop_pending = drop_pending
        self._told = told

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            UpdateTopic: self.update,
            UpdateTopics: self.update_all,
            DeleteTopic: self.delete,
            GetTopicConfig: self.topic,
            GetAllTopicConfig: self.all_topics,
            GetBrokerSystemTopics: self.system_topics,
        }

    async def update(self, request: UpdateTopic, _call: Call) -> None:
        await self._catalog.create(self._topics.plan_update(request))
        await self._told()

    async def update_all(self, request: UpdateTopics, _call: Call) -> None:
        """Raises Refusal for the first that may not be: then nothing is changed."""
        if len({topic.name for topic in request.topics}) < len(request.topics):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "a topic stands twice in the list")
        await self._catalog.change_all("topic", (self._topics.plan_update(_change(topic)) for topic in request.topics))
        if request.topics:
            await self._told()

    async def delete(self, request: DeleteTopic, _call: Call) -> None:
        """Deleting a topic that does not exist is no error, so that repeating helps."""
        if not self._topics.plan_delete(request.topic):
            return
        groups = self._readers(request.topic)
        back = [name for group in sorted(groups) for name in pop_retry_topics(group, request.topic)]
        names = [name for name in dict.fromkeys(back) if self._topics.decided(name)]
        names += [*self._topics.lites_of(request.topic), request.topic]  # last: many take several records, and a kill may come
        for name in names:
            self._topics.stage(name, None)
        self._drop_pending({*names})
        await self._catalog.commit([("topic", name, None) for name in names])
        await self._told()

    def system_topics(self, _request: GetBrokerSystemTopics, _call: Call) -> TopicList:
        """Those of the cluster's, the broker's and the reply topic's name, too [TopicConfigManager.init]."""
        return TopicList(sorted(config.name for config in self._topics.all() if self._topics.is_reserved(config.name)))

    def topic(self, request: GetTopicConfig, _call: Call) -> TopicConfig:
        return self._catalog.known_topic(request.topic)

    def all_topics(self, _request: GetAllTopicConfig, _call: Call) -> TopicConfigs:
        return TopicConfigs(list(self._topics.all()), self._topics.data_version)


def _change(topic: TopicConfig) -> UpdateTopic:
    attributes = ",".join(key if key.startswith("-") else f"{key}={value}" for key, value in topic.attributes.items())
    return UpdateTopic(
        topic.name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm,
        topic_filter_type=topic.filter_type,
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=attributes,
    )
