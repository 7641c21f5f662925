"""mqadmin 5.5.0 against our nodes: what its commands print, where a broker has to ask, remember or reckon. One Java program."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rmq.client import Client, Message
from rmq.client.admin import lookups, members
from rmq.model import GroupConfig
from rmq.net.commands import GetRoute, UpdateConsumerOffset, UpdateGroup
from rmq.testing import LocalBroker, until
from tests.interop import java
from tests.interop.java import Java

pytestmark = [pytest.mark.java, pytest.mark.skipif(bool(java.MISSING), reason=java.MISSING)]


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    java.build()
    async with LocalBroker() as broker:
        yield broker


class Tools:
    """mqadmin, command by command in one Java program, which has a consumer, too."""

    def __init__(self, program: Java) -> None:
        self.program = program

    async def run(self, line: str) -> str:
        """What the command printed."""
        lines = await self.program.ran(*line.split(" "))
        return "\n".join(line for line in lines if " |-" not in line and not line.startswith("GOT"))

    async def refused(self, line: str) -> str:
        """Why the command failed, as it says."""
        return next(line for line in (await self.run(line)).splitlines() if "CODE:" in line)


async def halved(client: Client, ours: str) -> str:
    """The id of the other member, once it holds two of the four queues."""
    async with asyncio.timeout(60):
        while True:
            found, _ = await members.all_running(client, "members")
            for name in found.keys() - {ours}:
                if [queue.topic for queue in found[name].queues].count("Asked") == 2:
                    assert found[name].properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
                    return name


async def test_members_are_asked_and_told(broker: LocalBroker) -> None:
    """307, 309, 203, 204, 328: a Java member and one of ours in one group answer mqadmin and our tools."""
    await broker.create_topic("Asked", queues=4)
    tools = Tools(await Java.start_tools(broker.nameserver))
    await tools.run("reader Asked members")
    got: list[bytes] = []
    async with broker.client() as client, client.consumer("members", "Asked", start="first") as ours:
        running = asyncio.create_task(ours.run(lambda message: got.append(message.body)))
        producer = client.producer("sellers")
        sent = [await producer.send(Message("Asked", b"%d" % number)) for number in range(8)]
        await until(lambda: len(got) + len(tools.program.got("GOT")) >= 8, 60)
        await until(lambda: len([queue for queue in ours.queues if queue.topic == "Asked"]) == 2, 60)
        theirs = await halved(client, client.client_id)
        message = (await lookups.by_key(client, "Asked", sent[0].message_id, unique=True)).messages[0]
        before = len(tools.program.got("GOT"))
        assert (await members.consume_at(client, "members", theirs, message)).consume_result == "CR_SUCCESS"
        assert tools.program.got("GOT")[before][-1] == "0"
        shown = await tools.run("consumerStatus -g members")
        assert "Same subscription in the same group of consumer" in shown
        assert "Rebalance OK" in shown
        shown = await tools.run(f"consumerStatus -g members -i {client.client_id} -s")
        assert "PROP_CONSUMER_START_TIMESTAMP" in shown
        assert "handler 0" in shown
        await ours.commit()
        ours.stop()
        await running
        b = f"-b {broker.address}"
        assert "update broker config success" in await tools.run(f"updateBrokerConfig {b} -k fileReservedTime -v 48")
        assert "fileReservedTime" in (shown := await tools.run(f"getBrokerConfig {b}"))
        assert [line.split()[-1] for line in shown.splitlines() if line.startswith("fileReservedTime")] == ["48"]
        why = await tools.refused(f"updateBrokerConfig {b} -k storePathRootDir -v /tmp")
        assert "CODE: 16  DESC: Can not update config in black list" in why
        assert "success" in await tools.run("updateNamesrvConfig -k orderMessageEnable -v true")
        assert "orderMessageEnable" in await tools.run("getNamesrvConfig")
        assert "success" in await tools.run("updateOrderConf -t Asked -m put -v broker-a:4")
        assert "orderConf=[broker-a:4]" in await tools.run("updateOrderConf -t Asked -m get")
        assert (await client.session.nameservers.ask(GetRoute("Asked"))).order_conf == "broker-a:4"  # type: ignore[union-attr]
        await client.session.leaders.request("broker-a", UpdateGroup(GroupConfig("counted")), 10)
        for queue in range(4):
            await client.session.leaders.request("broker-a", UpdateConsumerOffset("counted", "Asked", queue, 2), 10)
        shown = await tools.run(f"brokerConsumeStats {b}")
        rows = [line.split() for line in shown.splitlines() if line.startswith("Asked ")]
        assert sorted((row[3], row[5]) for row in rows if row[1] == "counted") == [(str(queue), "2") for queue in range(4)]
        assert "Diff Total" in shown
        await broker.clock.advance(25)
        rows = [line.split() for line in (await tools.run("statsAll -t Asked")).splitlines() if line.startswith("Asked ")]
        assert sorted((row[1], row[5]) for row in rows) == [("counted", "8"), ("members", "8")]
        assert "success" in await tools.run("updateKvConfig -s mine -k a -v b")
        assert "success" in await tools.run("deleteKvConfig -s mine -k a")
    assert await tools.program.stop() == 0
