"""Dangers of replication as stories on real logs: members, stores and disks that forget. Numbers: docs/invariants."""

import pytest

from rmq.log.files import ownfiles
from rmq.log.files.segment import FILLER
from rmq.raft import events as ev, messages as m
from rmq.raft.roles import Leader
from tests.sim.judge import raw
from tests.sim.node import ROOT, Disk
from tests.sim.stage import Stage

OWN = f"{ROOT}/rmq"


def test_stale_equal_size_record_behind_cut_is_zero() -> None:
    """Story 1: the old leader's record would fit exactly behind the new one's; after power loss it must not be found."""
    stage = Stage(sync_flush=True)
    stage.write(3)
    stage.settle()
    old = stage.leader
    stage.isolate(old)
    stage.write(4, node=old)
    stage.until(lambda: stage.leader is not old and not old.core.leads())
    old.store.log.flush()
    stage.mend()
    stage.until(lambda: old.core.state.end == stage.leader.core.state.end)
    end = old.store.log.end
    last = old.store.log.segments()[-1]
    assert not last.read(end, last.end - end).strip(b"\0")
    stage.lose_power(old)
    old.boot()
    assert old.store.recovered.cut_bytes == 0
    stage.end()


def test_crash_after_filler_before_record() -> None:
    """Story 5: a filler with nothing behind it is not part of the log; the next record begins there."""
    stage = Stage("a", sync_flush=True)
    node = stage["a"]
    while node.store.log.end % 8192 < 7000:
        stage.write(size=300)
        stage.pass_time(0.1)
    end = node.store.log.end
    segment = node.store.log.segments()[-1]
    segment.write(end, FILLER.pack(segment.end - end, -875286124))
    segment.sync()
    stage.lose_power(node)
    node.boot()
    assert node.store.log.end == end
    stage.until(lambda: node.core.leads())
    assert node.store.log.end > end
    stage.end()


def test_epochs_file_lost_is_scanned() -> None:
    """Stories 9, 10: the log says by itself which epoch each byte is in."""
    stage = Stage()
    for _ in range(3):
        stage.write(40)
        stage.settle()
        stage.kill(stage.leader)
        stage.until(lambda: stage.leading() is not None)
        for node in stage.nodes.values():
            if not node.up:
                node.boot()
        stage.settle()
    node = stage["b"]
    history = node.core.state.epochs
    stage.kill(node)
    node.disk.unlink(f"{OWN}/epochs")
    node.disk.unlink(f"{OWN}/progress")
    node.boot()
    assert node.core.state.epochs == history
    assert len(history) == 4
    stage.end()


def test_vote_file_older_than_log() -> None:
    """Story 12: the node does not know whether it voted in the last epoch of its log, so it gives no vote in it."""
    stage = Stage()
    node = stage.others[0]
    stage.kill(node)
    vote = ownfiles.load_vote(node.disk, OWN)
    assert vote is not None
    ownfiles.save_vote(node.disk, OWN, vote._replace(epoch=0, voted_for="-"))
    stage.judge.forget_epochs()
    node.boot()
    assert node.core.state.epoch == stage.leader.core.state.epoch
    stage.end()


def test_power_loss_then_kill_stays_unproven() -> None:
    """Story 18, D3: the second, harmless stop must not hide the first."""
    stage = Stage()
    node = stage.others[0]
    stage.write(5)
    stage.settle()
    stage.isolate(node)
    stage.lose_power(node)
    node.boot()
    assert not node.core.state.proven
    stage.kill(node)
    node.boot()
    assert not node.core.state.proven
    stage.mend()
    stage.until(lambda: node.core.state.proven)
    stage.end()


def test_power_loss_under_sync_flush_stays_proven() -> None:
    """D1."""
    stage = Stage(sync_flush=True)
    stage.write(5)
    stage.settle()
    for node in list(stage.nodes.values()):
        stage.lose_power(node)
    for node in stage.nodes.values():
        node.boot()
        assert node.core.state.proven
    stage.settle()
    assert len(stage.judge.sent) == 5
    stage.end()


def test_all_lose_power_longest_log_wins() -> None:
    """Story 21: the group waits for everybody, and says that something may be gone."""
    stage = Stage()
    stage.write(20)
    stage.pass_time(1.0)
    stage.write(20)
    stage.settle()
    nodes = list(stage.nodes.values())
    for node in nodes:
        stage.lose_power(node)
    for node in nodes[:2]:
        node.boot()
    stage.pass_time(20.0)
    assert stage.leading() is None
    nodes[2].boot()
    longest = max(node.store.log.end for node in nodes)
    stage.until(lambda: stage.leading() is not None)
    assert stage.leader.core.state.epochs[-1].lossy
    assert stage.leader.core.state.epochs[-1].start == longest
    stage.end()


