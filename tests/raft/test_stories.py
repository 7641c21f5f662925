"""Dangers of replication as short stories on toy logs. The same machine on real logs: tests/sim.

The numbers are those of the list in docs/invariants.
"""

import pytest

from rmq.model import Voter
from rmq.raft import effects as fx, events as ev, messages as m
from rmq.raft.roles import Candidate, Follower, Leader
from tests.raft.toy import Letter, World, lead

# --- elections --------------------------------------------------------------------------------------------------------


def test_a_group_elects_writes_and_commits() -> None:
    world = World()
    world.run(4.0)
    leader = world.leader()
    leader.write(3)
    world.run(0.5)
    assert {node.end for node in world.nodes.values()} == {40}
    assert {node.committed for node in world.nodes.values()} == {40}
    assert {node.core.leader for node in world.nodes.values()} == {leader.name}
    assert leader.of(fx.AppendEpoch)[0].entry.lossy is False  # type: ignore[union-attr]


def test_without_faults_no_epoch_rises() -> None:
    """L2, R10."""
    world = World()
    world.run(4.0)
    epoch = world.leader().epoch
    world.run(60.0)
    assert {node.epoch for node in world.nodes.values()} == {epoch}


def test_alone_it_leads_at_once() -> None:
    world = World("a", formed=False)
    world.tick()
    assert world["a"].core.leads()
    world["a"].write()
    assert world["a"].committed == 20
    assert world["a"].proven


def test_the_vote_is_durable_before_anything_leaves() -> None:
    """R8: candidacy, vote answers and fetches of an epoch come after its SaveVote."""
    world = World()
    lead(world)
    for node in world.nodes.values():
        saved = 0
        for effect in node.effects:
            if isinstance(effect, fx.SaveVote):
                saved = effect.epoch
            elif isinstance(effect, fx.Send) and not (isinstance(effect.request, m.Vote) and effect.request.pre):
                assert effect.request.epoch <= saved
            elif isinstance(effect, fx.Reply):
                assert effect.answer.epoch <= saved


def test_forgotten_vote() -> None:
    """Story 11, R8: one vote an epoch, also across a restart, and the same one again is no second."""
    world = World()
    first = m.Vote(5, "a", "s-a", 0, 0, False, False)
    c = world["c"]
    c.feed(ev.PeerRequest(first, ("a", first)))
    c.stop()
    c.start()
    for vote in (first._replace(candidate="b", store="s-b"), first):
        c.feed(ev.PeerRequest(vote, (vote.candidate, vote)))
    answers = [effect.answer for effect in c.of(fx.Reply)]  # type: ignore[union-attr]
    assert [answer.granted for answer in answers] == [True, False, True]


@pytest.mark.parametrize("pre", [True, False])
def test_behind_candidate_refused_in_vote_not_only_prevote(pre: bool) -> None:
    """Story 14, R9: the log decides, in both rounds."""
    world = World()
    lead(world, count=2)
    c = world["c"]
    c.feed(ev.Unreachable("a"))
    for end, granted in ((20, False), (30, True), (40, True)):
        vote = m.Vote(c.epoch + 1, "b", "s-b", c.epoch, end, pre, False)
        c.feed(ev.PeerRequest(vote, ("b", vote)))
        answer = c.of(fx.Reply)[-1].answer  # type: ignore[union-attr]
        assert answer.granted is granted, answer
        if granted:
            break


@pytest.mark.parametrize("pre", [True, False])
def test_a_longer_log_of_an_older_epoch_is_behind(pre: bool) -> None:
    """R9: what counts first is the epoch of the last entry; length only among equals."""
    world = World()
    lead(world, count=2)
    c = world["c"]
    c.feed(ev.Unreachable("a"))
    for last_epoch, end, granted in ((0, 900, False), (2, 10, True)):
        vote = m.Vote(c.epoch + 1, "b", "s-b", last_epoch, end, pre, False)
        c.feed(ev.PeerRequest(vote, ("b", vote)))
        assert c.of(fx.Reply)[-1].answer.granted is granted  # type: ignore[union-attr]


def test_isolated_node_returns_epoch_unchanged() -> None:
    """Story 15, R10: it asked in vain for a long time; nobody's epoch rose."""
    world = World()
    lead(world)
    world.isolate("c")
    world.run(30.0)
    assert isinstance(world["c"].core.role, Candidate)
    world.cut.clear()
    world["a"].write()
    world.run(2.0)
    assert world["a"].core.leads()
    assert {node.epoch for node in world.nodes.values()} == {1}
    assert world["c"].committed == 20


