"""Sending."""

from collections.abc import Awaitable, Callable

from rmq.broker.catalog import Catalog
from rmq.broker.feature import Feature
from rmq.broker.handlers.send import SendHandler
from rmq.broker.held.intake import Placed
from rmq.broker.ports import Writer
from rmq.config.settings import NodeSettings
from rmq.net.commands import DraftedSend, Send, SendAnswer


class Sending(Feature):
    """For the arguments see `SendHandler`."""

    def __init__(
        self,
        settings: NodeSettings,
        writer: Writer,
        catalog: Catalog,
        all_known: Callable[[], Awaitable[None]],
        take: Callable[[bytes, int, int], Placed | None],
        given_up: Callable[[Send], Awaitable[SendAnswer] | None],
    ) -> None:
        handler = SendHandler(settings, writer, catalog.topic, catalog.ensure_topic, all_known, take, given_up)
        self.handlers = {Send: handler.send, DraftedSend: handler.drafted}
