"""Asks the other nodes who leads, for a node of an elected group that takes no part in it yet."""

import asyncio
from collections.abc import Mapping
from typing import cast

from rmq import background
from rmq.errors import RmqError, Unknown
from rmq.net.codec.native import VERSION
from rmq.net.commands import Hello
from rmq.net.commands.peers import GetGroupStatus, GroupStatus
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer

AGAIN_S, LOOK_S = 0.1, 0.5  # between two questions: while no leader is known, and to hear of another one
ANSWER_S = 1.0


class Finder:
    """`others`: node -> "host:port". `leader`: where the leader is, "" if nobody says. `await stop()`."""

    def __init__(self, others: Mapping[str, str], dialer: Dialer) -> None:
        self.leader = ""
        self._others = others
        self._dialer = dialer
        self._channels: dict[str, Channel] = {}
        self._asking = background.start(self._run(), "who leads")

    async def stop(self) -> None:
        self._asking.cancel()
        await asyncio.gather(self._asking, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def _run(self) -> None:
        while True:
            said = [one for one in await asyncio.gather(*map(self._ask, self._others)) if one is not None and one.leader]
            self.leader = self._others.get(max(said, key=lambda one: one.epoch).leader, "") if said else ""
            await self._dialer.clock.sleep(LOOK_S if self.leader else AGAIN_S)

    async def _ask(self, node: str) -> GroupStatus | None:
        channel = self._channels.get(node)
        try:
            if channel is None or channel.closed.is_set():
                hello = Hello(VERSION, "who leads")
                channel = self._channels[node] = await self._dialer.open(self._others[node], hello, timeout_s=ANSWER_S)
            return cast(GroupStatus, await channel.request(GetGroupStatus(), ANSWER_S))
        except RmqError as error:
            if isinstance(error, Unknown) and channel is not None:  # a link that swallows requests looks open for ever
                channel.abort("no answer in time")
            return None
