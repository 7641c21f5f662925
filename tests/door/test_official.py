"""Apache's own Python client for gRPC, in a process of its own, at our door."""

import asyncio
import json
import sys
from pathlib import Path

from rmq.client.admin import calls as admin
from rmq.model import GroupConfig
from rmq.testing import LocalBroker
from tests.door.caller import SOON, door
from tests.door.official import KINDS, TRIES_GROUP

ROOT = Path(__file__).parents[2]


async def test_all_kinds_of_messages() -> None:
    """Sent, received, acknowledged, failed and tried again."""
    async with LocalBroker(transaction_timeout_ms=1000, transaction_check_interval_ms=500) as broker, door(broker) as port:
        async with broker.client() as client:
            for topic, kind in zip(KINDS, ("NORMAL", "FIFO", "DELAY", "TRANSACTION"), strict=True):
                await admin.update_topic(client, topic, broker=broker.address, attributes=f"+message.type={kind}")
            await admin.update_group(client, GroupConfig(TRIES_GROUP, retry_policy=SOON), broker=broker.address)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.door.official", str(port), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        found = {kind: what for line in said.splitlines() for kind, what in json.loads(line).items()}
        assert process.returncode == 0
        assert found["Plain"] == [["plain", "a", ["k1"], {"colour": "red"}]]
        assert found["Fifo"] == [[number, "order-7"] for number in range(8)]
        assert found["Delayed"] == [["later", True]]
        assert found["Transactional"] == ["kept", "open"]
        assert found["pushed"] == [2]
