"""RocketMQ's gRPC client for Java, which signs, at our door, and at RocketMQ's own proxy, each before a broker of ours.

python -m tests.interop.doors     # what differs; needs Maven and a JDK
"""

import asyncio
import sys
from typing import Any

from rmq.client.admin import calls as admin
from rmq.model import GroupConfig
from rmq.net.commands.access import PolicyEntry
from rmq.testing import LocalBroker
from tests.broker.test_access import ROOT, SETTINGS, login, make_user, nameserver_permits
from tests.door.caller import SOON, doors
from tests.interop.lites import GRPC
from tests.interop.versions import fetched, printed, proxy

KINDS = {"Plain": "NORMAL", "Fifo": "FIFO", "Delayed": "DELAY", "Transactional": "TRANSACTION"}
GROUPS = "simple", "pushed", "ordered"
USER = "java"
_WORDS = "SIMPLE", "PUSHED", "ORDERED"
EXPECTED = [
    *(f"SIMPLE {tag}-{number} {tag} [k{number}] {{colour=red}}" for tag in "ab" for number in range(4)),
    "SIMPLE 100000 bytes b [] {}",
    *(f"PUSHED {line}" for line in ("a-0 1", "a-0 2", "a-1 1", "a-2 1", "a-3 1", "kept 1", "later 1", "open 1")),
    *(f"ORDERED f-{number} order-7" for number in range(4)),
]


def broker(**settings: Any) -> LocalBroker:
    return LocalBroker(transaction_timeout_ms=1000, transaction_check_interval_ms=500, **settings)


async def prepare(broker: LocalBroker) -> None:
    async with broker.client(user=ROOT.name, password=ROOT.secret) as client:
        for topic, kind in KINDS.items():
            await admin.update_topic(client, topic, broker=broker.address, attributes=f"+message.type={kind}")
        for group in (GroupConfig("pushed", retry_policy=SOON), GroupConfig("ordered", consume_message_orderly=True)):
            await admin.update_group(client, group, broker=broker.address)


async def came(port: int) -> list[str]:
    folder = await asyncio.to_thread(fetched, "rocketmq-client-java", GRPC, "Doors")
    lines = await printed(folder, "Doors", f"127.0.0.1:{port}", USER, f"{USER}-secret")
    return [line for line in lines if line.startswith(_WORDS)] or lines


async def at_our_door() -> list[str]:
    """For the user for whom it signs, who may do no more than it has to."""
    async with broker(**SETTINGS) as one:
        await prepare(one)
        root = await login(one, ROOT.name, ROOT.secret)
        resources = *(f"Topic:{topic}" for topic in KINDS), *(f"Group:{group}" for group in GROUPS)
        await make_user(root, USER, *(PolicyEntry(resource, ["Pub", "Sub"]) for resource in resources))
        await one.clock.advance_until(lambda: nameserver_permits(one, USER))
        async with doors(one) as port:
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
