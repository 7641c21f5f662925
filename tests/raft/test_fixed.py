"""Fixed mode, RocketMQ's master and slaves, as short stories on toy logs."""

from dataclasses import replace

import pytest

from rmq.broker.replication.measured import SLAVE_FAR_BYTES, send_trouble, slaves_are_there
from rmq.model import EpochEntry, Voter
from rmq.raft import effects as fx, events as ev, leading, messages as m
from rmq.raft.core import Core
from rmq.raft.fixed import last_epoch_led
from rmq.raft.identity import Identity, RestoredState, Timing
from rmq.raft.roles import Follower, Leader, StartingMaster
from tests.raft.toy import World


def mastered(count: int = 2, names: str = "ab", in_sync: int = 1) -> World:
    world = World.fixed(names, in_sync=in_sync)
    world.run(1.0)
    assert world["a"].core.leads()
    world["a"].write(count)
    world.run(1.0)
    return world


def test_a_master_needs_nobody() -> None:
    """Its own acknowledgement commits; slaves follow, and what they have releases who waits for them."""
    world = World.fixed("ab", in_sync=2)
    world["b"].stop()
    world.tick("a")
    world["a"].write()
    assert world["a"].committed == 20
    assert not world["a"].of(fx.Replicated)
    world["b"].start()
    world["b"].feed(ev.Follow("a"))
    world.run(1.0)
    assert world["b"].log == world["a"].log
    assert world["b"].committed == 20
    assert world["a"].of(fx.Replicated)[-1] == fx.Replicated(20)


def test_a_slave_that_is_far_behind_is_not_waited_for() -> None:
    """A new one that copies a long log, or one that was away for hours: each send waited 5 s, longer than clients wait, until it
    had all of it."""
    world = mastered(in_sync=2)
    core = world["a"].core
    core.state.end = world["b"].core.state.end + SLAVE_FAR_BYTES
    assert slaves_are_there(core, world.now)
    core.state.end += 1
    assert not slaves_are_there(core, world.now)
    assert "or they lack more than 256 MiB" in send_trouble(core, world.now)


def test_a_slave_never_stands() -> None:
    world = mastered()
    world["a"].stop()
    world["b"].feed(ev.Unreachable("a"))
    world.run(30.0)
    assert isinstance(world["b"].core.role, Follower)
    assert world["b"].epoch == 1


def test_a_slaves_former_disk_is_not_missed_and_a_slave_that_is_away_is() -> None:
    world = mastered(names="abc")
    role = world["a"].core.role
    assert isinstance(role, Leader)
    role.peers["s-former"] = replace(role.peers["s-b"], store="s-former", fetch=None)
    world["c"].stop()
    world.run(leading.LEFT_S + 0.5)
    assert sorted(role.peers) == ["s-b", "s-c"]


def test_a_slave_follows_nobody_while_its_master_is_silent() -> None:
    """It still knows it, and goes on with it when it is back; what only the master may answer is not asked of it meanwhile."""
    world = mastered()
    slave = world["b"]
    assert slave.core.follows(world.now)
    world["a"].stop()
    world.run(2.0)
    assert (slave.core.leader, slave.core.follows(world.now)) == ("a", False)
    world["a"].start()
    world.run(2.0)
    assert slave.core.follows(world.now)


def test_each_start_of_the_master_is_an_epoch() -> None:
    world = mastered()
    world["a"].stop()
    world["a"].start()
    world.run(2.0)
    assert world["a"].epoch == 2
    world["a"].write()
    world.run(1.0)
    assert world["b"].log == world["a"].log


def test_an_epoch_whose_record_was_lost_is_still_its_own() -> None:
    """The nameservers heard of it: under an older number the master would be refused, and its slaves could not find it."""
    world = mastered()
    master = world["a"]
    master.stop()
    master.log, master.proven = [], False
    master.start()
    assert isinstance(master.core.role, StartingMaster)
    assert last_epoch_led(master.core.state, master.epoch, master.voted_for) == 1
    master.feed(ev.Follow("b", 5))
    assert last_epoch_led(master.core.state, master.epoch, master.voted_for) == 0


def test_a_node_that_is_being_filled_from_a_snapshot_begins_no_epoch() -> None:
    """Its tables and the numbers of its queues are ahead of its log: it would number new messages with a gap (D12)."""
    voters = (Voter("a", "s-a", "a:1"),)
    me = Identity("g", "a", "s-a", 2, "a:1", False, "", fixed=True, in_sync=1, master=True)
    boot = RestoredState(3, "-", False, 100, 140, 100, (EpochEntry(3, 100, "s-b"),), ((-1, voters),), ready_at=200)
    core = Core(me, boot, Timing(), lambda: 0.5, 0.0)
    for now in range(1, 100):
        assert not any(isinstance(effect, fx.AppendEpoch) for effect in core.step(ev.Tick(), float(now)))
    [done] = [effect for effect in core.step(ev.Promote("ticket"), 100.0) if isinstance(effect, fx.Done)]
    assert "snapshot" in done.refusal


