"""Tells once in the log that a topic may not be read: who consumes it would wait without a word."""

import logging

_log = logging.getLogger("rmq.client")


class Unreadable:
    """Of one consumer. A topic that may be read again is told anew when it is closed again."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def look(self, topic: str, may_be_read: bool) -> None:
        if may_be_read:
            self._told.discard(topic)
        elif topic not in self._told:
            self._told.add(topic)
            _log.warning("%s may not be read now at any of its brokers: see `rmq admin topicRoute -t %s`", topic, topic)
