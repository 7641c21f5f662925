"""Consumer groups: making, changing, deleting and listing them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.state import Line
from rmq.codes import ResponseCode
from rmq.delivery.offsets import OffsetKey
from rmq.delivery.pairs import name_of
from rmq.errors import Refusal, no_group
from rmq.model import GroupConfig
from rmq.net.commands import (
    DeleteGroup,
    Forbidden,
    GetAllGroupConfig,
    GetGroupConfig,
    GroupConfigs,
    UpdateForbidden,
    UpdateGroup,
    UpdateGroups,
)
from rmq.net.transport.server import Call, Handler


class ConsumerGroupHandlers:
    """`end_offsets(group)`: the keys of its offsets, which go now (`OffsetTable.end_group`)."""

    def __init__(self, catalog: Catalog, end_offsets: Callable[[str], Iterable[OffsetKey]]) -> None:
        self._catalog = catalog
        self._groups = catalog.groups
        self._end_offsets = end_offsets

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            UpdateGroup: self.update,
            UpdateGroups: self.update_all,
            DeleteGroup: self.delete,
            GetGroupConfig: self.group,
            GetAllGroupConfig: self.all_groups,
            UpdateForbidden: self.forbid,
        }

    async def update(self, request: UpdateGroup, _call: Call) -> None:
        plan = self._groups.plan_update(request.config)
        self._groups.stage(plan.name, plan)
        await self._catalog.commit([("group", plan.name, list(plan))])

    async def update_all(self, request: UpdateGroups, _call: Call) -> None:
        """Raises Refusal for the first that may not be: then nothing is changed."""
        if len({group.name for group in request.groups}) < len(request.groups):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "a group stands twice in the list")
        await self._catalog.change_all("group", map(self._groups.plan_update, request.groups))

    async def delete(self, request: DeleteGroup, _call: Call) -> None:
        """Offsets of a group that was deleted without them go, too."""
        there = self._groups.plan_delete(request.group_name)
        if there:
            self._groups.stage(request.group_name, None)
        keys = self._end_offsets(request.group_name) if request.clean_offset else ()
        lines: list[Line] = [("offset", key, None) for key in keys]  # first: many take several records, and a kill may come
        if there:
            lines.append(("group", request.group_name, None))
        if lines:
            await self._catalog.commit(lines)

    def group(self, request: GetGroupConfig, _call: Call) -> GroupConfig:
        """A lookup makes no group: for one that its first consumer would make it answers how it would be (RocketMQ makes it)."""
        return self._catalog.group_or_may_be(request.group) or GroupConfig(request.group)

    def all_groups(self, _request: GetAllGroupConfig, _call: Call) -> GroupConfigs:
        return GroupConfigs(list(self._groups.all()), self._groups.data_version, self._catalog.forbidden.by_group())

    async def forbid(self, request: UpdateForbidden, _call: Call) -> Forbidden:
        """[AdminBrokerProcessor.updateAndGetGroupForbidden]"""
        group, topic, table = request.group, request.topic, self._catalog.forbidden
        if request.readable:
            self._catalog.known_topic(topic)
            if self._catalog.group(group) is None:
                raise no_group(group)
            name, bits = name_of(topic, group), table.plan(group, topic, request.readable.lower() == "true")
            if bits != table.decided(name):
                table.stage(name, bits)
                await self._catalog.commit([("forbidden", name, bits)])
        return Forbidden(topic, group, table.may_read(group, topic))
