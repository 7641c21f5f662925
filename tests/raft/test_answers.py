"""R16: a follower has one request under way; only the answer to that one counts. When a leader answers."""

import pickle

from rmq.raft import effects as fx, events as ev, following, messages as m
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


def test_an_answer_that_comes_slowly_is_not_asked_for_again() -> None:
    """L1: on a slow line each answer counted as lost before its end came, so a follower that was behind stayed there."""
    world = World()
    lead(world, count=3)
    b = world["b"]
    world.isolate("b")
    b.feed(ev.Tick())
    asked, stood = len(b.of(fx.Send)), world.now + 5.0
    while world.now < stood:
        world.now += 0.2
        b.feed(ev.Arriving("a"))
        b.feed(ev.Tick())
    assert len(b.of(fx.Send)) == asked
    b.feed(ev.Arriving("c"))  # no leader's bytes
    for _ in range(2):
        world.now += 0.4
        b.feed(ev.Tick())
    assert len(b.of(fx.Send)) == asked + 1


def test_a_follower_asks_for_what_its_line_brings_in_a_moment() -> None:
    """R11: a leader knows that it is followed by fetches only, and while an answer comes there are none."""
    world = World()
    lead(world, count=3)
    state = world["b"].core.state
    following.fit(state, m.MAX_FETCH_BYTES, 1 << 20, 2.0)
    assert state.share == 1 << 18
    following.fit(state, state.share, 10, 2.0)  # so few say nothing about the line
    assert state.share == 1 << 18
    following.fit(state, state.share, 4 << 20, 100.0)
    assert state.share == following.LEAST_BYTES
    for _ in range(40):
        following.fit(state, state.share, state.share, 0.4)
    assert state.share == m.MAX_CATCH_UP_BYTES
    world["a"].write()
    world.run(0.1)
    assert world["b"].core.role.fetch.max_bytes == m.MAX_FETCH_BYTES  # type: ignore[union-attr]
