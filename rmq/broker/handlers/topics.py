"""Topics and groups: making, changing, deleting and listing them.

Each change is planned by a pure table (a refusal or a new value), staged so that nobody takes the same decision twice,
written as a state line, and in force once committed.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmq.broker.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.delivery.groups import GroupTable
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.popping import pop_retry_topics
from rmq.errors import Refusal
from rmq.model import RETRY_PREFIX, GroupConfig, TopicConfig
from rmq.net.commands import (
    DeleteGroup,
    DeleteTopic,
    GetAllGroupConfig,
    GetAllTopicConfig,
    GetGroupConfig,
    GetTopicConfig,
    GroupConfigs,
    TopicConfigs,
    UpdateGroup,
    UpdateTopic,
)
from rmq.net.server import Call, Handler
from rmq.routing.topics import TopicTable, check_group_name


class TopicHandlers:
    """`commit(lines)` returns once the lines are committed and applied."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        commit: Callable[[list[Line]], Awaitable[None]],
        auto_group: bool,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._commit = commit
        self._auto_group = auto_group

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            UpdateTopic: self.update,
            DeleteTopic: self.delete,
            GetTopicConfig: self.topic,
            GetAllTopicConfig: self.all_topics,
            UpdateGroup: self.update_group,
            DeleteGroup: self.delete_group,
            GetGroupConfig: self.group,
            GetAllGroupConfig: self.all_groups,
        }

    # --- topics

    async def create(self, config: TopicConfig) -> None:
        """Make or change a topic. Two who ask for the same new topic at the same time wait for the same record."""
        self._topics.stage(config.name, config)
        await self._commit_or_unstage([("topic", config.name, list(config))])

    async def update(self, request: UpdateTopic, _call: Call) -> None:
        await self.create(self._topics.plan_update(request))

    async def delete(self, request: DeleteTopic, _call: Call) -> None:
        """Deleting what is not there is no error, so that repeating helps."""
        if not self._topics.plan_delete(request.topic):
            return
        groups = self._offsets.groups_of(request.topic)
        back = [name for group in sorted(groups) for name in pop_retry_topics(group, request.topic)]  # of what was popped there
        names = [request.topic, *(name for name in dict.fromkeys(back) if self._topics.decided(name))]
        for name in names:
            self._topics.stage(name, None)
            self._offsets.drop_pending(name)
        await self._commit_or_unstage([("topic", name, None) for name in names])

    async def _commit_or_unstage(self, lines: list[Line]) -> None:
        with undoing(lambda: self._unstage(lines)):
            await self._commit(lines)

    def _unstage(self, lines: list[Line]) -> None:
        for table, name, _ in lines:
            if table in ("topic", "group"):
                (self._topics if table == "topic" else self._groups).unstage(name)

    def topic(self, request: GetTopicConfig, _call: Call) -> TopicConfig:
        config = self._topics.get(request.topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic {request.topic} does not exist")
        return config

    def all_topics(self, _request: GetAllTopicConfig, _call: Call) -> TopicConfigs:
        return TopicConfigs(list(self._topics.all()), self._topics.data_version)

    # --- groups

    async def update_group(self, request: UpdateGroup, _call: Call) -> None:
        plan = self._groups.plan_update(request.config)
        self._groups.stage(plan.name, plan)
        await self._commit_or_unstage([("group", plan.name, list(plan))])

    async def delete_group(self, request: DeleteGroup, _call: Call) -> None:
        if not self._groups.plan_delete(request.group_name):
            return
        self._groups.stage(request.group_name, None)
        lines: list[Line] = [("group", request.group_name, None)]
        if request.clean_offset:
            lines += [("offset", key, None) for key in self._offsets.keys_of_group(request.group_name)]
        await self._commit_or_unstage(lines)

    def group(self, request: GetGroupConfig, _call: Call) -> GroupConfig:
        """Looking makes none: of one that its first consumer would make it tells how it would be (RocketMQ makes it)."""
        return self._group_or_may_be(request.group) or GroupConfig(request.group)

    def all_groups(self, _request: GetAllGroupConfig, _call: Call) -> GroupConfigs:
        return GroupConfigs(list(self._groups.all()), self._groups.data_version)

    def check_group(self, group: str) -> None:
        """Whether the group may consume. An unknown one may if it would be made on first use."""
        config = self._group_or_may_be(group)
        if config is not None and not config.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"consumer group {group} is switched off (consumeEnable)")

    def check_known(self, group: str) -> None:
        """The same where something is to be kept of it: it must be there, or on its way."""
        self.check_group(group)
        if self._groups.decided(group) is None:
            about = f"consumer group {group} does not exist: its consumers make it when they connect, or create it first"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, about)

    def _group_or_may_be(self, group: str) -> GroupConfig | None:
        config = self._groups.get(group)
        if config is None:
            if not self._auto_group:
                raise Refusal(
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {group} does not exist: create it first"
                )
            check_group_name(group)
        return config

    async def let_in(self, may_make: Callable[[], bool], group: str) -> None:
        """`ensure_group`; where nothing can be stored (a damaged log, a follower) a new group may read all the same."""
        if may_make():
            await self.ensure_group(group)
        else:
            self._group_or_may_be(group)

    async def ensure_group(self, group: str) -> None:
        """Group and its retry topic, made on first use if `autoCreateSubscriptionGroup` allows.

        A group that is switched off has members, too; only their pulls are refused.
        """
        lines: list[Line] = []
        retry, config = RETRY_PREFIX + group, self._group_or_may_be(group)
        if self._topics.is_leaving(retry):
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"topic {retry} is being deleted: try again in a moment")
        if config is None or config.retry_queue_nums > 0:
            self._topics.check_room(retry, ours=True)
        if config is None:  # or on its way only: who asks meanwhile waits for a line of their own
            config = self._groups.plan_update(self._groups.decided(group) or GroupConfig(group))
            self._groups.stage(group, config)
            lines.append(("group", group, list(config)))
        if self._topics.get(retry) is None and config.retry_queue_nums > 0:
            topic = TopicConfig(retry, config.retry_queue_nums, config.retry_queue_nums)
            self._topics.stage(retry, topic)
            lines.append(("topic", retry, list(topic)))
        if lines:
            await self._commit_or_unstage(lines)
