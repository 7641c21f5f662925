"""The short form of the campaign with transactions (`python -m tests.faults.halves`), and its judge on bad histories."""

from pathlib import Path

from rmq.client import Decision
from tests.faults.halves import campaign, problems, too_little

BOOK = {"a": Decision.COMMIT, "b": Decision.ROLLBACK, "c": Decision.COMMIT}
SAID = {"a": Decision.COMMIT, "b": Decision.ROLLBACK}


def test_the_judge_passes_a_good_history() -> None:
    assert problems(BOOK, SAID, {"a": 1, "c": 1}, []) == []


def test_the_judge_flags_the_rest() -> None:
    """G3 for C11 and C12: lost, twice, rolled back and there all the same, invented, confirmed otherwise, asked after its end."""
    assert problems(BOOK, SAID, {"a": 1}, []) == ["c was decided COMMIT and lies there 0 times"]
    assert problems(BOOK, SAID, {"a": 2, "c": 1}, []) == ["a was decided COMMIT and lies there 2 times"]
    assert problems(BOOK, SAID, {"a": 1, "b": 1, "c": 1}, []) == ["b was decided ROLLBACK and lies there 1 times"]
    assert problems(BOOK, SAID, {"a": 1, "c": 1, "x": 1}, []) == ["x was delivered, nobody decided that"]
    assert problems(BOOK, {"b": Decision.COMMIT}, {"a": 1, "c": 1}, []) == ["b was confirmed as COMMIT"]
    assert problems(BOOK, SAID, {"a": 1, "c": 1}, ["a"]) == ["a was asked after when it had ended"]


async def test_each_transaction_has_one_end_over_kills_and_a_pause(tmp_path: Path) -> None:
    """C11, C12: leaders and producers die in the middle of transactions."""
    result = await campaign(tmp_path, 2, 1, seed=3, rate=60.0)
    assert result.found == []
    assert too_little(result, 2, 1) == []
    assert result.covered["kill of a cornered leader"]
    assert result.covered["producer that died"]
