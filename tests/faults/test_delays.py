"""The short form of `python -m tests.faults.delays`."""

from pathlib import Path

from tests.faults import delays


async def test_kill_9_while_messages_fall_due(tmp_path: Path) -> None:
    """C13: each once, none early, none lost."""
    campaign, found = await delays.run(delays.One(tmp_path, "async"), 2, 7)
    assert not found
    assert campaign.crossed > 10
