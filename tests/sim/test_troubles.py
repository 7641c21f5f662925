"""Troubles that RocketMQ and DLedger had with groups of brokers, played with ours: real logs on disks that forget."""

import msgpack

from rmq.log.files import ownfiles
from rmq.log.records.record import decode
from rmq.model import STATE_TOPIC
from tests.sim.node import ROOT, Node
from tests.sim.stage import Stage

OWN = f"{ROOT}/rmq"


def test_elected_node_behind_its_peers_truncates_them() -> None:
    """A node that lacks what a majority has is not elected, however early it stands, so no node is cut to its length (R4, R9)."""
    stage = Stage()
    stage.write(5)
    stage.settle()
    old, behind = stage.leader, stage.others[0]
    stage.isolate(behind)
    stage.write(20)
    stage.pass_time(1.0)
    committed = old.core.state.hw
    stage.kill(old)
    stage.mend()
    stage.until(lambda: stage.leading() is not None)
    assert stage.leader not in (old, behind)
    assert stage.leader.core.state.log_start == 0
    assert stage.leader.core.state.end >= committed
    stage.end()
    assert stage.judge.counts["cuts"] == 0


def test_recovery_rebuilds_only_the_last_file() -> None:
    """All queues are made anew from all of the log, over many files of it, at a follower and at the leader."""
    stage = Stage()
    for _ in range(6):
        stage.write(40, size=200)
        stage.settle()
    expected = stage.leader.store.queues.get("T", 0).max
    assert len(stage.leader.store.log.segments()) > 3
    for node in (stage.others[0], stage.leader):
        stage.kill(node)
        for path in node.disk.paths():
            if "/consumequeue/" in path or path.endswith(("/progress", "/queues")):
                node.disk.unlink(path)
        node.boot()
        stage.settle()
        assert entries(node) == expected
    stage.end()


def test_consume_queue_tail_lost() -> None:
    """Power is lost after the log was flushed and before the queues were: what is committed is in the queues again (D10)."""
    stage = Stage()
    stage.write(40)
    stage.settle()
    for node in list(stage.nodes.values()):
        node.store.save_progress()
    stage.write(40)
    stage.settle()
    expected = stage.leader.store.queues.get("T", 0).max
    for node in list(stage.nodes.values()):
        node.store.log.flush()
    for node in list(stage.nodes.values()):
        stage.lose_power(node)
    for node in stage.nodes.values():
        node.boot()
    stage.settle()
    assert {entries(node) for node in stage.nodes.values()} == {expected}
    stage.end()


def entries(node: Node) -> int:
    """Returns the entries of queue 0 of T, and checks that each leads to the record that names it."""
    queue = node.store.queues.get("T", 0)
    for number in range(queue.max):
        entry = queue.entry(number)
        assert decode(node.store.log.read(entry.offset, entry.size)).queue_offset == number
    return queue.max


def test_rejoins_after_isolation() -> None:
    """In DLedger a follower could not come back. Here it becomes equal, whatever it holds."""
    stage = Stage("abcde")
    for round_number in range(4):
        one, two = stage.others[:2]
        stage.isolate(one, two)
        stage.write(10 + round_number)
        stage.pass_time(4.0)
        stage.mend()
        stage.settle()
    assert stage.leader.core.state.epoch == 1
    stage.end()


def test_offsets_back_to_zero_after_restart_or_change_of_role() -> None:
    """Consumers' offsets are in the log, so every node knows them, before and after a restart, and whichever node leads."""
    stage = Stage()
    for offset in (10, 20, 30):
        tell(stage, offset)
        stage.settle()
        stage.kill(stage.leader)
        stage.until(lambda: stage.leading() is not None)
        assert stage.leader.tables["g"] == offset
        for node in stage.nodes.values():
            if not node.up:
                node.boot()
        stage.settle()
        assert {node.tables["g"] for node in stage.nodes.values()} == {offset}
    stage.end()


def tell(stage: Stage, offset: int) -> None:
    """Writes one state line, as for an offset."""
    leader = stage.leader
    leader.do(lambda: leader.produce([(-1, STATE_TOPIC, 0, msgpack.packb([("kv", "g", offset)]))]))


def test_offsets_behind_the_cut_are_never_committed() -> None:
    """In DLedger a committed offset was beyond the end after a cut. Here HW <= end always holds, on the disk, too."""
    stage = Stage()
    stage.write(10)
    stage.settle()
    old = stage.leader
    stage.isolate(old)
    stage.write(30, node=old)
    old.store.save_progress()
    stage.until(lambda: stage.leader is not old)
    stage.mend()
    stage.settle()
    old.store.save_progress()
    stage.kill(old)
    progress = ownfiles.load_progress(old.disk, OWN)
    assert progress is not None
    assert progress.hw <= progress.log <= old.store.log.end
    old.boot()
    stage.end()