def test_a_killed_leader_is_replaced_within_a_second() -> None:
    """L1: a refused connection says more than silence."""
    world = World()
    lead(world)
    world["a"].stop()
    for name in "bc":
        world[name].feed(ev.Unreachable("a"))
    start = world.now
    while not any(world[name].core.leads() for name in "bc"):
        world.run(0.02)
    assert world.now - start < 0.6


def test_late_loop_starts_no_election() -> None:
    """Story 30, T2: after a pause the sockets speak first, and every timer begins anew."""
    world = World()
    lead(world)
    world.now += 60.0
    world.tick("b", "c")
    assert all(isinstance(world[name].core.role, Follower) for name in "bc")
    world.run(1.0)
    assert {node.epoch for node in world.nodes.values()} == {1}


def test_one_way_cut_follower_does_not_disturb() -> None:
    """L2: it hears nobody, everybody hears it."""
    world = World()
    lead(world)
    world.cut = {("a", "c"), ("b", "c")}
    world.run(30.0)
    assert world["a"].core.leads()
    assert {world[name].epoch for name in "ab"} == {1}


def test_who_alone_hears_no_leader_does_not_disturb() -> None:
    """L2, R10: its log is as good as any, but the others are in touch with the leader and say so."""
    world = World()
    lead(world)
    world.cut = {("a", "c")}
    world.run(30.0)
    assert isinstance(world["c"].core.role, Candidate)
    assert world["a"].core.leads()
    assert {node.epoch for node in world.nodes.values()} == {1}
    world.cut.clear()
    world.run(2.0)
    assert world["c"].core.leader == "a"


# --- who may win ------------------------------------------------------------------------------------------------------


def test_bootstrap_needs_all() -> None:
    """Story 24: two of three blank disks might be the two that were wiped."""
    world = World(formed=False)
    world["c"].stop()
    world.run(10.0)
    assert not any(node.core.leads() for node in world.nodes.values())
    world["c"].start()
    world.run(4.0)
    leader = world.leader()
    assert leader.core.state.voters == tuple(Voter(name, f"s-{name}", f"{name}:1") for name in "abc")
    assert all(node.proven for node in world.nodes.values())
    assert not leader.of(fx.AppendEpoch)[0].entry.lossy  # type: ignore[union-attr]


def test_wiped_node_cannot_elect() -> None:
    """Story 22, D3: b and a blank c are a majority, but not one that knows what was committed."""
    world = World()
    lead(world, count=3)
    voters = world["a"].core.state.voters
    world["a"].stop()
    world["c"].stop()
    del world.nodes["c"]
    world.add("c", ((-1, voters),))
    world["b"].log = world["b"].log[:1]
    world["b"].stop()
    world["b"].start()
    world.run(20.0)
    assert not any(node.core.leads() for node in world.nodes.values() if node.alive)
    world["a"].start()
    world.run(5.0)
    world.leader().write()
    world.run(2.0)
    assert {node.end for node in world.nodes.values()} == {world.leader().end}
    assert world["c"].proven


def test_all_lose_power_longest_log_wins() -> None:
    """Story 21: under async flush; the new epoch says that committed messages may be gone."""
    world = World()
    lead(world, count=3)
    for name, kept in zip("abc", (1, 3, 2), strict=True):
        node = world[name]
        node.stop()
        node.log, node.proven = node.log[:kept], False
    for node in world.nodes.values():
        node.start()
    world.run(6.0)
    leader = world.leader()
    assert leader.name == "b"
    assert leader.of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]
    world.run(1.0)
    assert all(node.proven for node in world.nodes.values())


def test_an_administrator_ends_the_waiting_of_an_unproven_node() -> None:
    """`--unclean`: one of two nodes lost power and the third is gone; alone they wait, told so they go on, and say so."""
    world = World()
    lead(world, count=3)
    a, b, c = world["a"], world["b"], world["c"]
    for node in (a, b, c):
        node.stop()
    b.log, b.proven = b.log[:2], False
    c.log, c.proven = c.log[:2], False
    b.start()
    c.start()
    world.run(6.0)
    assert not any(isinstance(node.core.role, Leader) for node in (b, c))
    for node in (b, c):
        node.stop()
        node.proven = node.unclean = True
        node.start()
    world.run(6.0)
    assert world.leader().of(fx.AppendEpoch)[-1].entry.lossy  # type: ignore[union-attr]


