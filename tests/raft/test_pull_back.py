"""A fixed master that lost its tail gets it back from its slaves, as short stories on toy logs."""

import pytest

from rmq.raft import effects as fx, events as ev, messages as m
from rmq.raft.roles import StartingMaster
from tests.raft.test_fixed import mastered
from tests.raft.toy import Node, World


def test_fixed_master_behind_its_slave_pulls_back() -> None:
    """Story 53: after power loss the slave still has what was copied. What was not may have been read, so it is lossy."""
    world = mastered(5)
    whole = list(world["b"].log)
    world["a"].stop()
    world["a"].log, world["a"].proven = world["a"].log[:2], False
    world["a"].start()
    world.run(0.05)
    assert isinstance(world["a"].core.role, StartingMaster)
    world.run(3.0)
    assert world["a"].core.leads()
    assert world["a"].log[:-1] == whole
    assert world["a"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
    assert world["a"].proven
    assert world["b"].log == world["a"].log


@pytest.mark.parametrize("left", [0, 2])
def test_power_loss_may_take_the_record_of_the_epoch_too(left: int) -> None:
    """Found by the simulation: two nodes had acknowledged it all, and the one that lost power threw the other's copy away,
    because the epoch in which that ended was not in its own log any more."""
    world = mastered(3, in_sync=2)
    world["a"].stop()
    world["a"].start()
    world.run(1.0)
    world["a"].write(2)
    world.run(1.0)
    whole = list(world["b"].log)
    assert world["a"].of(fx.Replicated)[-1] == fx.Replicated(world["b"].end)
    world["a"].stop()
    world["a"].log, world["a"].proven = world["a"].log[:left], False
    world["a"].start()
    world.run(3.0)
    assert world["a"].core.leads()
    assert world["a"].log[: len(whole)] == whole
    assert world["b"].log == world["a"].log


def test_a_slave_that_dies_before_it_gave_the_tail_back_holds_nobody_up() -> None:
    """[masterCatchUpWaitMs] The master has heard that the slave is ahead; then it waits no longer than for any other."""
    world = mastered(5)
    world["a"].stop()
    world["a"].log, world["a"].proven = world["a"].log[:2], False
    world["a"].start()
    began = world.now
    while not any(is_pull(letter.request) for letter in world.post):
        world.now += 0.02
        world.tick()
        world.deliver(lambda letter: not is_pull(letter.request))
    world["b"].stop()
    world.run(began + 29.0 - world.now)
    assert not world["a"].core.leads()
    world.run(2.0)
    assert world["a"].core.leads()
    assert world["a"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]


@pytest.mark.parametrize("reported", [ev.AppendFailed("no room"), ev.Grown(20, (), "bytes at 20 are no record")])
def test_a_slave_that_gives_nothing_of_use_holds_nobody_up(reported: ev.Event) -> None:
    """[masterCatchUpWaitMs] Its copy is damaged, or the master's disk is full. It answers each time, so it was asked as fast as
    it could be, for ever: now it is asked twice a second until the time is up, and the log says why."""
    world = mastered(5)
    master = world["a"]
    master.stop()
    master.log, master.proven = master.log[:2], False
    master.start()
    master.takes_no_bytes = reported
    asked = len(master.of(fx.Send))
    world.run(29.0)
    assert isinstance(master.core.role, StartingMaster)
    assert 20 < len(master.of(fx.Send)) - asked < 80
    assert any("slave b gives back cannot be used" in effect.text for effect in master.of(fx.Warn))  # type: ignore[union-attr]
    world.run(2.0)
    assert master.core.leads()
    assert master.of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]


def test_a_tail_that_comes_back_slowly_is_asked_for_once() -> None:
    """While parts of an answer come its end is waited for."""
    world = mastered(5)
    master = world["a"]
    master.stop()
    master.log, master.proven = master.log[:2], False
    master.start()
    while not any(is_pull(letter.request) for letter in world.post):
        world.now += 0.02
        world.tick()
        world.deliver(lambda letter: not is_pull(letter.request))
    asked = len(master.of(fx.Send))
    for _ in range(20):
        world.now += 0.3
        master.feed(ev.Arriving("b"))
        master.feed(ev.Tick())
    assert len(master.of(fx.Send)) == asked


def test_a_tail_that_takes_long_to_come_back_comes_back_whole() -> None:
    """The time is not up while there is more of it every few seconds."""
    world = mastered(16)
    whole = list(world["b"].log)
    master = world["a"]
    master.stop()
    master.log, master.proven = master.log[:2], False
    master.start()
    began = world.now
    while not master.core.leads():
        until = world.now + 8.0
        while world.now < until and not master.core.leads():
            world.now += 0.02
            world.tick()
            world.deliver(lambda letter: letter.answer is None or not is_pull(letter.request))
        let_one_in(world, master)
    assert world.now - began > 40.0
    assert master.log[: len(whole)] == whole


def let_one_in(world: World, master: Node) -> None:
    """Of the answers to its questions for the tail."""
    took = len(master.of(fx.AppendBytes))
    world.deliver(lambda letter: len(master.of(fx.AppendBytes)) == took)


def is_pull(request: m.Request) -> bool:
    return isinstance(request, m.Fetch) and request.pull_back
