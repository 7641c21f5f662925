"""Lookups of single messages, and the index of their keys."""

from rmq.broker.feature import At, Feature, Job
from rmq.broker.handlers.query import QueryHandlers
from rmq.broker.shared.indexer import Indexer
from rmq.broker.shared.ports import CheckTopic, Reader
from rmq.clock import Clock
from rmq.log.index.index import Index


class Lookups(Feature):
    """`index` None: this broker keeps no index. `check_topic`: as of `Guard`."""

    def __init__(self, reader: Reader, index: Index | None, check_topic: CheckTopic, clock: Clock) -> None:
        self._indexer = None if index is None else Indexer(index, reader.committed, clock)
        self.handlers = QueryHandlers(reader, index, self._indexer, check_topic).by_request()
        if self._indexer is not None:
            indexer = self._indexer
            self.jobs = (Job(lambda: indexer.pause_s, "index", indexer.work, At.WRITABLE),)

    def stopping(self) -> None:
        if self._indexer is not None:
            self._indexer.stop()
