"""What an acknowledgement may say, and when it counts, as short stories on toy logs."""

from rmq.raft import effects as fx, events as ev, messages as m
from tests.raft.toy import World


def test_old_incarnation_ack_after_restart() -> None:
    """Story 17: what a run promised that then lost power does not count."""
    world = World(sync_flush=True)
    world.elect("a")
    for node in world.nodes.values():
        node.flush()
    world.run(0.2)
    late = m.Ack(1, "s-b", world["b"].incarnation, 20)
    world["b"].stop()
    world["b"].start()
    world.run(1.0)
    world["c"].stop()
    world["a"].write()
    world["a"].flush()
    world["a"].feed(ev.PeerRequest(late))
    assert world["a"].committed == 10
    stale = m.Fetch(99, "g", "b", "s-b", late.incarnation, 1, 20, 1, "s-a", 20, 10, 0)
    world["a"].feed(ev.PeerRequest(stale, ("b", stale)))
    assert isinstance(world["a"].of(fx.Reply)[-1].answer, m.Fenced)  # type: ignore[union-attr]
    assert world["a"].committed == 10


def test_a_tail_that_becomes_durable_before_it_is_compared_counts_for_nothing() -> None:
    """R4, R6: an old leader asks the new one, and then an fsync ends of what only it has; the answer that it must cut that is on
    its way."""
    world = World(sync_flush=True)
    world.elect("a")
    for node in world.nodes.values():
        node.flush()
    world.run(0.2)
    old, leader = world["a"], world["b"]
    world.isolate("a")
    old.write(5)
    world.elect("b")
    for name in "bc":
        world[name].flush()
    world.deliver()
    assert leader.committed == leader.end == 20
    world["c"].stop()
    world.cut.clear()
    while not any(letter.to == "a" and isinstance(letter.answer, m.Diverged) for letter in world.post):
        world.now += 0.02
        world.tick()
        world.deliver(lambda letter: not isinstance(letter.answer, m.Diverged))
    leader.write(2)
    leader.flush()
    old.flush()
    world.deliver(lambda letter: not isinstance(letter.answer, m.Diverged))
    assert (old.end, leader.end, leader.committed) == (60, 40, 20)
    world.deliver()
    world.run(0.1)
    old.flush()
    world.deliver()
    assert old.log == leader.log
    assert leader.committed == 40, "now it has the same bytes, and they are durable"
