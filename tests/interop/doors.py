"""RocketMQ's gRPC client for Java at our door, and through RocketMQ's own proxy, before the same kind of broker of ours.

python -m tests.interop.doors     # what differs; needs Maven and a JDK
"""

import asyncio
import sys

from rmq.client.admin import calls as admin
from rmq.model import GroupConfig
from rmq.testing import LocalBroker
from tests.door.caller import SOON, door
from tests.interop.lites import GRPC
from tests.interop.versions import fetched, printed, proxy

KINDS = {"Plain": "NORMAL", "Fifo": "FIFO", "Delayed": "DELAY", "Transactional": "TRANSACTION"}
_WORDS = "SIMPLE", "PUSHED", "ORDERED"
EXPECTED = [
    *(f"SIMPLE {tag}-{number} {tag} [k{number}] {{colour=red}}" for tag in "ab" for number in range(4)),
    "SIMPLE 100000 bytes b [] {}",
    *(f"PUSHED {line}" for line in ("a-0 1", "a-0 2", "a-1 1", "a-2 1", "a-3 1", "kept 1", "later 1", "open 1")),
    *(f"ORDERED f-{number} order-7" for number in range(4)),
]


def broker() -> LocalBroker:
    return LocalBroker(transaction_timeout_ms=1000, transaction_check_interval_ms=500)


async def prepare(broker: LocalBroker) -> None:
    async with broker.client() as client:
        for topic, kind in KINDS.items():
            await admin.update_topic(client, topic, broker=broker.address, attributes=f"+message.type={kind}")
        for group in (GroupConfig("pushed", retry_policy=SOON), GroupConfig("ordered", consume_message_orderly=True)):
            await admin.update_group(client, group, broker=broker.address)


async def came(port: int) -> list[str]:
    folder = await asyncio.to_thread(fetched, "rocketmq-client-java", GRPC, "Doors")
    lines = await printed(folder, "Doors", f"127.0.0.1:{port}")
    return [line for line in lines if line.startswith(_WORDS)] or lines


async def at_our_door() -> list[str]:
    async with broker() as one:
        await prepare(one)
        async with door(one) as port:
            return await came(port)


async def at_rocketmqs_proxy() -> list[str]:
    async with broker() as one:
        await prepare(one)
        async with proxy(one.nameserver) as (port, _):
            return await came(port)


async def _main() -> int:
    ours, theirs = await at_our_door(), await at_rocketmqs_proxy()
    for line in sorted({*ours, *theirs}):
        print("both   " if line in ours and line in theirs else "ours   " if line in ours else "theirs ", line)
    return int(ours != theirs or sorted(ours) != sorted(EXPECTED))


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
