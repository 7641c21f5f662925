"""Story 58, unknown_outcome_is_not_14: 14 promises that nothing was stored. Who cannot promise that says so, and our client
neither calls it a failure nor sends it again unless it was told to (C19)."""

import asyncio
from pathlib import Path

import pytest

from rmq.client import Client, Message, Producer, SendStatus, Unknown
from rmq.codes import ResponseCode as R
from rmq.errors import Refusal
from rmq.net.commands import UpdateTopic
from rmq.testing import until
from tests.broker.groups import LocalGroup
from tests.broker.helddisk import HeldDisk
from tests.broker.pair import Pair
from tests.broker.support import bodies, send

TOPIC = UpdateTopic("T", read_queue_nums=1, write_queue_nums=1)


async def test_a_quorum_that_does_not_come_in_time(tmp_path: Path) -> None:
    """The followers are there, so the leader stays; their disks take nothing. Later it is stored after all, once."""
    disks = {name: HeldDisk() for name in ("n0", "n1", "n2")}
    async with LocalGroup(tmp_path, disks=disks) as group:
        name = await group.leader()
        leader = await group.connect(name)
        await leader.ask(TOPIC)
        await group.level()
        async with Client(group.nameserver) as client, client.producer("p") as producer:
            await producer.send(Message("T", b"good"))
            await group.level()
            for other in await group.followers():
                disks[other].full = True
            raw = asyncio.create_task(leader.ask(send("T", b"raw")))
            with pytest.raises(Unknown, match="did not commit it in time"):
                await producer.send(Message("T", b"nobody knows"), timeout=20)
            with pytest.raises(Refusal) as answer:
                await raw
            assert answer.value.code == R.SYSTEM_ERROR
            for disk in disks.values():
                disk.full = False
            await group.level()
            assert sorted(bodies(await leader.pull("T", 0))) == [b"good", b"nobody knows", b"raw"]


async def test_a_leadership_that_is_lost(tmp_path: Path) -> None:
    """What was sent before is unknown; what is sent afterwards was certainly not stored: 14, and may be tried again."""
    async with LocalGroup(tmp_path) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(TOPIC)
        async with Client(group.nameserver) as client, client.producer("p") as producer:
            await producer.send(Message("T", b"good"))
            await group.level()
            await group.stop(*await group.followers())
            with pytest.raises(Unknown, match="lost leadership"):
                await producer.send(Message("T", b"nobody knows"), timeout=20)
            assert await leader.refusal(send("T", b"refused")) == R.SERVICE_NOT_AVAILABLE


async def test_a_fixed_master_says_what_it_waited_for_in_vain(pair: Pair) -> None:
    """10 not flushed in time, 12 not copied in time, 11 nobody there to copy: all three are stored here, and not sent again."""
    disk, slow = HeldDisk(), HeldDisk()
    await pair.start(0, "SYNC_MASTER", disk=disk, flush="sync", in_sync_replicas=2)
    await pair.start(1, "SLAVE", disk=slow, flush="sync")
    await pair.level()
    async with Client(pair.nameserver.address) as client, client.producer("p") as producer:
        assert (await producer.send(Message("T", b"good"))).status is SendStatus.SEND_OK
        await pair.level()
        disk.flushes.clear()
        assert await answer_after(pair, disk, producer, b"slow disk", 7) is SendStatus.FLUSH_DISK_TIMEOUT
        disk.flushes.set()
        await pair.level()
        slow.flushes.clear()
        assert await answer_after(pair, disk, producer, b"slow slave", 7) is SendStatus.FLUSH_SLAVE_TIMEOUT
        slow.flushes.set()
        await pair.stop(1)
        assert await answer_after(pair, disk, producer, b"no slave", 3) is SendStatus.SLAVE_NOT_AVAILABLE
        stored = [body for queue in range(4) for body in await pair.read(0, "T", queue)]
        assert sorted(stored) == [b"good", b"no slave", b"slow disk", b"slow slave"]


async def answer_after(pair: Pair, disk: HeldDisk, producer: Producer, body: bytes, seconds: float) -> SendStatus:
    """What a send gets when so much time passes from the moment at which the master has it (on its disk, if that is well)."""
    master, flushes = pair.nodes[0], disk.flushes.is_set()
    log, end = master.serving.store.log, master.serving.store.log.end
    sending = asyncio.create_task(producer.send(Message("T", body), timeout=60))
    await until(lambda: (master.serving.appender.committed_end if flushes else log.end) > end)
    await pair.clock.advance(seconds)
    return (await sending).status
