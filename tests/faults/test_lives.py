"""The short form of `python -m tests.faults.lives`, and what it is worth."""

from pathlib import Path

from tests.faults.lives import campaign, too_little


async def test_deletions_while_messages_of_all_kinds_wait(tmp_path: Path) -> None:
    """Story 35, D12: nothing reaches another life of its topic, a leader dies on the way, and all nodes end the same."""
    result = await campaign(tmp_path, 60, 1, seed=3, at_once=24)
    assert result.found == []
    assert too_little(result, 50, 1) == []


async def test_the_campaign_finds_what_it_looks_for(tmp_path: Path) -> None:
    """G3: nodes without the rules that keep lives apart."""
    result = await campaign(tmp_path, 6000, 0, seed=3, planted=True)
    assert result.found
    assert result.deletions < 6000, "it stopped there"
