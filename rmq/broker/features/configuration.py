"""Settings that change while the broker runs."""

from collections.abc import Awaitable, Callable

from rmq.broker.feature import Feature
from rmq.broker.handlers.configuration import ConfigurationHandlers
from rmq.clock import Clock
from rmq.config.live import LiveSettings
from rmq.config.settings import NodeSettings
from rmq.net.commands.configuration import UpdateBrokerConfig


class Configuration(Feature):
    """`apply`, `check`: as of `ConfigurationHandlers`."""

    def __init__(
        self, settings: NodeSettings, apply: Callable[[NodeSettings], Awaitable[None]], check: Callable[[], None], clock: Clock
    ) -> None:
        live = LiveSettings(settings, "config/live.conf")
        self.handlers = ConfigurationHandlers(live, apply, check, clock).by_request()
        self.states = {UpdateBrokerConfig: lambda asked: live.named(asked.text)}
