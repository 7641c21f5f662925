"""The short form of the kill campaign (`python -m tests.faults.kill` is the long one), and the checker on bad histories."""

import asyncio
from pathlib import Path

import pytest

from rmq.testing import until
from tests.faults.checker import Ack, Stored, problems
from tests.faults.kill import Campaign, campaign
from tests.faults.node import NodeProcess

ACKS = [Ack(0, 0, b"a"), Ack(0, 1, b"b"), Ack(1, 0, b"c")]
GOOD = {0: [Stored(0, b"a"), Stored(1, b"b")], 1: [Stored(0, b"c"), Stored(1, b"late")]}


@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path, flush: str) -> None:
    """D2, C1, C3, D12, G4: two kills at full speed."""
    done = await campaign(tmp_path / "store", flush, rounds=2, seed=7)
    assert [text for one in done for text in one.found] == []
    assert all(one.acknowledged >= 500 for one in done)
    assert any(one.in_flight for one in done), "no kill hit sends in flight (G4)"


async def test_a_node_that_ends_by_itself_is_told_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """What a build with a broken rule does: its assertion ends it before the blow that everybody waits for."""
    run = Campaign(NodeProcess(tmp_path / "store"), seed=1)
    run.enough = range(1 << 40, (1 << 40) + 1)
    await run.prepare()
    running = asyncio.create_task(run.round())
    try:
        await until(lambda: run.sent > 200)
        await run.node.kill()
        done = await asyncio.wait_for(running, 30)
    finally:
        await run.node.kill()
    assert ["ended by itself" in text for text in done.found] == [True]


def test_checker_passes_a_good_history() -> None:
    assert problems(ACKS, [b"late"], GOOD) == []


@pytest.mark.parametrize(
    ("queues", "word"),
    [
        ({0: [Stored(0, b"a")], 1: [Stored(0, b"c")]}, "lost"),
        ({0: [Stored(0, b"b"), Stored(1, b"a")], 1: [Stored(0, b"c")]}, "moved"),
        ({0: [Stored(0, b"a"), Stored(1, b"b"), Stored(3, b"late")], 1: [Stored(0, b"c")]}, "offset 3 where 2"),
        ({0: [Stored(0, b"a"), Stored(1, b"b")], 1: [Stored(0, b"c"), Stored(1, b"phantom")]}, "invented"),
        ({0: [Stored(0, b"a"), Stored(1, b"b")], 1: [Stored(0, b"c"), Stored(1, b"late"), Stored(2, b"late")]}, "2 times"),
    ],
)
def test_checker_flags_bad_histories(queues: dict[int, list[Stored]], word: str) -> None:
    """G3."""
    assert any(word in text for text in problems(ACKS, [b"late"], queues))
