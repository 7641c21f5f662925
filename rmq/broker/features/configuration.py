"""Settings that change while the broker runs."""

from collections.abc import Awaitable, Callable

from rmq.broker.feature import Feature
from rmq.broker.handlers.configuration import ConfigurationHandlers
from rmq.clock import Clock
from rmq.config.live import LiveSettings
from rmq.config.settings import NodeSettings


class Configuration(Feature):
    """`apply`: as of `ConfigurationHandlers`."""

    def __init__(self, settings: NodeSettings, apply: Callable[[NodeSettings], Awaitable[None]], clock: Clock) -> None:
        self.handlers = ConfigurationHandlers(LiveSettings(settings, "config/live.conf"), apply, clock).by_request()
