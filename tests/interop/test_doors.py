"""RocketMQ's gRPC client for Java at our door. `python -m tests.interop.doors` compares with RocketMQ's own proxy."""

import pytest

from tests.door.caller import door
from tests.interop import doors, java, lites

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_all_kinds_of_messages() -> None:
    """Simple and push consumers, by tag and in order; tries, compressed bodies, delays, transactions."""
    assert sorted(await doors.at_our_door()) == sorted(doors.EXPECTED)


async def test_lite_topics() -> None:
    assert await lites.consumed(door) == []
