"""Looks at all consumer groups at intervals, so that Home can show at once which of them lag."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from rmq.client import Client
from rmq.client.admin import calls
from rmq.client.admin.calls import leading
from rmq.client.admin.topickinds import is_system_group
from rmq.clock import Clock
from rmq.dashboard.bounded import ask_all
from rmq.dashboard.lags import Group, groups_now
from rmq.dashboard.looks import broker_groups
from rmq.errors import RmqError

log = logging.getLogger("rmq.dashboard")
PERIOD_S = 15.0
_AT_A_TIME = 200  # groups in one round of requests


class Lags(NamedTuple):
    """`at_ms`: when groups were last looked at (Unix ms), 0 for never. `groups`: those that are behind, the furthest first.
    `silent`: broker groups that did not answer."""

    at_ms: int
    groups: list[Group]
    silent: list[str]


class Watch:
    """`lagging()` is what Home shows."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lags = Lags(0, [], [])

    def lagging(self) -> Lags:
        return self._lags

    async def keep_looking(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except RmqError as error:
                log.warning("the lag of groups is not known: %s", error)
            await self._clock.sleep(PERIOD_S)

    async def look(self) -> None:
        brokers = await broker_groups(self._client)
        configs, silent = await ask_all({group.name: calls.group_configs(self._client, leading(group)) for group in brokers})
        names = sorted({each.name for some in configs.values() for each in some if not is_system_group(each.name)})
        heard = [group for group in brokers if group.name in configs]
        found: list[Group] = []
        for begin in range(0, len(names), _AT_A_TIME):
            found += behind(await groups_now(self._client, names[begin : begin + _AT_A_TIME], heard))
        found.sort(key=lambda group: (-group.lag, group.name))
        self._lags = Lags(self._clock.wall_ms(), found, sorted(silent))


def behind(groups: Sequence[Group]) -> list[Group]:
    """Groups for which messages wait, without broadcast groups: only their members know how far they are."""
    return [group for group in groups if group.lag and not group.is_broadcast]
