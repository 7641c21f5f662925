"""What a node does from time to time: it flushes, saves its progress, takes snapshots, and deletes old segments."""

from typing import TYPE_CHECKING

from rmq.errors import StoreError
from rmq.log.files.snapshot import QUEUES, SnapshotWriter

if TYPE_CHECKING:
    from tests.sim.node import Node

STATE = "kv"  # the one table of the simulation


class Saving:
    """The regular work of one run of a node. The member hears of each flush, and of retention."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._world = node.world
        self.flushing = self.taking = False  # a snapshot: one at a time, as the broker's job
        node.later(node.world.chance.uniform(0.2, 0.5), self.flush_by_time)
        node.later(node.world.chance.uniform(0.5, 2.0), self.save)

    def grew(self) -> None:
        if self._world.sync_flush and not self.flushing:
            self.flushing = True
            self._node.later(self._world.chance.expovariate(1 / 0.003), self.flush)

    def flush(self) -> None:
        """Flushes the log; the member hears of it some time later."""
        self._node.store.log.flush()
        self._node.store.log.prepare()
        self._node.later(self._world.chance.expovariate(1 / 0.003), self.flushed)

    def flushed(self) -> None:
        self.flushing = False
        self._node.member.flushed()
        if self._node.store.log.end > self._node.store.log.durable_end:
            self.grew()

    def flush_by_time(self) -> None:
        if not self.flushing:
            self.flushing = True
            self.flush()
        self._node.later(0.5, self.flush_by_time)

    def save(self) -> None:
        chance = self._world.chance
        self._node.store.save_progress()
        if self._world.retention and chance.random() < 0.5 and not self.taking:
            self.taking = True
            begun = self.begin_snapshot()
            self._node.later(chance.uniform(0.001, 0.3), lambda: self.snapshot(*begun))
        self._node.later(chance.uniform(0.5, 3.0), self.save)

    def begin_snapshot(self) -> tuple[SnapshotWriter, int]:
        """S0 is what the tables hold, as the broker's is: a follower dispatches later than it hears that all is committed."""
        return self._node.store.begin_snapshot(), self._node.applied

    def snapshot(self, writer: SnapshotWriter, s0: int) -> None:
        """Takes a snapshot; commits go on while its rows are read."""
        writer.add(STATE, list(self._node.tables.items()))
        for section, rows in self._node.holding.rows().items():
            writer.add(section, rows)
        writer.add(QUEUES, [(queue.topic, queue.queue_id, queue.max) for queue in self._node.store.queues.all()])
        self._node.later(self._world.chance.uniform(0.001, 0.1), lambda: self.publish(writer, s0))

    def publish(self, writer: SnapshotWriter, s0: int) -> None:
        self.taking = False
        state, store, log = self._node.core.state, self._node.store, self._node.store.log
        newest = store.snapshots.newest
        if not state.ready or (newest is not None and newest.s0 >= s0) or s0 < log.start:
            writer.abandon()
            return
        try:
            store.publish_snapshot(writer, s0, self._node.applied)
        except StoreError:  # another one was begun, or another node's came in its place
            writer.abandon()
            return
        self._world.judge.counts["snapshots"] += 1
        safe = min(self._node.applied, log.durable_end, store.snapshots.covered, self._node.holding.alive_from())
        old = [one.end for one in log.segments() if one.end <= safe]
        if old and self._world.chance.random() < 0.5 and self._world.disks_are_whole():
            for segment in store.cleaning.drop_before(self._world.chance.choice(old)):
                segment.withdraw()()
            self._world.judge.counts["segments dropped"] += 1
        self._node.member.retained()
