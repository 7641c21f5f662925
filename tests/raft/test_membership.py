"""Handing over and membership as short stories on toy logs."""

from rmq.model import Voter
from rmq.raft import effects as fx, events as ev, leading, messages as m
from rmq.raft.roles import Candidate, Follower, Leader
from tests.raft.toy import World, lead

# --- handing over -----------------------------------------------------------------------------------------------------


def test_transfer() -> None:
    world = World()
    lead(world, count=2)
    world["a"].feed(ev.Transfer("c", "ticket"))
    assert not world["a"].core.accepts()
    world.run(0.2)
    assert world["c"].core.leads()
    assert world["a"].done == {"ticket": ""}
    assert world["c"].epoch == 2
    world["c"].write()
    world.run(0.5)
    assert world["a"].committed == 50


def test_a_young_leader_waits_for_the_node_it_shall_hand_over_to() -> None:
    """Elected by one, asked to hand over to the other, which has not asked for bytes yet."""
    world = World()
    world.isolate("c")
    world.elect("a")
    world["a"].feed(ev.Transfer("c", "ticket"))
    assert world["a"].done == {}
    world.cut.clear()
    world.run(1.0)
    assert world["a"].done == {"ticket": ""}
    assert world["c"].core.leads()


def test_a_node_that_has_not_come_for_long_is_refused_at_once() -> None:
    world = World()
    world.isolate("c")
    world.elect("a")
    world.run(2.5)
    world["a"].feed(ev.Transfer("c", "ticket"))
    assert "cannot lead now" in world["a"].done["ticket"]
    world["a"].feed(ev.Transfer("a", "to itself"))
    assert "'a' leads already" in world["a"].done["to itself"]
    world["a"].feed(ev.Transfer("d", "to nobody"))
    assert "'d' does not vote" in world["a"].done["to nobody"]
    assert world["a"].core.accepts()


def test_transfer_to_a_dead_node_is_given_up() -> None:
    world = World()
    lead(world)
    world["c"].stop()
    world["a"].write()
    world["a"].feed(ev.Transfer("c", "ticket"))
    world.run(2.2)
    assert "in time" in world["a"].done["ticket"]
    assert world["a"].core.accepts()


def test_a_node_that_stops_is_no_successor() -> None:
    """Two are stopped at once: the third leads, though it is not the first by name."""
    world = World()
    lead(world)
    world["b"].feed(ev.Stop())
    world.deliver()
    world["a"].feed(ev.Stop())
    world["a"].feed(ev.Transfer("", "ticket"))
    world.run(0.2)
    assert world["a"].done == {"ticket": ""}
    assert world["c"].core.leads()


def test_a_successor_that_stops_just_then_is_given_up() -> None:
    """It says so with a fetch of its own, though one is parked at the leader; another transfer takes the next one."""
    world = World()
    lead(world)
    world["a"].write()
    world["a"].feed(ev.Transfer("", "first"))
    world["b"].feed(ev.Stop())
    world.deliver()
    world.tick("a")
    assert "b did not get everything" in world["a"].done["first"]
    world["a"].feed(ev.Transfer("", "second"))
    world.run(0.2)
    assert world["a"].done["second"] == ""
    assert world["c"].core.leads()


def test_who_is_asked_to_lead_and_stops_leaves_it_to_the_next() -> None:
    world = World()
    lead(world)
    world["a"].feed(ev.Transfer("b", "ticket"))
    world.tick("a")
    world["b"].feed(ev.Stop())
    world.run(1.0)
    assert world["c"].core.leads()
    assert world["a"].core.leader == "c"


def test_a_candidate_that_stops_stands_no_more() -> None:
    world = World()
    world.isolate("b")
    world.run(4.0)
    assert isinstance(world["b"].core.role, Candidate)
    world["b"].feed(ev.Stop())
    world.run(4.0)
    assert isinstance(world["b"].core.role, Follower)


def test_of_five_leadership_goes_when_everything_is_committed() -> None:
    """No send may end as unknown because of a transfer: one successor that has it all is no majority."""
    world = World("abcde")
    lead(world)
    world.cut |= {("a", name) for name in "cde"}
    world["a"].write()
    world["a"].feed(ev.Transfer("b", "ticket"))
    world.run(0.2)
    assert world["a"].core.leads()
    assert "ticket" not in world["a"].done
    world.cut.clear()
    world.run(1.5)
    assert world["a"].done == {"ticket": ""}
    assert world["b"].core.leads()


def test_leader_disk_full_hands_over() -> None:
    """Story 61."""
    world = World()
    lead(world)
    world["b"].feed(ev.Health(disk_full=True))
    world.run(0.5)
    world["a"].feed(ev.Health(disk_full=True))
    world.run(3.0)
    assert world["c"].core.leads()


