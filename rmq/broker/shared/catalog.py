"""Which topics and consumer groups there are. All features ask here, and only this file changes them.

Each change is planned by a pure table (a refusal or a new value), staged so that nobody takes the same decision twice,
written as a state line, and in force once committed.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from rmq.broker.shared.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.delivery.forbidden import ForbiddenTable
from rmq.delivery.groups import GroupTable
from rmq.errors import NotLeading, Refusal, RmqError, being_deleted, no_group, no_topic
from rmq.model import PERM_READ, PERM_WRITE, RETRY_PREFIX, UNIT_SUBSCRIBED, GroupConfig, TopicConfig
from rmq.routing.topics import TopicTable, check_group_name
from rmq.staged import StagedTable


class Catalog:
    """`write(lines)` returns once the lines are committed and applied. `auto_group`: a group is made on its first use.
    `may_make()`: whether anything can be stored here, now."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        write: Callable[[list[Line]], Awaitable[None]],
        auto_group: bool,
        may_make: Callable[[], bool],
        forbidden: ForbiddenTable,
    ) -> None:
        self.topics = topics
        self.groups = groups
        self.topic, self.group = topics.get, groups.get  # returns the topic's settings; None: it does not exist
        self.write = write
        self.auto_group = auto_group
        self._may_make = may_make
        self.forbidden = forbidden
        self._tables: dict[str, StagedTable[Any]] = {"topic": topics, "group": groups, "forbidden": forbidden}
        self.permission = PERM_READ | PERM_WRITE  # [brokerPermission]

    @property
    def state(self) -> tuple[int, int, bool]:
        """Another one whenever a check here may say something else."""
        changes = self.topics.changes + self.groups.changes + self.forbidden.changes
        return changes, self.permission, self.auto_group

    # --- topics

    def known_topic(self, topic: str) -> TopicConfig:
        """The topic's settings. Raises Refusal TOPIC_NOT_EXIST; while its deletion may still come to nothing SYSTEM_BUSY, since a
        consumer whose topic is gone begins anew."""
        config = self.topic(topic)
        if config is None:
            if self.topics.is_leaving(topic):
                raise being_deleted(f"topic {topic}")
            raise no_topic(topic)
        return config

    def readable_topic(self, group: str, topic: str) -> TopicConfig:
        """The settings of a topic that the group may read. Raises Refusal."""
        config = self.known_topic(topic)
        self.forbidden.check(group, topic)
        if not config.perm & self.permission & PERM_READ:
            whose = f"topic {topic} (perm {config.perm})" if self.permission & PERM_READ else "this broker (brokerPermission)"
            raise Refusal(ResponseCode.NO_PERMISSION, f"{whose} may not be read")
        return config

    async def create(self, config: TopicConfig) -> None:
        """Make or change a topic. Two requests for the same new topic at the same time wait for the same record."""
        self.topics.stage(config.name, config)
        await self.commit([("topic", config.name, list(config))])

    async def ensure_topic(
        self, topic: str, template: str = "", queue_nums: int = 1, may_make: bool = False, unit_mode: bool = False
    ) -> TopicConfig:
        """The topic's settings. Makes a missing one after the template if `may_make`, a group's always. `unit_mode`: for a unit.
        Raises Refusal."""
        config = self.topics.plan_auto_create(topic, template, queue_nums, may_make, unit_mode)
        if config is not self.topic(topic):
            await self.create(config)
        return config

    # --- groups

    def check_group(self, group: str) -> GroupConfig | None:
        """Whether the group may consume; None: it would be made on first use. Raises Refusal if it may not."""
        config = self.group_or_may_be(group)
        if config is not None and not config.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"consumer group {group} is switched off (consumeEnable)")
        return config

    def check_known_group(self, group: str) -> None:
        """For a request that stores something for the group: it must exist, or be on its way. If it is switched off, its members
        have what they were handed before."""
        self.group_or_may_be(group)
        if self.groups.decided(group) is None and not self.groups.is_light(group):
            about = ": a consumer that connects makes it, unless this broker cannot store now (`rmq health` tells why)"
            raise no_group(group, f"{about}; or create it first")

    def group_or_may_be(self, group: str) -> GroupConfig | None:
        """None: it would be made on first use. Raises Refusal if it would not."""
        config = self.group(group)
        if config is None:
            if not self.auto_group:
                raise no_group(group, ": create it first")
            check_group_name(group)
        return config

    async def let_in(self, group: str, unit_mode: bool = False) -> None:
        """`ensure_group`; where nothing can be stored (damaged log, follower, full disk) a new group may read all the same."""
        if not self._may_make():
            self.group_or_may_be(group)
            return
        try:
            await self.ensure_group(group, unit_mode)
        except Refusal as refusal:
            if isinstance(refusal, NotLeading) or refusal.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                raise

    async def ensure_group(self, group: str, unit_mode: bool = False) -> None:
        """Group and its retry topic, made on first use if `autoCreateSubscriptionGroup` allows. `unit_mode`: by a unit.

        A group that is switched off has members, too; only what hands out messages is refused.
        """
        if self.groups.is_light(group):
            return
        lines: list[Line] = []
        retry, config = RETRY_PREFIX + group, self.group_or_may_be(group)
        if self.topics.is_leaving(retry):
            raise being_deleted(f"topic {retry}")
        if config is None or config.retry_queue_nums > 0:
            self.topics.check_room(retry, ours=True)
        if config is None:  # or on its way only: whoever asks meanwhile waits for a line of their own
            config = self.groups.plan_update(self.groups.decided(group) or GroupConfig(group))
            self.groups.stage(group, config)
            lines.append(("group", group, list(config)))
        if self.topic(retry) is None and config.retry_queue_nums > 0:
            flag = UNIT_SUBSCRIBED if unit_mode else 0
            topic = TopicConfig(retry, config.retry_queue_nums, config.retry_queue_nums, sys_flag=flag)
            self.topics.stage(retry, topic)
            lines.append(("topic", retry, list(topic)))
        if lines:
            await self.commit(lines)

    async def change_all(self, table: str, plans: Iterable[TopicConfig | GroupConfig]) -> None:
        """Makes or changes topics, or groups, all of them or none. Each plan is made when those before it are staged: together
        they stay within the limits. Raises Refusal."""
        lines: list[Line] = []
        try:
            for plan in plans:
                self._tables[table].stage(plan.name, plan)
                lines.append((table, plan.name, list(plan)))
        except RmqError:
            self._unstage(lines)
            raise
        if lines:
            await self.commit(lines)

    async def commit(self, lines: list[Line]) -> None:
        """Writes the lines of changes that are staged."""
        with undoing(lambda: self._unstage(lines)):
            await self.write(lines)

    def _unstage(self, lines: list[Line]) -> None:
        for table, name, _ in lines:
            if table in self._tables:
                self._tables[table].unstage(name)
