"""The short form of `python -m tests.faults.kinds`, and its judges on bad histories."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.kinds import Batch, Step, batch_problems, campaign, light_problems, lite_problems, too_little

WHOLE, NOBODY_KNOWS, NOT_THERE = Batch((b"a", b"b"), (0, 1)), Batch((b"c", b"d"), None), Batch((b"e",), None)
STORED = [(0, b"z"), (1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]


def judged(stored: Sequence[tuple[int, bytes]]) -> str:
    return "\n".join(batch_problems([Batch((b"z",), (0, 0)), WHOLE, NOBODY_KNOWS, NOT_THERE], {0: stored}))


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        (STORED[:1], "(b'a', b'b') was answered with (0, 1)"),
        (STORED[:2], "is at [[(0, 1)], []]"),
        (STORED[:4], "(b'c', b'd')"),
        ([*STORED, (5, b"a")], "[[(0, 1), (0, 5)]"),
        ([*STORED, (6, b"e")], "without a gap"),
        ([*STORED, (5, b"y")], "invented"),
    ],
)
def test_the_judge_flags_batches_in_parts(stored: list[tuple[int, bytes]], word: str) -> None:
    """G3."""
    assert judged(STORED) == ""
    assert word in judged(stored)


@pytest.mark.parametrize(
    ("topic", "one", "word"),
    [
        ([1, 2], [(0, 1)], "3 is stored 0 times"),
        ([1, 2, 3, 3], [(0, 1), (1, 3), (2, 3)], "3 is stored 2 times"),
        ([1, 2, 3], [(0, 1)], "holds [1], and [1, 3] name it"),
        ([1, 2, 3], [(0, 3), (1, 1)], "holds [3, 1]"),
        ([1, 2, 3], [(0, 1), (2, 3)], "without a gap"),
    ],
)
def test_the_judge_flags_light_queues(topic: list[int], one: list[tuple[int, int]], word: str) -> None:
    """G3."""
    assert light_problems({1, 3}, [1, 2, 3], {"one": [(0, 1), (1, 3)]}) == []
    assert word in "\n".join(light_problems({1, 3}, topic, {"one": one}))


def test_what_comes_again_with_one_before_it_is_acknowledged_anew() -> None:
    """Of 0 and 1 only 1 was acknowledged, so both came again; then only 0 was, so 1 comes again."""
    twice = [("came", 0), ("came", 1), ("acknowledged", 1), ("came", 0), ("came", 1), ("acknowledged", 0), ("came", 1)]
    assert lite_problems(set(), [Step(what, "one", offset, offset) for what, offset in twice]) == []


def test_so_is_what_had_no_room_when_one_before_it_came_again() -> None:
    """Of 0 and 1 only 1 was acknowledged; 0 came again, the last of its answer, and 1 with the next one."""
    apart = [("came", 0), ("came", 1), ("acknowledged", 1), ("came", 0), ("acknowledged", 0), ("came", 1), ("acknowledged", 1)]
    history = [Step(what, "one", offset, offset) for what, offset in apart]
    assert lite_problems(set(), history) == []
    assert "1 came again" in "\n".join(lite_problems(set(), [*history, Step("came", "one", 1, 1)]))


@pytest.mark.parametrize(
    ("history", "word"),
    [
        ([("came", 0), ("acknowledged", 0)], "did not come"),
        ([("came", 1), ("came", 0)], "1 came behind -1"),
        ([("came", 0), ("acknowledged", 0), ("came", 0), ("came", 1)], "0 came again"),
    ],
)
def test_the_judge_flags_lite_topics(history: list[tuple[str, int]], word: str) -> None:
    """G3."""
    good = [Step(*one) for one in (("came", "a", 0, 0), ("came", "a", 0, 0), ("acknowledged", "a", 0, 0), ("came", "a", 1, 1))]
    assert lite_problems({("a", 0), ("a", 1)}, good) == []
    assert word in "\n".join(lite_problems({("a", 0), ("a", 1)}, [Step(what, "a", offset, offset) for what, offset in history]))


async def test_batches_light_queues_and_replies_outlive_their_leaders(tmp_path: Path) -> None:
    """C1, C2, D12: two kills, one of a cornered leader, and a pause."""
    result = await campaign(tmp_path, 2, 1, seed=3, rate=100.0)
    assert result.found == []
    assert too_little(result, 2, 1) == []
