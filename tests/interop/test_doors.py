"""RocketMQ's gRPC client for Java at our door. `python -m tests.interop.doors` compares with RocketMQ's own proxy."""

from tests.door.caller import door
from tests.interop import doors, lites


async def test_all_kinds_of_messages() -> None:
    """Simple and push consumers, by tag and in order; tries, compressed bodies, delays, transactions."""
    assert sorted(await doors.at_our_door()) == sorted(doors.EXPECTED)


async def test_lite_topics() -> None:
    assert await lites.consumed(door) == []
