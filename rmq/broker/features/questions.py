"""Questions of tools to the members of groups."""

from rmq.broker.feature import Feature
from rmq.broker.handlers.questions import QuestionHandlers


class Questions(Feature):
    def __init__(self, handlers: QuestionHandlers) -> None:
        self.handlers = handlers.by_request()