def test_full_follower_does_not_stop_group() -> None:
    """Story 62: it gets no bytes, hears that its leader lives, and does not stand."""
    world = World()
    lead(world)
    world["b"].feed(ev.Health(disk_full=True))
    world.run(0.5)
    world["a"].write(2)
    world.run(10.0)
    assert world["a"].committed == 30
    assert world["b"].end == 10
    assert world["b"].core.leader == "a"
    world["b"].feed(ev.Health())
    world.run(1.0)
    assert world["b"].end == 30


def test_damaged_node_not_elected() -> None:
    """Story 48, D8: it stands only when nobody else does."""
    world = World()
    lead(world)
    world["b"].feed(ev.Health(damaged=True))
    world["a"].stop()
    world.run(4.0)
    assert world["c"].core.leads()


# --- membership -------------------------------------------------------------------------------------------------------


def grow(world: World, name: str = "d") -> None:
    world.add(name, ())
    world["a"].feed(ev.Join(name, f"{name}:1", "join"))
    world.run(3.0)


def test_a_node_joins_and_counts() -> None:
    """R22: a learner first, then one record."""
    world = World()
    lead(world, count=2)
    grow(world)
    assert world["a"].done == {"join": ""}
    assert [voter.node for voter in world["d"].core.state.voters] == list("abcd")
    world["b"].stop()
    world["c"].stop()
    committed = world["a"].committed
    world["a"].write()
    world.run(0.5)
    assert world["a"].committed == committed  # two of four


def test_a_node_that_is_not_where_it_is_said_to_be_does_not_join() -> None:
    """It fetches from wherever it is. Were it a voter, nobody could reach it once it leads."""
    world = World()
    lead(world, count=2)
    leader = world["a"]
    world.add("d", leader.lists)
    leader.feed(ev.Join("d", "nowhere:1", "ticket"))
    until = world.now + 20.0
    while world.now < until and "ticket" not in leader.done:
        world.now += 0.02
        world.tick()
        world["d"].core.role.leader = "a"  # type: ignore[union-attr] # its own settings name it
        world.deliver(lambda letter: not (letter.to == "d" and isinstance(letter.request, m.Announce)))
        world.post.clear()
    assert "does not answer at nowhere:1" in leader.done["ticket"]
    assert {voter.node for voter in leader.core.state.voters} == set("abc")


def test_a_node_is_not_added_with_the_address_of_another() -> None:
    """`localhost:1` beside `127.0.0.1:1`: any answer counted, so the group had a voter that nobody can reach. Members of older
    releases do not say who they are."""
    world = World()
    lead(world, count=2)
    leader = world["a"]
    for ticket, by, refusal in (("other", "b", "'b' answers at B:1, not 'd'"), ("old", "", "")):
        leader.feed(ev.Join("d", "B:1", ticket))
        leader.feed(ev.Tick())
        asked = m.Announce(leader.epoch, "a", "a:1", leader.core.state.voters, "B:1")
        leader.feed(ev.PeerAnswer("d", asked, m.EpochAnswer(leader.epoch, by)))
        assert leader.done.get(ticket, "").startswith(refusal)
    assert isinstance(leader.core.role, Leader)
    assert leader.core.role.reached == {"d"}


def test_an_answer_from_an_address_that_was_corrected_says_nothing() -> None:
    """`addPeer` was repeated with another address while the first one was still being asked."""
    world = World()
    lead(world, count=2)
    leader = world["a"]
    leader.feed(ev.Join("d", "one:1", "first"))
    asked = m.Announce(leader.epoch, "a", "a:1", leader.core.state.voters, "one:1")
    leader.feed(ev.Join("d", "two:1", "second"))
    for by in ("d", "b"):
        leader.feed(ev.PeerAnswer("d", asked, m.EpochAnswer(leader.epoch, by)))
    assert isinstance(leader.core.role, Leader)
    assert not leader.core.role.reached
    assert leader.done == {"first": "it was asked for again"}


def test_a_learner_that_has_not_everything_is_no_voter() -> None:
    """L1: as a voter whose vote does not count it could be one too many to wait for."""
    world = World()
    lead(world, count=2)
    world.add("d", ())
    world["a"].feed(ev.Join("d", "d:1", "join"))
    for _ in range(200):
        world.now += 0.02
        world.tick()
        world.deliver(lambda letter: not (letter.to == "d" and isinstance(letter.answer, m.FetchOk)))
    assert len(world["a"].core.state.voters) == 3
    world.run(3.0)
    assert world["a"].done == {"join": ""}


