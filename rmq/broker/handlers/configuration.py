"""Live settings of a broker: told, and changed at once [AdminBrokerProcessor.updateBrokerConfig]."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config.live import LiveSettings
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal
from rmq.net.commands.configuration import ConfigChanged, ConfigText, GetBrokerConfig, UpdateBrokerConfig
from rmq.net.transport.server import LATER, Call, Handler, Later


class ConfigurationHandlers:
    """`apply(settings)` tells all parts of the broker. `check()` raises OSError where the store may not be written to."""

    def __init__(
        self, live: LiveSettings, apply: Callable[[NodeSettings], Awaitable[None]], check: Callable[[], None], clock: Clock
    ) -> None:
        self._live = live
        self._apply = apply
        self._check = check
        self._clock = clock
        self._turn = asyncio.Lock()

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {GetBrokerConfig: self.show, UpdateBrokerConfig: self.update}

    def show(self, _request: GetBrokerConfig, _call: Call) -> ConfigText:
        return ConfigText(self._live.text(), self._live.version)

    async def update(self, request: UpdateBrokerConfig, call: Call) -> Later:
        """Keeps the change and puts it in force, or neither. Raises Refusal, also for a part that could not be put in force."""
        async with self._turn:
            change = self._live.plan(request.text)
            try:
                self._check()
                await asyncio.to_thread(self._live.save, change)
            except OSError as error:
                raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"it cannot be kept, so nothing is changed: {error}") from error
            self._live.apply(change, self._clock.wall_ms())
            await self._apply(change.settings)
        call.answer(ConfigChanged(change.about), change.about)
        return LATER
