"""Stories of groups with fixed roles, on real logs and disks that forget."""

from collections.abc import Callable

from rmq.raft import events as ev
from tests.sim.fixed import FixedWorld
from tests.sim.network import CALM

Work = Callable[[], None]


def test_a_flush_of_what_is_cut_off_tells_nothing_of_what_comes_in_its_place() -> None:
    """R7. Found by the simulation (seed 794): a slave was promoted while its log was being cut, and heard of a flush from
    before the cut when its epoch's record stood in that place. It acknowledged bytes that were not on the disk."""
    world = FixedWorld(1)
    world.sync_flush, world.late_s, world.in_sync, world.network.weather = True, 0.0, 1, CALM
    world.faults.active = False
    for node in world.nodes.values():
        node.boot()
    a, b = world.nodes["a"], world.nodes["b"]
    world.play(20.0, world.is_one)
    world.network.cut |= {("a", "b"), ("b", "a")}
    world.promote(b)
    world.play(world.now + 5.0, lambda: world.named == (2, "b"))
    assert b.store.log.durable_end == b.store.log.end > a.store.log.end
    b.down()  # so it does not know any more what it had committed alone
    world.promote(a)
    world.play(world.now + 5.0, lambda: world.named == (3, "a"))
    held: list[tuple[Work, Work]] = []

    def hold_cuts(work: Work, then: Work) -> bool:
        if b.core.state.end < b.store.log.end:
            b.working = True
            held.append((work, then))
            return False
        work()
        return True

    b.offload = hold_cuts  # type: ignore[method-assign]
    world.network.cut.clear()
    b.boot()
    world.play(world.now + 10.0, lambda: bool(held))
    [(work, then)] = held
    b.member.handle(ev.Promote())
    b.member.flushed()
    work()
    b.working = False
    b.do(then)
    assert b.core.state.durable <= b.store.log.durable_end < b.store.log.end
    world.play(world.now + 30.0, world.is_one)
    world.finish()