def test_no_change_before_an_entry_of_this_epoch_is_committed() -> None:
    """R22: else two leaders in turn could begin changes that share no majority."""
    world = World(sync_flush=True)
    a = world.elect("a")
    a.feed(ev.Leave("c", "leave"))
    world.run(1.0)
    assert len(a.of(fx.AppendEpoch)) == 1
    for name in "ab":
        world[name].flush()
    world.run(0.5)
    assert len(a.of(fx.AppendEpoch)) == 2
    assert a.done == {}
    for name in "ab":
        world[name].flush()
    world.run(0.5)
    assert a.done == {"leave": ""}


def test_a_node_that_is_needed_cannot_be_removed() -> None:
    """L1: c is dead, so without b nothing could be decided any more, and b alone could not undo it."""
    world = World()
    lead(world)
    world["c"].stop()
    world.run(2.0)
    world["a"].feed(ev.Leave("b", "leave"))
    world.run(1.0)
    assert "too few are up" in world["a"].done["leave"]
    world["a"].feed(ev.Leave("c", "leave dead"))
    world.run(1.0)
    assert world["a"].done["leave dead"] == ""
    assert world["a"].core.leads()


def test_not_all_are_removed_together() -> None:
    """R22: each was one of several when it was asked for, and the list that came of it named nobody: nobody was ever elected."""
    world = World()
    lead(world)
    a = world["a"]
    for node in "cba":
        a.feed(ev.Leave(node, node))
    world.run(3.0)
    assert a.done == {"a": "'a' cannot be removed: nobody would be left", "c": "", "b": ""}
    assert a.core.leads()
    assert [voter.node for voter in a.core.state.voters] == ["a"]


def test_who_removes_a_node_is_answered_once() -> None:
    """Found by changes of members in the midst of kills: leadership was lost before the removal was committed, and who had asked
    for it was answered twice, for the change and for the wish. That ended the node as a bug."""
    world = World()
    lead(world)
    a = world["a"]
    a.feed(ev.Leave("c", "first"))
    a.feed(ev.Leave("c", "second"))
    assert a.done == {"first": "it was asked for again"}
    world.isolate("a")
    a.feed(ev.Tick())
    assert a.of(fx.AppendEpoch)[-1].kind == "voters"  # type: ignore[union-attr]
    world.run(3.0)
    assert not a.core.leads()
    answered = [effect.ticket for effect in a.of(fx.Done) if effect.ticket]  # type: ignore[union-attr]
    assert answered == ["first", "second"]
    assert a.done["second"].startswith("outcome unknown")


def test_leader_removed_itself() -> None:
    """Story 60: it does not count itself while the record is committed, then it goes."""
    world = World()
    lead(world)
    world["a"].feed(ev.Leave("a", "leave"))
    world.run(3.0)
    assert world["a"].done == {"leave": ""}
    assert world.leader().name in "bc"
    assert [voter.node for voter in world.leader().core.state.voters] == ["b", "c"]
    world.run(10.0)
    assert isinstance(world["a"].core.role, Follower)


def test_leader_that_removes_itself_may_still_be_needed() -> None:
    """L1: its log is the longest, the others have lost theirs and need everybody: it stands once more, and then goes."""
    world = World()
    lead(world)
    world.isolate("a")
    world["a"].feed(ev.Leave("a", "leave"))
    world.run(0.1)
    assert [voter.node for voter in world["a"].core.state.voters] == ["b", "c"]
    for node in world.nodes.values():
        node.stop()
        node.proven = False
    world.cut.clear()
    for node in world.nodes.values():
        node.start()
    world.run(15.0)
    assert world.leader().name in "bc"
    assert [voter.node for voter in world.leader().core.state.voters] == ["b", "c"]


def test_voters_change_cut_is_undone() -> None:
    """Story 59, R22: the list that was never committed goes with its record."""
    world = World()
    lead(world)
    world.isolate("a")
    world["a"].feed(ev.Leave("c", "leave"))
    world.run(0.1)
    assert [voter.node for voter in world["a"].core.state.voters] == ["a", "b"]
    world.elect("b").write()
    world.run(4.0)
    assert "unknown" in world["a"].done["leave"]
    world.cut.clear()
    while not world["a"].of(fx.Cut):
        world.now += 0.02
        world.tick()
        while world.post and not world["a"].of(fx.Cut):
            world.hand(world.post.pop(0))
    assert [voter.node for voter in world["a"].core.state.voters] == list("abc")
    world.run(3.0)
    assert [voter.node for voter in world["a"].core.state.voters] == list("abc")


