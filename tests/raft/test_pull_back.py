"""A fixed master that lost its tail gets it back from its slaves, as short stories on toy logs."""

import pytest

from rmq.raft import effects as fx, messages as m
from rmq.raft.roles import StartingMaster
from tests.raft.test_fixed import mastered


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
    while not any(isinstance(letter.request, m.Fetch) and letter.request.pull_back for letter in world.post):
        world.now += 0.02
        world.tick()
        world.deliver(lambda letter: not (isinstance(letter.request, m.Fetch) and letter.request.pull_back))
    world["b"].stop()
    world.run(began + 29.0 - world.now)
    assert not world["a"].core.leads()
    world.run(2.0)
    assert world["a"].core.leads()
    assert world["a"].of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
