"""Topics that keep the newest message of each key."""

from collections.abc import Iterable

from rmq.broker.feature import At, Feature, Job
from rmq.broker.pending.compaction import RUN_S, Compaction
from rmq.measures import Family, counter


class CompactedTopics(Feature):
    carries = At.WRITABLE

    def __init__(self, compaction: Compaction) -> None:
        self._compaction = compaction
        self.jobs = (Job(RUN_S, "compaction", compaction.work, At.WRITABLE),)

    async def carry_forward(self, below: int) -> None:
        self._compaction.want(below)

    def on_log_replaced(self) -> None:
        self._compaction.reset()

    def metrics(self) -> Iterable[Family]:
        about = "messages of compacted topics that this node appended again, the newest of their key, before their file goes"
        yield counter("rmq_compaction_carried_total", about, self._compaction.carried)
