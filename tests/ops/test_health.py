"""`/livez` and `/readyz`: what they say, and that they say it when the node's loop cannot."""

import asyncio
import contextlib
import threading
from pathlib import Path

import pytest

from rmq import cli
from rmq.broker.node import Broker
from rmq.commands.shared import exits
from rmq.errors import StoreError
from rmq.log.files.memory import MemoryDisk
from rmq.net.commands import UpdateTopic
from rmq.ops.exporter import READY_S
from rmq.ops.watch import STUCK_S, LoopWatch
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer, small_node
from tests.ops.watching import exported, page


async def test_a_broker_that_serves_is_alive_and_ready() -> None:
    async with LocalBroker() as broker, exported(*broker.parts) as address:
        assert await page(address, "/livez") == (200, "alive\n")
        assert await page(address, "/readyz") == (200, "ready\n")


async def test_a_stuck_loop_is_told_by_the_thread() -> None:
    """It is asked from a thread while the loop does not turn; when it turns again all is well."""
    clock = TestClock(running=False)
    watch = LoopWatch(clock)
    async with watch.running(), exported(watch=watch) as address:
        assert await page(address, "/livez") == (200, "alive\n")
        found: list[tuple[int, str]] = []

        def ask() -> None:
            found.extend(asyncio.run(both()))

        async def both() -> list[tuple[int, str]]:
            return [await page(address, "/livez"), await page(address, "/readyz")]

        clock.skip(STUCK_S + 2)  # and nobody is woken
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join()  # this is the node's loop: it is stuck here
        assert found == [
            (503, f"the event loop has not turned for {STUCK_S + 2:.0f} s\n"),
            (503, f"the event loop has not answered for {READY_S:g} s\n"),
        ]
        await clock.advance(0.2)
        assert await page(address, "/livez") == (200, "alive\n")


async def test_a_nameserver_that_is_away_is_no_reason_to_start_anew(capsys: pytest.CaptureFixture[str]) -> None:
    """`rmq health` says the same."""
    async with LocalBroker() as broker:
        [_, node] = broker.parts
        async with exported(node) as address:
            await broker.stop_nameserver()
            await until(lambda: broker.serving.waits_for())
            assert await page(address, "/livez") == (200, "alive\n")
            status, text = await page(address, "/readyz")
            assert (status, text.startswith(f"not registered: {broker.nameserver}: ")) == (503, True)
            assert await asyncio.to_thread(cli.run, ["health", "-a", broker.address]) == exits.UNREACHABLE
            assert "not registered" in capsys.readouterr().out
            await broker.start_nameserver()
            await broker.clock.advance_until(lambda: not broker.serving.waits_for())
            assert await page(address, "/readyz") == (200, "ready\n")


class FailingDisk(MemoryDisk):
    """`fails`: a flush of the log does."""

    fails = False

    def fdatasync(self, handle: int) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        super().fdatasync(handle)


async def test_a_full_disk_is_waited_for_and_a_failed_flush_is_not(tmp_path: Path) -> None:
    """What was acknowledged may be lost after a failed flush: only a new start tells. A full disk empties by itself."""
    disk, clock = FailingDisk(), TestClock()
    settings = small_node(tmp_path)
    node = Broker(settings, clock, disk)
    async with exported(node) as address:
        assert await page(address, "/readyz") == (503, "this node is starting\n")
        await node.start()
        assert await page(address, "/readyz") == (200, "ready\n")
        disk.used = 0.93
        await clock.advance_until(node.waits_for)
        assert (await page(address, "/livez"))[0] == 200
        helps = "free space, or let messages expire sooner (fileReservedTime)"
        told = f"disk full: the disk with {settings.store_dir} is 93% full; {helps}\n"
        assert await page(address, "/readyz") == (503, told)
        disk.used = 0.1
        await clock.advance_until(lambda: not node.waits_for())
        disk.fails = True
        peer = await Peer.connect(node.address)
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await clock.advance_until(node.fatal)
        status, text = await page(address, "/livez")
        assert (status, "a flush failed" in text) == (503, True)
        await peer.close()
        with contextlib.suppress(StoreError):
            await node.stop()


async def test_a_group_waits_for_a_leader_and_a_new_member_for_what_it_lacks(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group:
        await group.level()
        for node in group.nodes.values():
            assert node.waits_for() == []
        one, two = await group.followers()
        leader = group.nodes[await group.leader()]
        await group.stop(one, two)
        await group.clock.advance_until(lambda: leader.waits_for())
        assert leader.waits_for()[0].startswith("no leader: ")
        assert leader.fatal() == ""
        await group.start(one)
        await group.clock.advance_until(lambda: not any(node.waits_for() for node in group.nodes.values()))
        group.wipe(two)
        await group.start(two)
        assert any(why.startswith("may not vote: ") for why in group.nodes[two].waits_for())
        await group.clock.advance_until(lambda: not group.nodes[two].waits_for())