def test_unproven_catches_up_then_votes() -> None:
    """Stories 19, 18: proven again once it has what was committed when it came back, not before."""
    world = World()
    lead(world, count=3)
    c = world["c"]
    c.stop()
    c.log, c.proven = c.log[:2], False
    c.start()
    world["a"].write()
    grown_at = [0]

    def small(letter: Letter) -> bool:
        if isinstance(letter.answer, m.FetchOk) and letter.to == "c" and letter.answer.data:
            assert not c.proven or c.end >= 50
            grown_at.append(c.end)
        return True

    for _ in range(100):
        world.now += 0.02
        world.tick()
        world.deliver(small)
    assert c.proven
    assert len(grown_at) > 2


def test_unproven_meets_new_leader_without_commit() -> None:
    """Story 20: a leader that has not committed in its epoch does not know yet what is committed."""
    world = World()
    lead(world, count=3)
    c = world["c"]
    c.stop()
    c.log, c.proven = c.log[:1], False
    c.start()
    announce = m.Announce(2, "b", "b:1", c.core.state.voters)
    c.feed(ev.PeerRequest(announce, ("b", announce)))
    for hw, proven in ((10, False), (50, False)):
        assert isinstance(c.core.role, Follower)
        request = c.core.role.fetch
        assert request is not None
        c.feed(ev.PeerAnswer("b", request, m.FetchOk(request.id, 2, "b", 10, b"", hw, 50, 0, 1.0)))
        assert c.proven is proven
    assert c.core.state.required == 50


def test_a_node_after_a_snapshot_serves_and_counts_when_it_has_everything() -> None:
    """R21, D3: until the log behind the snapshot is here, its tables are of no time that ever was, and its vote says so."""
    world = World()
    lead(world, count=3)
    c = world["c"]
    assert isinstance(c.core.role, Follower)
    request = c.core.role.fetch
    assert request is not None
    c.feed(ev.PeerAnswer("a", request, m.NeedsSnapshot(request.id, 1, 20, 30, 0)))
    assert c.of(fx.InstallSnapshot)
    c.flush()
    assert not c.proven  # though it has all it needed before: it is about to be deleted
    vote = m.Vote(2, "b", "s-b", 1, 40, True, True)
    c.feed(ev.PeerRequest(vote, ("b", vote)))
    assert not c.of(fx.Reply)[-1].answer.granted  # type: ignore[union-attr]
    c.log = []
    c.feed(ev.SnapshotInstalled(0, (), c.core.state.voters, 30))
    assert not c.core.serves_reads(world.now)
    c.flush()
    c.feed(ev.PeerRequest(vote, ("b", vote)))
    answer = c.of(fx.Reply)[-1].answer  # type: ignore[union-attr]
    assert (answer.granted, answer.proven) == (True, False)
    world.run(0.5)
    assert c.end == 40
    assert c.core.serves_reads(world.now)
    assert c.proven


def test_a_leader_that_dies_while_it_gives_a_snapshot_is_replaced() -> None:
    """L1: c's log is whole until the snapshot is there, so its vote says as much as before, and b needs it."""
    world = World()
    lead(world, count=2)
    c = world["c"]
    assert isinstance(c.core.role, Follower)
    assert c.core.role.fetch is not None
    c.feed(ev.PeerAnswer("a", c.core.role.fetch, m.NeedsSnapshot(c.core.role.fetch.id, 1, 10, 20, 0)))
    assert (c.proven, c.core.state.installing) == (False, True)
    world["a"].stop()
    c.feed(ev.InstallFailed())
    for name in "bc":
        world[name].feed(ev.Unreachable("a"))
    world.run(5.0)
    assert world.leader().name in "bc"


# --- committing -------------------------------------------------------------------------------------------------------


def test_early_commit_of_older_epoch() -> None:
    """Story 13, R6: an entry of an old epoch on a majority is not committed by that alone; a later leader may overwrite it."""
    world = World()
    lead(world)
    world.isolate("a")
    world["a"].write()
    world["a"].stop()
    world.cut.clear()
    world["a"].start()
    world["a"].batch = 1
    world["a"].core.role.stand_at = world.now  # type: ignore[union-attr]
    for name in "bc":
        world[name].feed(ev.Unreachable("a"))
    world.tick("a")
    world.deliver(lambda letter: not (isinstance(letter.request, m.Fetch) and letter.request.from_ == 20))
    a = world["a"]
    assert a.core.leads()
    assert [node.end for node in world.nodes.values()] == [30, 20, 20]
    acks = [letter for letter in world.post if isinstance(letter.request, m.Fetch)]
    assert [letter.request.ack for letter in acks] == [20, 20]  # type: ignore[union-attr]
    world.post.clear()
    for letter in acks:
        world.hand(letter)
        assert a.core.state.hw == 0
    world.deliver()
    assert a.core.state.hw == 30