def test_flush_mode_changed_before_restart() -> None:
    """Story 25: the flush mode of the run that lost power counts, not that of the next run."""
    stage = Stage()
    node = stage.others[0]
    stage.write(5)
    stage.isolate(node)
    stage.lose_power(node)
    stage.sync_flush = True
    node.boot()
    assert not node.core.state.proven
    stage.sync_flush = False
    stage.kill(node)
    node.boot()
    stage.end()


def test_wiped_node_cannot_elect() -> None:
    """Stories 22, 23: one node is down and one was wiped. The third one waits, though two of three are there."""
    stage = Stage()
    stage.write(20)
    stage.settle()
    gone, wiped = stage.others
    keeper = stage.leader
    stage.kill(gone)
    stage.kill(wiped)
    old_disk, wiped.disk = wiped.disk, Disk("new")
    stage.pass_time(5.0)
    stage.kill(keeper)
    keeper.boot()
    wiped.boot()
    stage.pass_time(20.0)
    assert stage.leading() is None
    gone.boot()
    stage.settle()
    assert wiped.core.state.me.store in {voter.store for voter in stage.voters()}
    stage.kill(wiped)
    new_disk, wiped.disk = wiped.disk, old_disk
    wiped.boot()
    stage.pass_time(3.0)
    assert not wiped.core.leader
    assert stage.judge.counts["warnings"]
    stage.kill(wiped)
    wiped.disk = new_disk
    stage.end()


def test_leader_commits_ahead_of_own_disk_then_dies() -> None:
    """Story 27: the majority is elsewhere. The HW that the leader saves never passes the end of its own disk."""
    stage = Stage(sync_flush=True)
    leader = stage.leader
    leader.saving.flushing = True  # its disk is slow from now on
    stage.write(5)
    stage.until(lambda: leader.core.state.hw == leader.store.log.end)
    assert leader.store.log.durable_end < leader.core.state.hw
    assert len(stage.judge.sent) == 5
    stage.lose_power(leader)
    stage.until(lambda: stage.leading() is not None)
    leader.boot()
    assert leader.core.state.hw <= leader.store.log.end
    stage.end()


def test_new_leader_numbers_queues_from_inherited_tail() -> None:
    """Stories 31, 32: a new leader's queue offsets go on behind what it inherited, committed or not. Offsets of a tail that was
    cut are given once more."""
    stage = Stage()
    stage.write(4, queue_id=1)
    stage.settle()
    old = stage.leader
    stage.isolate(old)
    stage.write(3, queue_id=1, node=old)
    stage.until(lambda: stage.leader is not old)
    stage.write(2, queue_id=1)
    stage.mend()
    stage.end()
    for node in stage.nodes.values():
        assert node.store.queues.get("T", 1).max == 6


def test_multi_queue_burst_disk_full_moves_nothing() -> None:
    """Story 34: no queue offset is used up by records that were not stored."""
    stage = Stage("a")
    node = stage["a"]
    stage.write(3, queue_id=0)
    stage.write(3, queue_id=1)
    node.disk.short_write_bytes = 50
    end = node.store.log.end
    node.do(lambda: node.produce([(90, "T", 0, b"a"), (91, "T", 1, b"b"), (92, "U", 0, b"c")]))
    assert node.store.log.end == end
    assert [node.store.queues.get("T", queue_id).next for queue_id in (0, 1)] == [3, 3]
    assert not raw(node, end, end + 200).strip(b"\0")
    stage.write(1, queue_id=1)
    stage.end()


def test_a_node_after_a_snapshot_equals_the_leader() -> None:
    """Stories 46, 33: its log begins where the leader's does, its tables come from the snapshot, and so do offsets of idle
    queues."""
    stage = Stage()
    stage.write(2, topic="U", queue_id=2)
    stage.settle()
    late = stage.others[0]
    stage.kill(late)
    stage.retention = True
    for _ in range(30):
        stage.write(20)
        stage.pass_time(1.0)
        if stage.leader.store.log.start > 8192:
            break
    assert stage.leader.store.log.start > late.store.log.end
    late.boot()
    stage.settle()
    assert stage.judge.counts["snapshot installed"]
    assert late.store.queues.get("U", 2).max == 2
    assert late.tables == stage.leader.tables
    stage.end()


