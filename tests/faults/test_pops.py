"""The short form of `python -m tests.faults.pops`."""

from pathlib import Path

from tests.faults import pops


async def test_kill_9_of_leaders_while_messages_are_popped(tmp_path: Path) -> None:
    """C10, story 41: nothing is lost, nothing acknowledged comes back, nobody gets what another one has."""
    campaign, found = await pops.run(1, 3, 5, "async", tmp_path, urgent=True)
    assert not found
    assert campaign.covered["leader killed"]
    assert campaign.covered["that came back"] > 10