def test_sync_flush_counts_what_is_durable() -> None:
    """R7, story 27: the leader itself too; and its own disk may be the last."""
    world = World(sync_flush=True)
    world.elect("a")
    for node in world.nodes.values():
        node.flush()
    world.run(0.2)
    assert world["a"].committed == 10
    world["a"].write()
    world.run(0.3)
    assert world["a"].committed == 10
    world["a"].flush()
    world.run(0.3)
    assert world["a"].committed == 10
    world["b"].flush()  # its fetch is parked: the acknowledgement comes by itself
    world.deliver()
    assert world["a"].committed == 20
    world["a"].write()
    world.run(0.1)
    for name in "bc":
        world[name].flush()
    world.deliver()
    assert world["a"].core.state.durable == 20
    assert world["a"].committed == 30


def test_never_cut_below_committed() -> None:
    """R15: it stops instead, and says why."""
    world = World()
    lead(world, count=3)
    b = world["b"]
    assert b.committed == 40
    assert isinstance(b.core.role, Follower)
    request = b.core.role.fetch
    assert request is not None
    b.feed(ev.PeerAnswer("a", request, m.Diverged(request.id, b.epoch, 1, 20, "s-a", False)))
    assert "committed" in b.core.stopped
    assert b.end == 40
    assert b.core.step(ev.Tick(), world.now) == []


def test_a_foreign_tail_is_cut() -> None:
    """R14, story 32: what only the old leader had goes when it comes back."""
    world = World()
    lead(world, count=2)
    world.isolate("a")
    world["a"].write(2)
    world.run(0.1)
    world.elect("b").write(1)
    world.run(4.0)
    assert not world["a"].core.leads()
    world.cut.clear()
    world.run(2.0)
    assert world["a"].log == world["b"].log
    assert world["a"].of(fx.Cut)[0].to == 30  # type: ignore[union-attr]


# --- lease ------------------------------------------------------------------------------------------------------------


def test_check_quorum_stops_acks_and_reads() -> None:
    """Story 29, R11: alone, it may not answer; a while later it steps down."""
    world = World()
    lead(world)
    core = world["a"].core
    assert core.lease_good(world.now)
    assert core.serves_reads(world.now)
    world.isolate("a")
    world.run(1.4)
    assert not core.lease_good(world.now)
    assert not core.serves_reads(world.now)
    assert core.leads()
    world.run(1.4)
    assert isinstance(core.role, Follower)
    assert world["a"].of(fx.SteppedDown)


def test_buffered_fetches_after_pause_renew_no_lease() -> None:
    """Story 28, R11, T2: only an echoed stamp tells when the follower wrote."""
    world = World()
    lead(world)
    world.tick("b", "c")
    world.now += 0.3
    world.tick("a")
    answers = list(world.post)
    world.post.clear()
    for letter in answers:
        world.hand(letter)
    buffered = list(world.post)
    assert any(isinstance(letter.request, m.Fetch) for letter in buffered)
    world.now += 20.0
    for letter in buffered:
        world.hand(letter)
    assert not world["a"].core.lease_good(world.now)


def test_new_leader_serves_no_read_before_its_own_commit() -> None:
    """R17."""
    world = World()
    lead(world, count=1)
    b = world.elect("b")
    b.core.state.hw = b.core.role.start_end - 1  # type: ignore[union-attr]
    assert not b.core.serves_reads(world.now)
    world.run(0.3)
    b.write()
    world.run(0.3)
    assert b.core.serves_reads(world.now)


def test_a_follower_knows_what_it_said_and_not_what_it_was_told() -> None:
    """Readers are sent to followers that have what comes next: an answer that got lost must not count."""
    world = World("abcde")
    lead(world, count=2)
    world.isolate("d", "e")
    leader = world["a"]
    role = leader.core.role
    assert isinstance(role, Leader)
    before = leader.committed
    leader.write()
    world.deliver(lambda letter: letter.source != "b")  # c has it and waits for more
    world.cut.add(("a", "c"))
    world.run(0.2)
    assert leader.committed == leader.end > before
    assert role.peers["s-b"].hw == leader.end
    assert role.peers["s-c"].hw == before