def test_new_disk_swap_is_two_changes() -> None:
    """Stories 66, 23: the new store is added, then the old one removed; the old disk is refused for good."""
    world = World()
    lead(world, count=2)
    old = world["c"]
    old.stop()
    del world.nodes["c"]
    new = world.add("c", ((-1, tuple(Voter(name, "", f"{name}:1") for name in "abc")),))
    new.store = "s-new"
    new.boot()
    world.run(4.0)
    lists = [[voter.store for voter in effect.voters] for effect in world["a"].of(fx.AppendEpoch)[1:]]  # type: ignore[union-attr]
    assert lists == [["s-a", "s-b", "s-c", "s-new"], ["s-a", "s-b", "s-new"]]
    assert new.proven
    world.nodes["c"] = old
    old.start()
    world.run(2.0)
    assert any("took the place" in effect.text for effect in old.of(fx.Warn))  # type: ignore[union-attr]
    assert world["a"].core.leads()


def test_a_new_disk_that_is_lost_while_it_takes_its_place_stops_nobody() -> None:
    """Story 66, L1: both disks of a node stand in the list and are gone. The others go on, and the next disk comes."""
    world = World()
    lead(world, count=2)
    a, names = world["a"], ((-1, tuple(Voter(name, "", f"{name}:1") for name in "abc")),)

    def replace(store: str) -> None:
        world.nodes.pop("c").stop()
        new = world.add("c", names)
        new.store = store
        new.boot()

    replace("s-new")
    while len(a.core.state.voters) == 3:
        world.now += 0.02
        world.tick()
        while world.post and len(a.core.state.voters) == 3:
            world.hand(world.post.pop(0))
    world.isolate("c")
    replace("s-newer")
    world.run(10.0)
    a.write()
    world.run(1.0)
    assert a.core.leads()
    assert a.committed == a.end
    world.cut.clear()
    world.run(4.0)
    assert [voter.store for voter in a.core.state.voters] == ["s-a", "s-b", "s-newer"]


def test_who_left_and_never_voted_is_not_missed() -> None:
    """Its adding was taken back, or it was a new disk that was lost again."""
    world = World()
    lead(world)
    a, new = world["a"], world.add("d", ())
    a.feed(ev.Join("d", "d:1", "add"))
    world.run(0.6)
    assert isinstance(a.core.role, Leader)
    assert "s-d" in a.core.role.peers
    a.feed(ev.Leave("d", "leave"))
    new.stop()
    world.run(leading.LEFT_S + 0.2)
    assert a.done == {"add": "taken back", "leave": ""}
    assert sorted(a.core.role.peers) == ["s-a", "s-b", "s-c"]


def test_a_removed_node_disturbs_nobody() -> None:
    world = World()
    lead(world)
    world.isolate("c")
    world["a"].feed(ev.Leave("c", "leave"))
    world.run(3.0)
    assert world["a"].done == {"leave": ""}
    world.cut.clear()
    world.run(30.0)
    assert world["a"].core.leads()
    assert world["a"].epoch == 1
    assert isinstance(world["a"].core.role, Leader)


def test_a_removed_node_counts_for_nothing() -> None:
    """R6, R22: neither its acknowledgement nor its vote, also its own; and it stands no more once it knows."""
    world = World()
    lead(world)
    a = world["a"]
    a.feed(ev.Leave("a", "leave"))
    world.run(0.02)
    world.isolate("b", "c")
    world.post.clear()
    before = a.core.state.hw
    a.feed(ev.Flushed(a.end))
    world.run(0.1)
    assert [voter.node for voter in a.core.state.voters] == ["b", "c"]
    assert a.core.state.hw == before, "it alone commits nothing, not even that it is out"
    assert not a.core.lease_good(world.now + 1.4), "nor does it keep leadership"
    world.cut.clear()
    world.run(10.0)
    assert world.leader().name in "bc"
    assert [voter.node for voter in world["b"].core.state.voters] == ["b", "c"]
    a.stop()
    a.start()
    epoch = world.leader().epoch
    world.isolate("a")
    world.run(10.0)
    assert not a.core.leads()
    assert world.leader().epoch == epoch


def test_a_node_is_added_once_and_few_at_a_time() -> None:
    world = World()
    lead(world)
    a = world["a"]
    a.feed(ev.Join("b", "other:1", "known"))
    a.feed(ev.Join("x", "b:1", "same place"))
    for number in range(9):
        a.feed(ev.Join(f"n{number}", f"n{number}:1", number))
    a.feed(ev.Join("n0", "elsewhere:1", "again"))
    assert "already" in a.done["known"]
    assert "another member" in a.done["same place"]
    assert "are being added" in a.done[8]
    assert 7 not in a.done
    a.feed(ev.Leave("n1", "taken back"))
    a.feed(ev.Join("n0", "elsewhere:1", "again"))
    assert a.done[0] == "it was asked for again"
