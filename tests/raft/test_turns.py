"""After a death that is certain the voters stand one after the other, and nobody waits for a round that is lost."""

from rmq.raft import events as ev
from rmq.raft.electing import APART_S, BLIND_S, FIRST_S, NEXT_S
from rmq.raft.roles import Candidate, Follower
from tests.raft.toy import World, lead

STEP_S = 0.02  # of the toy's time


def turns(world: World) -> dict[str, float]:
    """When each follower stands, from now on."""
    roles = {name: node.core.role for name, node in world.nodes.items()}
    return {name: role.stand_at - world.now for name, role in roles.items() if isinstance(role, Follower)}


def test_who_is_further_stands_first() -> None:
    """b has what c has not: the leader told both, so b stands at once and c only if nothing came of it."""
    world = World()
    lead(world, count=2)
    world["a"].write(1)
    world.deliver(lambda letter: "c" not in (letter.source, letter.to))
    world.run(0.3)  # c hears nothing new
    world.deliver()
    world.post.clear()
    world["a"].stop()
    for name in "bc":
        world[name].feed(ev.Unreachable("a"))
    found = turns(world)
    assert FIRST_S <= found["b"] <= FIRST_S + APART_S
    assert found["b"] + NEXT_S - APART_S <= found["c"]
    world.run(found["c"] - STEP_S / 2)
    assert world["b"].core.leads()


def test_nobody_follows_a_leader_whose_process_has_ended() -> None:
    """What clients of RocketMQ sent to a follower went on being forwarded to the dead leader, each of them tried every 20 ms,
    while the follower was to be elected."""
    world = World()
    lead(world)
    assert world["b"].core.follows(world.now)
    world["a"].stop()
    for name in "bc":
        world[name].feed(ev.Unreachable("a"))
        assert not world[name].core.follows(world.now)
    world.run(1.0)
    [other] = [world[name].core for name in "bc" if not world[name].core.leads()]
    assert other.follows(world.now)


def test_one_that_did_not_notice_yet_costs_a_turn_and_not_a_round() -> None:
    """c still believes in the leader when b asks; half a second was lost before."""
    world = World()
    lead(world)
    world["a"].stop()
    world["b"].feed(ev.Unreachable("a"))
    world.run(turns(world)["b"] + STEP_S)
    assert isinstance(world["b"].core.role, Candidate)
    assert world["b"].core.role.until - world.now <= FIRST_S + NEXT_S + APART_S
    world["c"].feed(ev.Unreachable("a"))
    world.run(3 * (FIRST_S + NEXT_S + APART_S))
    assert world["b"].core.leads() or world["c"].core.leads()


def test_two_that_believe_to_be_first_do_not_split_for_long() -> None:
    """What the leader said is a moment old: both may have heard that they are the furthest."""
    world = World()
    lead(world)
    world["a"].stop()
    for name in "bc":
        role = world[name].core.role
        assert isinstance(role, Follower)
        role.place = 0
        world[name].feed(ev.Unreachable("a"))
    world.run(0.3)
    assert world["b"].core.leads() or world["c"].core.leads()


def test_who_does_not_know_its_place_waits_for_those_who_do() -> None:
    world = World()
    lead(world)
    role = world["c"].core.role
    assert isinstance(role, Follower)
    role.place = -1
    world["c"].feed(ev.Unreachable("a"))
    assert turns(world)["c"] >= BLIND_S
