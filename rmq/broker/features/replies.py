"""Replies to those who asked."""

from collections.abc import Callable

from rmq.broker.feature import Feature
from rmq.broker.handlers.replies import ReplyHandler
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.shared.catalog import Catalog
from rmq.clock import Clock
from rmq.net.commands.replies import SendReply
from rmq.net.transport.server import Connection


class Replies(Feature):
    """For the arguments see `ReplyHandler`."""

    def __init__(
        self,
        catalog: Catalog,
        internal_producer: InternalProducer,
        clients: Callable[[str], list[Connection]],
        store_host: str,
        max_body_bytes: int,
        clock: Clock,
    ) -> None:
        self.handlers = {SendReply: ReplyHandler(catalog, internal_producer, clients, store_host, max_body_bytes, clock).reply}
