"""The short form of the power loss campaign (`python -m tests.faults.power` is the long one)."""

import errno
import sys
from pathlib import Path

import pytest

from rmq.codes import ResponseCode
from rmq.net.commands import UpdateTopic
from tests.broker.support import Peer, bodies, send
from tests.faults.node import NodeProcess
from tests.faults.power import MUTANTS, campaign
from tests.faults.powerfs import mounted, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"power loss: {why_not()}")


async def test_sync_flush_loses_nothing_when_the_power_goes(tmp_path: Path) -> None:
    """D1: below the file API, with the real file calls."""
    done = await campaign(tmp_path, "sync", 2, seed=3)
    assert [text for one in done for text in one.found] == []
    assert sum(one.unflushed for one in done) > 0, "nothing was dropped: the power losses did not bite (G4)"


async def test_async_flush_loses_the_last_interval_at_most_and_leaves_a_clean_prefix(tmp_path: Path) -> None:
    """D2."""
    done = await campaign(tmp_path, "async", 2, seed=2)
    assert [text for one in done for text in one.found] == []
    assert sum(one.lost for one in done) > 0, "nothing was lost: the power losses did not bite (G4)"


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
async def test_a_build_that_acknowledges_before_the_fsync_is_caught(tmp_path: Path, mutant: str) -> None:
    """G3: in at most five power losses."""
    done = await campaign(tmp_path, "sync", 5, seed=1, mutant=mutant)
    assert done[-1].found


async def test_a_failed_fsync_ends_writing_and_a_restart_believes_only_the_disk(tmp_path: Path) -> None:
    """D4: what waits for it hears "unknown", all later sends are refused, reads go on; and the power goes at the end."""
    async with mounted(tmp_path / "mount") as fs:
        node = NodeProcess(tmp_path / "mount" / "store", log=tmp_path / "log", flush="sync", segment_bytes=str(16 << 20))
        node.command = [sys.executable, "-P", str(Path(__file__).with_name("bootnode.py"))]
        node.environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "BOOT_ID": "1"}
        await node.start()
        peer = await Peer.connect(node.address)
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await peer.ask(send("T", b"good"))
        await fs.order(do="fail", operation="fdatasync", path="commitlog", errno=errno.EIO)
        assert await peer.refusal(send("T", b"unknown" * 1000)) == ResponseCode.SYSTEM_ERROR
        await fs.order(do="heal")
        assert await peer.refusal(send("T", b"refused")) == ResponseCode.SERVICE_NOT_AVAILABLE
        assert bodies(await peer.pull("T", 0)) == [b"good"]
        await peer.close()
        await node.kill()
        await node.start()
        peer = await Peer.connect(node.address)
        found = bodies(await peer.pull("T", 0))
        assert found in ([b"good"], [b"good", b"unknown" * 1000])
        await peer.ask(send("T", b"later"))
        await peer.close()
        await node.kill()
        await fs.lose_power(seed=1, share=0.0)
        node.environment["BOOT_ID"] = "2"
        await node.start()
        peer = await Peer.connect(node.address)
        assert bodies(await peer.pull("T", 0)) == [*found, b"later"], "the failed flush was believed after the restart"
        await peer.close()
        await node.kill()
