"""Lite topics as RocketMQ's tools and its proxy's requests find them: here as at Apache RocketMQ 5.5.0 (lites.py)."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.interop import java
from tests.interop.lites import COMMANDS, RECORDED, at_ours

DIFFERENT = {"getLiteClientInfo -p Rooms -g readers -c phone": "RocketMQ does not tell when a client got messages last"}


pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


async def test_tools_and_proxies_find_what_they_find_at_rocketmq(tmp_path: Path) -> None:
    await asyncio.to_thread(java.build)
    ours, theirs = await at_ours(tmp_path), json.loads(RECORDED.read_text())
    strange = {
        line: (mine, other)
        for line, mine, other in zip(("the state", *COMMANDS), ours, theirs, strict=True)
        if (mine == other) == (line in DIFFERENT)
    }
    assert not strange
