"""Replies to those who asked."""

from rmq.broker.feature import Feature
from rmq.broker.handlers.replies import ReplyHandler
from rmq.net.commands.replies import SendReply


class Replies(Feature):
    def __init__(self, handler: ReplyHandler) -> None:
        self.handlers = {SendReply: handler.reply}