def test_the_snapshot_of_a_master_that_was_replaced_is_not_filled_up_from_another_log() -> None:
    """Found by the simulation (seed 649): a slave was told to take a master's snapshot, another master came meanwhile, and its
    log followed on tables and queue offsets that were not its own."""
    world = promoted()
    slave = world["c"]
    slave.start()
    slave.feed(ev.Follow("b", 2))
    assert isinstance(slave.core.role, Follower)
    request = slave.core.role.fetch
    assert request is not None
    slave.feed(ev.PeerAnswer("b", request, m.NeedsSnapshot(request.id, 2, 30, 40, 0)))
    slave.feed(ev.Follow("a", 3))
    slave.log = []
    slave.feed(ev.SnapshotInstalled(0, (), slave.core.state.voters, 40))
    request = slave.core.role.fetch
    assert request is not None
    assert request.wants_snapshot
    slave.feed(ev.PeerAnswer("a", request, m.NeedsSnapshot(request.id, 3, 10, 20, 0)))
    slave.feed(ev.SnapshotInstalled(0, (), slave.core.state.voters, 20))
    request = slave.core.role.fetch
    assert request is not None
    assert not request.wants_snapshot


@pytest.mark.parametrize("in_sync", [1, 2])
def test_a_master_that_lost_its_whole_log_waits_for_its_slaves_and_tells_readers(in_sync: int) -> None:
    """Found by the simulation: an empty log began its epoch at once, as a new one does, and did not say that it is lossy."""
    world = mastered(3, in_sync=in_sync)
    assert not world["a"].of(fx.AppendEpoch)[-1].entry.lossy, "there was nothing yet to lose"  # type: ignore[union-attr]
    world["b"].stop()
    world["a"].stop()
    world["a"].log, world["a"].proven = [], False
    world["a"].start()
    world.run(29.0)
    assert not world["a"].core.leads()
    world.run(2.0)
    assert world["a"].core.leads() == (in_sync == 1)
    assert in_sync > 1 or world["a"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]


