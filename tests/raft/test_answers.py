"""R16: a follower has one request under way; only the answer to that one counts. When a leader answers."""

import pickle

from rmq.raft import effects as fx, events as ev, messages as m
from tests.raft.toy import World, lead


def test_stale_divergence_answer() -> None:
    """Story 16, R16: an answer to an older question cuts nothing."""
    world = World()
    lead(world, count=3)
    b = world["b"]
    old = m.Fetch(1, "g", "b", "s-b", b.incarnation, b.epoch, 0, 0, "", 0, 0, 0)
    b.feed(ev.PeerAnswer("a", old, m.Diverged(1, b.epoch, 1, 10, "s-a", False)))
    assert b.end == 40
    assert not b.of(fx.Cut)
    assert not b.core.stopped


def test_an_answer_that_comes_again_changes_nothing() -> None:
    """R16: the network doubled it, or it is late."""
    world = World()
    lead(world, count=3)
    world["a"].write()
    fetched = [letter for letter in world.post if isinstance(letter.answer, m.FetchOk) and letter.to == "b"]
    world.deliver()
    b = world["b"]
    known = len(b.effects)
    for letter in fetched:
        world.hand(letter)
    assert fetched
    assert len(b.effects) == known


def test_a_follower_knows_how_new_what_it_has_is() -> None:
    """S2: policies are as new as what was committed a second ago; a follower that is cut off cannot say what was."""
    world = World()
    lead(world, count=3)
    world.run(1.0)
    a, b = world["a"], world["b"]
    assert b.core.lately_committed(world.now, 1.0) == a.committed == b.committed
    world.isolate("b")
    a.write()
    world.run(1.2)
    assert a.committed > b.committed
    assert b.core.lately_committed(world.now, 1.0) is None
    world.cut.clear()
    world.run(3.0)
    assert b.core.lately_committed(world.now, 1.0) == world.leader().committed


def test_what_a_turn_brings_is_answered_together() -> None:
    """A fetch that finds bytes waits for the end of the turn, which may bring more: one answer in place of two."""
    world = World()
    lead(world)
    a = world["a"]
    a.ends_turns = False

    def answers() -> list[m.Answer]:
        return [letter.answer for letter in world.post if letter.to == "b" and isinstance(letter.answer, m.FetchOk)]

    for ends_by_append in (True, False):
        a.write()
        world.deliver(lambda letter: letter.to != "a")  # the followers have it; their next fetches are on their way
        a.write()
        fetch = next(letter for letter in world.post if letter.source == "b")
        world.post.remove(fetch)
        world.hand(fetch)
        assert a.committed < a.end
        assert not answers()
        if ends_by_append:
            a.write()
        else:
            a.feed(ev.TurnEnded())
        (answer,) = answers()
        assert isinstance(answer, m.FetchOk)
        assert len(pickle.loads(answer.data)) == 1 + ends_by_append
        a.feed(ev.TurnEnded())
        assert len(answers()) == 1
        world.deliver()
        a.feed(ev.TurnEnded())
        world.deliver()
        assert world["b"].end == world["c"].end == a.end
