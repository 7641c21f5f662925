"""The short form of the campaign on a group (`python -m tests.faults.group` is the long one); its checker on bad histories."""

from collections.abc import Sequence
from pathlib import Path

from tests.faults.checker import Stored
from tests.faults.failover import measure
from tests.faults.group import campaign
from tests.faults.history import ACKED, REFUSED, UNKNOWN, Attempt, Delivery, History, Lead, problems, unequal
from tests.faults.netns import possible

ATTEMPTS = [
    Attempt(0, b"a", 1.0, 1.1, ACKED, 0),
    Attempt(0, b"b", 1.2, 1.3, ACKED, 1),
    Attempt(1, b"c", 1.0, 1.4, ACKED, 0),
    Attempt(1, b"late", 1.0, 1.4, UNKNOWN),
    Attempt(1, b"no", 1.0, 1.4, REFUSED),
]
QUEUES = {0: [Stored(0, b"a"), Stored(1, b"b")], 1: [Stored(0, b"c"), Stored(1, b"late")]}
A, B, C, LATE = Delivery(0, 0, b"a", 2.0), Delivery(0, 1, b"b", 2.1), Delivery(1, 0, b"c", 2.2), Delivery(1, 1, b"late", 2.3)
LEADS = [Lead(1, "n0"), Lead(2, "n1"), Lead(1, "n0")]


def judged(
    attempts: Sequence[Attempt] = ATTEMPTS,
    delivered: Sequence[Delivery] = (A, B, C, A, B, LATE),
    read: Sequence[Delivery] = (A, B),
    queues: dict[int, list[Stored]] = QUEUES,
    leads: Sequence[Lead] = LEADS,
) -> list[str]:
    return problems(History(attempts, [delivered], read, queues, leads))


def test_checker_passes_a_good_history() -> None:
    """With an unknown outcome that was stored, and messages that came twice."""
    assert judged() == []


def test_checker_flags_lost_duplicated_phantom_and_moved_messages() -> None:
    """G3 for C1-C3."""
    assert any("lost" in text for text in judged(queues={0: QUEUES[0][:1], 1: QUEUES[1]}))
    assert any("2 times" in text for text in judged(queues={**QUEUES, 1: [*QUEUES[1], Stored(2, b"late")]}))
    assert any("invented" in text for text in judged(queues={**QUEUES, 1: [*QUEUES[1], Stored(2, b"ghost")]}))
    assert any("invented" in text for text in judged(queues={**QUEUES, 1: [*QUEUES[1], Stored(2, b"no")]})), "it was refused"
    assert any("moved" in text for text in judged(queues={**QUEUES, 0: [Stored(0, b"b"), Stored(1, b"a")]}))


def test_checker_flags_an_offset_that_changed_its_message() -> None:
    """G3 for C3: at any node, at any time."""
    assert any("changed" in text for text in judged(read=[Delivery(0, 1, b"late", 1.5)]))
    assert any("changed" in text for text in judged(delivered=[Delivery(0, 0, b"c", 1.5), A, B, C, LATE]))


def test_checker_flags_sends_that_are_stored_before_earlier_ones() -> None:
    """G3 for C4: b began after a was acknowledged."""
    swapped = [ATTEMPTS[0]._replace(offset=1), ATTEMPTS[1]._replace(offset=0), *ATTEMPTS[2:]]
    assert any("order" in text for text in judged(swapped, queues={**QUEUES, 0: [Stored(0, b"b"), Stored(1, b"a")]}))


def test_checker_flags_bad_deliveries() -> None:
    """G3 for C1, C4, C5: never handed out, a gap, from the start again after a long time."""
    assert any("undelivered" in text for text in judged(delivered=[A, C]))
    assert any("skipped" in text for text in judged(delivered=[A, C, LATE, Delivery(0, 2, b"b", 3.0)]))
    assert any("again" in text for text in judged(delivered=[A, B, C, LATE, A._replace(at_s=90.0)]))


def test_checker_flags_two_leaders_and_logs_that_differ() -> None:
    """G3 for R1, R2."""
    assert any("two leaders" in text for text in judged(leads=[*LEADS, Lead(2, "n2")]))
    assert unequal({"n0": b"same", "n1": b"same"}) == []
    assert unequal({"n0": b"same", "n1": b"same", "n2": b"other"})


def test_checker_follows_a_queue_from_one_consumer_to_the_next() -> None:
    """G3 for C5: what the first one did not commit comes again to the second; what is left out between them is found."""
    assert judged(delivered=[A, C, B._replace(at_s=3.0), B._replace(at_s=9.0), LATE]) == []
    third = {**QUEUES, 0: [*QUEUES[0], Stored(2, b"d")]}
    sends = [*ATTEMPTS, Attempt(0, b"d", 1.5, 1.6, ACKED, 2)]
    assert any("skipped" in text for text in judged(sends, [A, C, LATE, Delivery(0, 2, b"d", 3.0), B], queues=third))


async def test_nothing_acknowledged_is_lost_by_kills_a_pause_and_a_partition(tmp_path: Path) -> None:
    """C1-C5, R1-R4, G4: three real nodes and two nameservers; consumers come and die; cuts where namespaces can be made."""
    faults = ["kill", "kill", "pause", *(["partition"] if possible() else [])]
    result = await campaign(tmp_path, faults, seed=3, rate=100.0, longest_s=2.0, stays_s=(1.0, 3.0))
    assert result.found == []
    assert result.faults["consumer that died"]
    assert result.leader_changes >= 1
    assert result.failovers, "no leader was killed (G4)"
    assert max(result.failovers) < 10.0
    assert result.outcomes[ACKED] > 400


async def test_a_rolling_restart_fails_no_send(tmp_path: Path) -> None:
    """L1: every node in turn is stopped in order and started again, while producers send."""
    result = await campaign(tmp_path, ["restart"], seed=1, rate=100.0)
    assert result.found == []
    assert result.leader_changes >= 1
    assert set(result.outcomes) == {ACKED}


async def test_a_master_with_slaves_loses_nothing(tmp_path: Path) -> None:
    """Nobody is elected: a killed master is the master again, and hands over to a slave that then stays it."""
    result = await campaign(tmp_path, ["kill", "kill", "handover"], seed=2, rate=100.0, fixed=True)
    assert result.found == []
    assert result.faults["kill of a leader"]
    assert result.leader_changes >= 2
    assert result.outcomes[ACKED] > 100


async def test_after_a_kill_both_kinds_of_clients_are_answered_again(tmp_path: Path) -> None:
    """The short form of `tests.faults.failover`."""
    native, remoting = await measure(tmp_path, 1, 1)
    assert len(native) == len(remoting) == 1
