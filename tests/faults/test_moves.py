"""The short form of `python -m tests.faults.moves`."""

from pathlib import Path

from tests.faults import moves


async def test_kill_9_of_leaders_while_groups_are_set_to_other_places(tmp_path: Path) -> None:
    """E6: groups that pull, pop, and pop in order; what was taken before is acknowledged after it."""
    campaign = await moves.run(tmp_path, 2, 3)
    assert not campaign.found
    assert campaign.covered["leader killed"] == campaign.covered["rounds"] == 2
