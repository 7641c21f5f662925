"""What other nodes may say: no epoch out of nowhere, no assertion that a question reaches, nothing that cannot be undone."""

import random

import pytest

from rmq.model import Voter
from rmq.raft import effects as fx, events as ev, messages as m
from rmq.raft.trust import MAX_LEAP
from tests.raft.toy import Node, World, lead

ABSURD = 2**63 - 1


def question(kind: str, epoch: int, **fields: object) -> m.Request:
    made: dict[str, m.Request] = {
        "vote": m.Vote(epoch, "c", "s-c", 9, 1000, False, False),
        "fetch": m.Fetch(1, "g", "c", "s-c", 7, epoch, 0, 0, "", 0, 0, 0),
        "announce": m.Announce(epoch, "c", "c:1", (Voter("c", "s-c", "c:1"),)),
        "resign": m.Resign(epoch, ("c",)),
        "ack": m.Ack(epoch, "s-c", 1, 10),
    }
    return made[kind]._replace(**fields)


def refused(node: Node, request: m.Request) -> str:
    """Why; "" if it was taken."""
    node.feed(ev.PeerRequest(request, "ticket"))
    return node.done.pop("ticket", "")


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("kind", ["vote", "fetch", "announce", "resign", "ack"])
def test_an_epoch_out_of_nowhere_is_not_believed(name: str, kind: str) -> None:
    """By the leader and by a follower: nothing is saved, and the leadership goes on."""
    world = World()
    lead(world)
    node = world[name]
    before = (node.epoch, node.voted_for, world["a"].core.leads())
    for epoch in (ABSURD, node.epoch + MAX_LEAP + 1, -1):
        assert "is not believed" in refused(node, question(kind, epoch))
    assert (node.epoch, node.voted_for, world["a"].core.leads()) == before
    assert len([text for text in node.of(fx.Warn)]) == 1, "what is repeated is told once"
    world["a"].write()
    world.run(0.1)
    assert {one.committed for one in world.nodes.values()} == {world["a"].end}


@pytest.mark.parametrize(
    "answer",
    [
        m.VoteAnswer(ABSURD, True, True, "s-c", "", ""),
        m.NotLeader(ABSURD, "c"),
        m.Fenced(ABSURD, "older"),
        m.EpochAnswer(ABSURD),
        m.FetchOk(1, ABSURD, "c", 0, b"", 0, 0, 0, 0.0),
        m.Diverged(1, ABSURD, 1, 0, "", False),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_nor_is_one_in_an_answer(answer: m.Answer) -> None:
    world = World()
    lead(world)
    for name in "ab":
        node = world[name]
        epoch = node.epoch
        node.feed(ev.PeerAnswer("c", question("fetch", epoch), answer))
        assert (node.epoch, node.core.stopped) == (epoch, "")
    world["a"].write()
    world.run(0.1)
    assert world["c"].committed == world["a"].end


def test_a_node_that_was_away_for_long_comes_back() -> None:
    """As many epochs as no elections of years make: it takes them over at once."""
    world = World()
    lead(world)
    world.isolate("c")
    for name in "ab":
        world[name].epoch = MAX_LEAP
        world[name].boot()
    world.run(5)
    world.cut.clear()
    world.leader().write()
    world.run(5)
    assert world["c"].epoch == world.leader().epoch > MAX_LEAP
    assert world["c"].committed == world.leader().end


def test_of_two_who_say_they_lead_one_epoch_the_first_is_believed() -> None:
    """R1: neither a leader nor a follower of it ends because somebody else claims leadership."""
    world = World()
    lead(world)
    for name in "ab":
        assert "two leaders" in refused(world[name], question("announce", world["a"].epoch))
        assert world[name].core.leader == "a"
    assert "is this one" in refused(world["a"], question("announce", world["a"].epoch, leader="a"))


def test_nobody_votes_with_the_store_of_the_one_it_asks_or_with_none() -> None:
    """What is voted for is saved as a line of text."""
    world = World()
    lead(world)
    for odd in ("", "-", "a\nepoch 9", "a b", "x" * 65):
        assert "no store" in refused(world["b"], question("vote", world["b"].epoch + 1, store=odd))
    assert "own" in refused(world["a"], question("vote", world["a"].epoch, store="s-a"))
    assert world["a"].core.leads()


def test_fixed_roles_know_no_votes_and_believe_no_wild_nameserver() -> None:
    world = World.fixed()
    world.run(40)
    master, slave = world["a"], world["b"]
    assert master.core.leads()
    for node in (master, slave):
        epoch = node.epoch
        assert "nobody votes" in refused(node, question("vote", epoch + 1))
        node.feed(ev.Follow("c", ABSURD))
        assert node.epoch == epoch
    assert "two leaders" in refused(master, question("announce", master.epoch))
    assert master.core.leads()


def odd_question(chance: random.Random, world: World) -> m.Request:
    """Of a stranger: the names are of the group, the stores are not."""
    number = [-(2**63), -1, 0, 1, 10, 40, 2**31, MAX_LEAP, ABSURD]
    near = [*number, *(world["a"].epoch + step for step in (-1, 0, 0, 0, 1))]
    text = ["", "-", "a", "b", "c", "g", "s-x", "x\n", "\x00"]
    some = chance.choice
    kinds: list[m.Request] = [
        m.Vote(some(near), some(text), some(text), some(number), some(number), some((True, False)), some((True, False))),
        m.Fetch(
            some(number),
            some(text),
            some(text),
            some(text),
            some(number),
            some(near),
            some(number),
            some(number),
            some(text),
            some(number),
            some(number),
            some(number),
            some((-1.0, float("inf"), float("nan"), 1e300)),
            *(some((True, False)) for _ in range(6)),
            some(number),
            some((-1.0, float("nan"), 1e300)),
            some((True, False)),
        ),
        m.Announce(some(near), some(text), some(text), (Voter(some(text), some(text), some(text)),)),
        m.Resign(some(near), tuple(some(text) for _ in range(some((0, 1, 3))))),
        m.Ack(some(near), some(text), some(number), some(number)),
    ]
    return some(kinds)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_odd_questions_end_nobody(seed: int, fixed: bool) -> None:
    """R1, R8, R12: whatever is asked, no node breaks off; when it is quiet again the group works."""
    chance = random.Random(seed)
    world = World.fixed("abc") if fixed else World()
    for _ in range(200):
        node = world[chance.choice("abc")]
        node.feed(ev.PeerRequest(odd_question(chance, world), "nobody" if chance.random() < 0.8 else None))
        node.effects.clear()
        world.post = [letter for letter in world.post if letter.to in world.nodes]
        if chance.random() < 0.2:
            world.run(chance.choice((0.02, 0.3)))
    assert not any(node.core.stopped for node in world.nodes.values())
    if not fixed:
        world.run(8)
        world.leader().write()
        world.run(1)
        assert {node.committed for node in world.nodes.values()} == {world.leader().end}