def test_a_master_without_its_slave_gives_up_in_time() -> None:
    """The slave's longer log is cut when it comes back, and kept for the operator."""
    world = mastered(5)
    world["b"].committed = 0
    world["a"].stop()
    world["b"].stop()
    world["a"].log, world["a"].proven = world["a"].log[:2], False
    world["a"].start()
    world.run(29.0)
    assert not world["a"].core.leads()
    world.run(2.0)
    assert world["a"].core.leads()
    assert world["a"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
    world["b"].start()
    world["b"].feed(ev.Follow("a"))
    world.run(2.0)
    cut = world["b"].of(fx.Cut)[-1]
    assert cut.keep  # type: ignore[union-attr]
    assert world["b"].log == world["a"].log


def waiting() -> World:
    """`a` lost power and the end of its log, and waits for `b`, which is not there."""
    world = mastered(3, in_sync=2)
    world["b"].stop()
    lose_power(world)
    return world


def lose_power(world: World) -> None:
    """The master loses power and the end of its log, comes back, and waits."""
    world["a"].stop()
    world["a"].log, world["a"].proven = world["a"].log[:2], False
    world["a"].start()
    world.run(60.0)
    assert isinstance(world["a"].core.role, StartingMaster)


def test_a_sync_master_waits_for_its_slaves() -> None:
    world = waiting()
    world["b"].start()
    world["b"].feed(ev.Follow("a"))
    world.run(2.0)
    assert world["a"].core.leads()


def test_an_operator_lets_a_master_begin_that_waits_for_slaves() -> None:
    """They may be gone for good. What only they had is lost, and the epoch says so."""
    world = waiting()
    world["a"].feed(ev.Promote("ticket"))
    assert world["a"].core.leads()
    world["a"].flush()
    assert world["a"].done == {"ticket": ""}
    assert world["a"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
    world["b"].start()
    world["b"].feed(ev.Follow("a", 2))
    world.run(2.0)
    assert world["b"].log == world["a"].log


def test_promotion_by_hand_and_the_old_master_comes_back() -> None:
    world = mastered(2)
    world["a"].stop()
    world["b"].feed(ev.Promote("ticket"))
    assert world["b"].core.leads()
    world["b"].flush()
    assert world["b"].done == {"ticket": ""}
    assert world["b"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
    world["b"].write()
    world["b"].write()
    world["a"].start()
    world["a"].feed(ev.Follow("b", 2))
    world.run(2.0)
    assert isinstance(world["a"].core.role, Follower)
    assert world["a"].log == world["b"].log


def test_a_promotion_is_answered_when_its_epoch_is_on_the_disk() -> None:
    """Before, the vote was not even saved: the operator could be told of a master that a loss of power took back."""
    world = mastered(2)
    world["a"].stop()
    b = world["b"]
    b.feed(ev.Promote("ticket"))
    assert not b.done
    b.feed(ev.Flushed(b.end - 1))
    assert not b.done
    b.flush()
    assert b.done == {"ticket": ""}
    b.flush()
    assert b.of(fx.Done) == [fx.Done("ticket")]


def test_a_promotion_whose_epoch_cannot_be_stored_is_not_answered_as_done() -> None:
    world = mastered(2)
    core = world["b"].core
    world["a"].stop()
    core.step(ev.Promote("ticket"), 100.0)
    failed = core.step(ev.AppendFailed("no space"), 100.0)
    assert [effect.refusal for effect in failed if isinstance(effect, fx.Done)] == [
        "outcome unknown: this node is no longer the leader; ask the new one"
    ]


def test_two_fixed_masters_same_epoch_number() -> None:
    """Story 54: the epoch entries have different writers, so nobody takes the other's bytes for its own."""
    world = mastered(2)
    world["a"].stop()
    world["b"].feed(ev.Promote())
    world["b"].write(2)
    world["a"].start()
    world.tick("a")
    world["a"].write(3)
    assert world["a"].epoch == world["b"].epoch == 2
    world["a"].stop()
    world["a"].start()
    world["a"].feed(ev.Follow("b", 2))
    world.run(2.0)
    assert world["a"].of(fx.Cut)[-1].keep  # type: ignore[union-attr]
    assert world["a"].log == world["b"].log


def test_handing_over_loses_nothing() -> None:
    world = mastered(2)
    world["a"].feed(ev.Transfer("b", "ticket"))
    assert not world["a"].core.accepts()
    world.run(1.0)
    assert world["a"].done == {"ticket": ""}
    assert isinstance(world["b"].core.role, Leader)
    assert not world["b"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
    world["a"].feed(ev.Follow("b"))
    world.run(1.0)
    assert world["a"].log == world["b"].log


# --- an old master comes back -------------------------------------------------------------------------------------------


def promoted(count: int = 2) -> World:
    """`a` died with two records that `b` does not have; `b` was promoted and wrote `count`."""
    world = mastered(2, "abc")
    world["b"].stop()
    world["c"].stop()
    world["a"].write(2)
    world["a"].stop()
    world["b"].start()
    world["b"].feed(ev.Promote())
    world["b"].write(count)
    return world


def test_an_old_master_that_comes_back_becomes_a_slave_by_itself() -> None:
    """Its configuration still says master; the newer epoch that the nameservers tell it decides (R12)."""
    world = promoted()
    world["a"].start()
    world["a"].feed(ev.Follow("b", 2))
    assert not world["a"].core.leads()
    world.run(2.0)
    assert world["a"].of(fx.Cut)[-1].keep  # type: ignore[union-attr]
    assert (world["a"].log, world["a"].epoch) == (world["b"].log, 2)
    assert "slave" in world["a"].of(fx.Warn)[0].text  # type: ignore[union-attr]


def test_nobody_leads_when_the_newer_master_is_gone_too() -> None:
    """Only an administrator knows whether it comes back: what it wrote would be lost."""
    world = promoted()
    world["b"].stop()
    world["a"].start()
    world["a"].feed(ev.Follow("", 2))
    world.run(60.0)
    assert isinstance(world["a"].core.role, Follower)
    world["a"].feed(ev.Promote())
    assert (world["a"].core.leads(), world["a"].epoch) == (True, 3)


def test_a_node_that_was_to_begin_anew_is_promoted_instead() -> None:
    """What it had committed parts from the newer master's log; that one was gone again before it gave a snapshot."""
    world = promoted()
    world["a"].start()
    world.tick("a")
    world["a"].write(3)
    world["a"].feed(ev.Follow("b", 2))
    world.run(2.0)
    assert not world["a"].core.serves_reads(world.now)
    world["b"].stop()
    world["a"].feed(ev.Promote())
    world["a"].write()
    world.run(0.1)
    assert world["a"].core.leads()
    assert world["a"].core.serves_reads(world.now)


def test_a_running_master_gives_way_to_a_newer_one() -> None:
    world = promoted()
    world["a"].start()
    world["b"].write()
    world.run(0.1)
    assert world["a"].core.leads()
    world["a"].feed(ev.Follow("b", 3))
    assert isinstance(world["a"].core.role, Follower)
    assert world["a"].of(fx.SteppedDown)


def test_of_two_masters_with_one_number_the_one_that_nameservers_do_not_name_gives_way() -> None:
    """Story 54."""
    world = promoted()
    world["a"].start()
    world.tick("a")
    world["a"].write(3)
    assert world["a"].epoch == world["b"].epoch == 2
    world["a"].feed(ev.Follow("b", 2))
    world.run(2.0)
    assert isinstance(world["a"].core.role, Follower)
    assert world["a"].of(fx.SteppedDown)
    assert world["a"].core.state.keep_from == 30, "it committed more than both have: a snapshot must help"
    assert not world["a"].core.serves_reads(world.now)
    world["b"].feed(ev.Follow("a", 1))
    assert world["b"].core.leads(), "an older one changes nothing"


def test_a_master_gives_way_to_one_that_waits_for_slaves_under_the_same_number() -> None:
    """Story 54. Found by the simulation (seeds 194 and 289): the nameservers name the one that waits, the other one led on, out
    of reach of clients, and each waited for the other for ever."""
    world = mastered(3, in_sync=2)
    world["a"].stop()
    world["b"].feed(ev.Promote())
    world["b"].write(2)
    world["a"].start()
    world.tick("a")
    assert world["a"].epoch == world["b"].epoch == 2
    lose_power(world)
    assert last_epoch_led(world["a"].core.state, world["a"].epoch, world["a"].voted_for) == 2
    world["a"].feed(ev.Follow("a", 2))
    world["b"].feed(ev.Follow("a", 2))
    world.run(2.0)
    assert world["a"].core.leads()
    assert world["b"].of(fx.SteppedDown)
    assert world["b"].core.follows(world.now)


def test_slaves_go_over_to_the_newer_master() -> None:
    world = promoted()
    world["c"].start()
    world["c"].feed(ev.Follow("b", 2))
    world.run(1.0)
    assert (world["c"].log, world["c"].epoch) == (world["b"].log, 2)


def test_a_promoted_slave_goes_on_after_a_restart() -> None:
    """Though configured as a slave: nobody else was master since."""
    world = promoted()
    world["b"].stop()
    world["b"].start()
    world.run(0.1)
    assert (world["b"].core.leads(), world["b"].epoch) == (True, 3)


def test_a_slave_made_of_a_master_stays_a_slave() -> None:
    """It has another broker id now, so its own last epoch is not one that this node led."""
    world = mastered()
    world["a"].stop()
    world["a"].name, world["a"].master = "z", False
    world["a"].start()
    world.tick("a")
    assert isinstance(world["a"].core.role, Follower)


def test_a_master_that_was_a_slave_last_first_asks_what_the_others_have() -> None:
    """All stopped while `b` led, with records that `a` does not have; only `a` and `c` come back."""
    world = promoted()
    for name in "ac":
        world[name].start()
        world[name].feed(ev.Follow("b", 2))
    world.run(2.0)
    world["a"].stop()
    world["b"].write(2)
    world.run(1.0)
    whole = list(world["c"].log)
    assert whole == world["b"].log
    world["b"].stop()
    world["a"].start()
    world.run(1.0)
    assert isinstance(world["a"].core.role, StartingMaster)
    world["c"].feed(ev.Follow("a"))
    world.run(3.0)
    assert world["a"].core.leads()
    assert world["a"].log[: len(whole)] == whole
    assert world["a"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
    assert world["c"].log == world["a"].log


def handed_over() -> World:
    """The master has handed over to b, and b has not heard of it."""
    world = mastered(2)
    world["a"].feed(ev.Transfer("b", "ticket"))
    while world["a"].core.leads():
        world.tick("a")
        world.deliver(lambda letter: not isinstance(letter.request, m.Resign))
        world.now += 0.02
    return world


def test_leadership_that_was_handed_over_is_offered_until_it_is_taken() -> None:
    """The message may be lost, and nobody is elected here."""
    world = handed_over()
    world.post.clear()
    world.run(2.0)
    assert world["b"].core.leads()
    assert len(world["b"].of(fx.AppendEpoch)) == 1
    world["a"].feed(ev.Follow("b", 2))
    world.run(1.0)
    assert world["a"].log == world["b"].log


def test_a_successor_that_lost_power_on_the_way_says_so() -> None:
    """Found by the simulation: the offer came again when the slave no longer had everything."""
    world = handed_over()
    world["b"].stop()
    world["b"].log, world["b"].proven = world["b"].log[:2], False
    world["b"].start()
    world.run(1.0)
    assert world["b"].core.leads()
    assert world["b"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]


def test_a_master_that_heard_of_a_newer_epoch_does_not_go_on_with_its_own() -> None:
    """Found by the simulation: nothing of that epoch was copied yet, so the log alone does not tell."""
    world = promoted()
    world["b"].feed(ev.Follow("c", 3))
    world["b"].stop()
    world["b"].start()
    world.tick("b")
    assert isinstance(world["b"].core.role, Follower)
    world["a"].epoch, world["a"].voted_for = 4, "-"
    world["a"].start()
    world.tick("a")
    assert isinstance(world["a"].core.role, StartingMaster)
