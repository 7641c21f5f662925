"""Apache RocketMQ's Java client and mqadmin 5.5.0 with a group of ours that changes its leader."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.client import Client
from rmq.client.admin import calls as admin
from rmq.commands import tryout
from tests.cli.drill import Drill, free_shift
from tests.interop import crossing, java
from tests.interop.java import Java, mqadmin

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]
GROUP = tryout.GROUP


@pytest.fixture
async def drill(tmp_path: Path) -> AsyncIterator[Drill]:
    java.build()
    found = Drill(tmp_path / "try", free_shift())
    await found.rmq("try", "start", *found.where)
    yield found
    await found.rmq("try", "stop", *found.where)


async def test_java_goes_on_at_the_new_leader(drill: Drill) -> None:
    """N4, L1: the leader is at id 0, followers above; codes 907 and 1007. C9: ordered consumption goes on in order."""
    namesrv = drill.of.namesrv
    async with Client(namesrv) as client:
        await admin.update_topic(client, "Shared", broker=GROUP, read_queues=4, write_queues=4)
    consumer = await Java.start("consume", namesrv, "Shared", "javas", "*")
    orderly = await Java.start("orderly", namesrv, "Shared", "in_order")
    await consumer.until(lambda: consumer.got("STARTED"))
    await send(namesrv)
    await consumer.until(lambda: len(consumer.got("GOT")) == 14)
    await orderly.until(lambda: len(orderly.got("GOT")) == 14)

    await drill.kill_leader()
    leader, other = sorted((await drill.cluster()).items())
    assert leader[0] == 0 < other[0]
    route = "".join((await mqadmin("topicRoute", "-n", namesrv, "-t", "Shared")).split())
    assert f'"brokerAddrs":{{0:"{leader[1]["address"]}",{other[0]}:"{other[1]["address"]}"}}' in route
    status = await mqadmin("haStatus", "-n", namesrv, "-b", leader[1]["address"])
    assert f"#MasterAddr\t{leader[1]['address']}" in status
    assert "#InSyncSlaveNum\t1" in status
    epochs = await mqadmin("getBrokerEpoch", "-n", namesrv, "-b", GROUP)
    assert f"EpochEntry{{epoch={leader[1]['epoch']}, startOffset=" in epochs
    await drill.rmq("try", "start", *drill.where)

    await send(namesrv)
    await consumer.until(lambda: len(consumer.got("GOT")) >= 28)
    assert await consumer.stop() == 0
    bodies = [fields[-1] for fields in consumer.got("GOT")]
    assert {body: bodies.count(body) for body in bodies if bodies.count(body) < 2} == {}
    await orderly.until(lambda: len({tuple(fields[:2]) for fields in orderly.got("GOT")}) == 28)
    assert await orderly.stop() == 0
    reached: dict[str, int] = {}
    for queue, offset, *_ in orderly.got("GOT"):
        assert int(offset) <= reached.get(queue, 0), "a message came before the one before it"
        reached[queue] = max(reached.get(queue, 0), int(offset) + 1)


async def send(namesrv: str) -> None:
    producer = await Java.start("send", namesrv, "Shared", "10")
    await producer.until(lambda: len(producer.got("SENT")) == 11)
    assert await producer.stop() == 0


async def test_java_crosses_changes_of_leader_without_a_failed_send(tmp_path: Path) -> None:
    """Default settings, routes asked every 30 s: the member that led forwards. The short form of `tests.interop.crossing`."""
    java.build()
    result = await crossing.crossings(tmp_path, ["transfer"], 200)
    assert crossing.problems(result) == []
    assert result.sent == result.tried > 500
