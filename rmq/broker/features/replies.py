"""Replies to those who asked."""

from rmq.broker.feature import Feature
from rmq.broker.handlers.replies import ReplyHandler
from rmq.config.settings import NodeSettings
from rmq.net.commands.replies import SendReply


class Replies(Feature):
    def __init__(self, handler: ReplyHandler) -> None:
        self._handler = handler
        self.handlers = {SendReply: handler.reply}

    async def on_settings(self, settings: NodeSettings) -> None:
        self._handler.auto_create = settings.auto_create_topic
