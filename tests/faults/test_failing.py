"""The short form of the campaign with consumers that fail (`python -m tests.faults.failing`), and its judge on bad histories."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.failing import Try, campaign, failures, problems, too_little

FINE, TWICE, ALWAYS = 1, 12, 7
GOOD = [
    Try(FINE, 0, 0.0), Try(TWICE, 0, 0.1), Try(TWICE, 1, 1.2), Try(TWICE, 2, 2.3), Try(ALWAYS, 0, 0.2), Try(ALWAYS, 1, 1.3),
    Try(ALWAYS, 1, 1.9), Try(ALWAYS, 2, 2.5),
]  # fmt: skip


def judged(
    tries: Sequence[Try] = GOOD, dead: Sequence[int] = (ALWAYS, ALWAYS), acked: Sequence[int] = (FINE, TWICE, ALWAYS)
) -> str:
    return "\n".join(problems(acked, [], tries, dead))


def test_the_judge_passes_a_good_history() -> None:
    """With a message, and a dead letter, that came twice."""
    assert [failures(number) for number in (FINE, TWICE, ALWAYS)] == [0, 2, 3]
    assert judged() == ""


@pytest.mark.parametrize(
    ("left_out", "word"),
    [
        (GOOD[0], "1 was lost after 0"),
        (GOOD[2], "not one after the other"),
        (GOOD[3], "12 was lost after 2"),
        (GOOD[7], "7 was lost after 2"),
    ],
)
def test_the_judge_flags_what_is_missing(left_out: Try, word: str) -> None:
    """G3 for C1 and C10."""
    assert word in judged([one for one in GOOD if one != left_out])


def test_the_judge_flags_the_rest() -> None:
    """G3 for C2, C10 and C13: no dead letter, one too many, one try too many, invented, too early."""
    assert "7 was lost after its last try" in judged(dead=())
    assert "12 is a dead letter" in judged(dead=(ALWAYS, TWICE))
    assert "7 came 3 times again" in judged([*GOOD, Try(ALWAYS, 3, 9.0)])
    assert "1 came 1 times again" in judged([*GOOD, Try(FINE, 1, 9.0)])
    assert "12 was invented" in judged(acked=(FINE, ALWAYS))
    assert "12 came again after 0.60 s" in judged([one if one.at_s != 1.2 else one._replace(at_s=0.7) for one in GOOD])


async def test_no_failed_message_is_lost_by_kills_and_a_pause(tmp_path: Path) -> None:
    """C10, C13: leaders and consumers die while messages fail."""
    result = await campaign(tmp_path, 2, 1, seed=3, rate=150.0)
    assert result.found == []
    assert too_little(result, 2, 1) == []
    assert result.covered["kill of a cornered leader"]
    assert result.covered["consumer that died"]
