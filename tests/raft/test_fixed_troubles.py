"""Fixed mode, where what a node was about to do cannot be done, as short stories on toy logs."""

from rmq.model import EpochEntry, Voter
from rmq.raft import effects as fx, events as ev, messages as m
from rmq.raft.core import Core
from rmq.raft.identity import Identity, RestoredState, Timing
from rmq.raft.roles import Follower
from tests.raft.test_fixed import mastered
from tests.raft.toy import Node, World


def being_filled(world: World) -> Node:
    """The slave b, which was told by a to take its snapshot."""
    slave = world["b"]
    assert isinstance(slave.core.role, Follower)
    request = slave.core.role.fetch
    assert request is not None
    slave.feed(ev.PeerAnswer("a", request, m.NeedsSnapshot(request.id, slave.epoch, 30, 40, 0)))
    assert slave.core.state.installing
    return slave


def test_a_snapshot_that_could_not_be_had_changes_nothing() -> None:
    """Its master died while it gave it: the slave has its log, the only one that is left, and is promoted with it. It said that
    it had a snapshot and no log, until it was started again."""
    slave = being_filled(mastered())
    slave.feed(ev.InstallFailed())
    slave.feed(ev.Promote("ticket"))
    slave.flush()
    assert slave.done == {"ticket": ""}
    assert slave.core.serves_reads(slave.world.now)


def test_a_log_below_one_snapshot_is_not_filled_up_because_another_was_tried() -> None:
    """As above, where the tables of a former master's snapshot are ahead of the log, and the next one's could not be had."""
    voters = (Voter("a", "s-a", "a:1"),)
    me = Identity("g", "b", "s-b", 2, "b:1", fixed=True)
    boot = RestoredState(3, "-", False, 100, 140, 100, (EpochEntry(3, 100, "s-a"),), ((-1, voters),), ready_at=200)
    core = Core(me, boot, Timing(), lambda: 0.5, 0.0)
    core.step(ev.Tick(), 1.0)
    for event, now in ((ev.Follow("a", 4), 1.0), (ev.Tick(), 1.5)):
        [asked] = [one for one in core.step(event, now) if isinstance(one, fx.Send)]
        assert isinstance(asked.request, m.Fetch)
        assert asked.request.wants_snapshot
        core.step(ev.PeerAnswer("a", asked.request, m.NeedsSnapshot(asked.request.id, 4, 150, 200, 0)), now)
        core.step(ev.InstallFailed(), now)


def test_nobody_is_added_to_a_group_with_fixed_roles() -> None:
    """A slave comes by itself. Who asked waited for an answer that never came, and its master called that address for ever."""
    world = mastered()
    world["a"].feed(ev.Join("c", "c:1", "ticket"))
    assert "start it with brokerRole=SLAVE" in world["a"].done["ticket"]
    world.run(1.0)
    assert "c" not in {effect.node for effect in world["a"].of(fx.Send)}  # type: ignore[union-attr]


def test_a_master_whose_disk_is_full_when_it_begins_is_the_master_later() -> None:
    """It was nobody's slave from then on, and nobody led, until it was started again."""
    world = World.fixed("ab")
    a = world["a"]
    a.takes_no_epoch = True
    world.run(60.0)
    assert not a.core.leads()
    assert a.epoch < 10, "each try costs an epoch"
    a.takes_no_epoch = False
    world.run(15.0)
    assert a.core.leads()
    world["b"].feed(ev.Follow("a", a.epoch))
    world.run(1.0)
    assert world["b"].log == a.log


def test_a_slave_that_is_handed_leadership_and_has_no_room_takes_it_later() -> None:
    """The master that gave it up has heard of the newer epoch, and waits to be told whom it follows."""
    world = mastered(2)
    world["b"].takes_no_epoch = True
    world["a"].feed(ev.Transfer("b", "ticket"))
    world.run(5.0)
    assert not any(node.core.leads() for node in world.nodes.values())
    world["b"].takes_no_epoch = False
    world.run(15.0)
    assert world["b"].core.leads()


def test_who_finds_another_master_meanwhile_does_not_begin_again() -> None:
    world = World.fixed("ab")
    world["a"].takes_no_epoch = True
    world.run(1.0)
    world["b"].feed(ev.Promote())
    world["a"].feed(ev.Follow("b", world["b"].epoch))
    world["a"].takes_no_epoch = False
    world.run(30.0)
    assert world["b"].core.leads()
    assert world["a"].log == world["b"].log


def test_a_master_that_is_there_again_is_followed_whatever_it_answers() -> None:
    """It was started again and has no snapshot to give yet, which takes a minute: clients of RocketMQ need it now."""
    world = mastered()
    slave = world["b"]
    slave.feed(ev.Unreachable("a"))
    world.now += 0.6
    slave.feed(ev.Tick())
    assert isinstance(slave.core.role, Follower)
    assert slave.core.role.fetch is not None
    slave.feed(ev.PeerAnswer("a", slave.core.role.fetch, m.NotLeader(slave.epoch, "a")))
    assert slave.core.follows(world.now)