def test_a_snapshot_install_stopped_on_the_way() -> None:
    """It begins again, and is not ready before it has what was committed."""
    stage = Stage()
    late = stage.others[0]
    stage.kill(late)
    stage.retention = True
    while stage.leader.store.log.start < 9000:
        stage.write(20, size=400)
        stage.pass_time(1.0)
    late.boot()
    stage.until(lambda: bool(stage.judge.counts["snapshot installed"]))
    assert not late.core.serves_reads(late.monotonic())
    stage.lose_power(late)
    late.boot()
    assert not late.core.state.proven
    stage.end()


def test_a_follower_that_was_away_goes_on_voting() -> None:
    """A node dispatches a part at a time of what it learns to be committed. As leader it answers no read before all of it is
    applied (R17)."""
    stage = Stage()
    late = stage.others[0]
    stage.kill(late)
    late.disk.unlink(f"{OWN}/progress")
    stage.write(100)
    stage.until(lambda: stage.leader.core.state.hw == stage.leader.store.log.end)
    late.boot()
    stage.until(lambda: late.store.dispatcher.position < late.core.state.hw)
    first = late.store.dispatcher.position
    stage.until(lambda: first < late.store.dispatcher.position < late.core.state.hw)
    late.core.state.role = Leader(late.monotonic(), start_end=late.core.state.hw, lease=late.monotonic() + 10)
    assert late.core.serves_reads(late.monotonic())
    assert not late.member.serves_reads(late.monotonic())


def test_a_snapshot_holds_what_is_applied_not_all_that_is_committed() -> None:
    """Seed 542 of the campaign: a follower's snapshot named records that it had not dispatched yet, so its next start did not
    replay that messages had been handed on."""
    stage = Stage()
    late = stage.others[0]
    stage.kill(late)
    stage.write(3, topic="D")
    stage.until(lambda: stage.judge.counts["handed on"] == 3)
    stage.write(100)
    stage.until(lambda: stage.leader.core.state.hw == stage.leader.store.log.end)
    late.boot()
    stage.until(lambda: late.holding.due.pending == 3 and late.core.state.hw == stage.leader.core.state.hw)
    assert late.store.dispatcher.position < late.core.state.hw
    late.saving.snapshot(*late.saving.begin_snapshot())
    stage.until(lambda: bool(stage.judge.counts["snapshots"]))
    stage.settle()
    stage.kill(late)
    late.boot()
    assert late.holding.due.pending == 0
    stage.end()


@pytest.mark.parametrize("hours", [-1, 1, -87_600, 87_600])
def test_clock_back_one_hour_and_ten_years(hours: int) -> None:
    """Story 52, T1: no rule depends on the wall clock."""
    stage = Stage()
    epoch = stage.leader.core.state.epoch
    stage.leader.wall_offset_ms += hours * 3_600_000
    stage.write(10)
    stage.pass_time(10.0)
    assert stage.leader.core.state.epoch == epoch
    stage.end()


def test_follower_damaged_bytes_refetched() -> None:
    """Story 63: bits that flip on the way cost one more fetch, and nothing else."""
    stage = Stage()
    node = stage.others[0]
    handle, broken = node.member.handle, 0

    def twisted(event: ev.Event) -> None:
        nonlocal broken
        if isinstance(event, ev.PeerAnswer) and isinstance(event.answer, m.FetchOk) and event.answer.data and broken < 2:
            broken += 1
            data = bytearray(event.answer.data)
            data[len(data) // 2] ^= 16
            event = event._replace(answer=event.answer._replace(data=bytes(data)))
        handle(event)

    node.member.handle = twisted  # type: ignore[method-assign]
    stage.write(5)
    stage.settle()
    assert broken == 2
    stage.end()


def test_leader_disk_full_hands_over() -> None:
    """Stories 61, 62: a node with room leads. One without room follows and does not stop the group."""
    stage = Stage()
    full = stage.leader
    full.disk_full = True
    stage.faults.fill_disk_of(full)
    stage.until(lambda: stage.leading() is not None and stage.leader is not full)
    stage.write(100, size=300)
    stage.pass_time(2.0)
    assert len(stage.judge.sent) == 100
    assert not full.core.leads()
    stage.faults.empty_disk_of(full)
    stage.end()
