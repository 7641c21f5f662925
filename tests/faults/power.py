"""Power loss below the file API, again and again on one store, in the middle of sending at full speed.

    python -m tests.faults.power --cycles 100 [--flush sync|async] [--mutant NAME] [--seed 1]

The store lies on `powerfs`, which keeps in memory what was not flushed. Each cycle sends over 4 connections with 16
requests in flight, stops the node at a random moment, drops a random part of what was not flushed (sectors of 512 bytes
and directory entries), starts the node as on a rebooted machine and reads everything new. Sync flush must lose nothing (D1).
Async flush may lose what was acknowledged in the last 0.5 s and one flush; what is left must be a clean prefix (D2).

With --mutant a copy of the code with one line changed is tried: a build that acknowledges before the fsync must be caught.
Needs root and FUSE.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import rmq
from rmq.errors import RmqError
from tests.faults.checker import Ack, Stored, problems
from tests.faults.kill import Campaign
from tests.faults.node import NodeProcess
from tests.faults.powerfs import PowerFs, mounted, why_not

FLUSH_MS = 20  # of one file: longer than a busy machine needs to send what is on its way, so that messages come during it
MAX_LOSS_S = 0.5 + 1.5  # the interval, and room for flushes where four tests share two cores: 1.25 s in all was seen there

MUTANTS = {
    "no-fsync": ("log/files/disk.py", "        _fdatasync(handle)\n", "        del handle\n"),
    "ack-at-append": ("broker/replication/alone.py", "self._sync_flush = sync_flush", "self._sync_flush = False"),
    "ack-what-came-during-the-flush": (
        "broker/replication/alone.py",
        "            durable, units = self._log.durable_end, list[Unit]()\n",
        "            durable, units = self._log.end, list[Unit]()\n",
    ),
}


class Cycle(NamedTuple):
    """`lost`: acknowledged and gone; `age_s`: how long before the loss the oldest of them was acknowledged."""

    acknowledged: int
    unflushed: int
    lost: int
    age_s: float
    found: list[str]


class PowerCampaign(Campaign):
    def __init__(self, node: NodeProcess, fs: PowerFs, flush: str, seed: int) -> None:
        super().__init__(node, seed)
        self.enough = range(300, 1500) if flush == "sync" else range(300, 12_000)  # async: longer than the flush interval
        self._fs = fs
        self._flush = flush
        self._boots = 0
        self.dropped = self.lost = 0
        self.age_s = 0.0
        self._struck_s = 0.0

    async def strike(self) -> None:
        for _ in range(self._chance.randrange(100)):  # somewhere between two answers
            await asyncio.sleep(0)
        self._struck_s = time.monotonic()
        self.node.freeze()  # a flush on its way does not end; a kill alone would wait for it
        share = self._chance.choice((0.0, 0.3, 0.7))
        self.dropped = (await self._fs.lose_power(self._chance.randrange(1 << 30), share))["lost"]
        await self.node.kill()
        self._boots += 1
        self.node.environment["BOOT_ID"] = f"boot-{self._boots}"

    def judge(self, acks: list[Ack], unknown: list[bytes], queues: dict[int, list[Stored]]) -> list[str]:
        kept, lost = [], []
        for ack in acks:
            there = ack.queue_offset < self._next[ack.queue_id] + len(queues[ack.queue_id])
            (kept if there else lost).append(ack)
        self.lost, self.age_s = len(lost), max((self._struck_s - ack.at_s for ack in lost), default=0.0)
        if self._flush == "sync":
            return problems(acks, unknown, queues)
        found = problems(kept, unknown, queues)
        if self.age_s > MAX_LOSS_S:
            found.append(f"acknowledged {self.age_s:.2f} s before the power loss, and gone")
        if lost and kept and min(ack.physical_offset for ack in lost) < max(ack.physical_offset for ack in kept):
            found.append("a message is gone, a later one is there")
        return found

    async def prepare(self) -> None:
        """Makes the topic durable: a clean stop flushes in both modes."""
        await super().prepare()
        await self.node.stop()
        await self.node.start()

    async def cycle(self) -> Cycle:
        try:
            done = await self.round()
        except (RuntimeError, RmqError) as error:  # it does not start, or knows the topic no more
            return Cycle(0, self.dropped, 0, 0.0, [str(error)[-400:]])
        return Cycle(done.acknowledged, self.dropped, self.lost, self.age_s, done.found)


def copied(folder: Path, mutant: str) -> Path:
    """Makes a directory with a copy of the package, in which that mutant's line is changed ("": none)."""
    shutil.copytree(Path(rmq.__file__).parent, folder / "rmq", ignore=shutil.ignore_patterns("__pycache__"))
    if mutant:
        name, old, new = MUTANTS[mutant]
        file = folder / "rmq" / name
        text = file.read_text()
        assert text.count(old) == 1, f"the line that {mutant} changes is not in {name} any more: adapt MUTANTS"
        file.write_text(text.replace(old, new))
    return folder


async def campaign(folder: Path, flush: str, cycles: int, seed: int, mutant: str = "", tell: bool = False) -> list[Cycle]:
    """Plays so many cycles, or stops after the first one in which something is found."""
    code = copied(folder / "code", mutant)
    done: list[Cycle] = []
    async with mounted(folder / "mount", FLUSH_MS) as fs:
        small = {"segment_bytes": str(1 << 20), "max_message_bytes": "100000"}  # so that it rolls in the cycles
        node = NodeProcess(folder / "mount" / "store", log=folder / "node.log", flush=flush, **small)
        node.command = [sys.executable, "-P", str(Path(__file__).with_name("bootnode.py"))]
        node.environment = {"PYTHONPATH": str(code), "BOOT_ID": "boot-0"}
        run = PowerCampaign(node, fs, flush, seed)
        try:
            await run.prepare()
            while len(done) < cycles and not (done and done[-1].found):
                done.append(await run.cycle())
                if tell:
                    _tell(len(done), done[-1])
        finally:
            await node.kill()
    return done


def _tell(number: int, cycle: Cycle) -> None:
    print(
        f"cycle {number}: {cycle.acknowledged} acknowledged, {cycle.unflushed} sectors and names dropped, "
        f"{cycle.lost} lost ({cycle.age_s * 1000:.0f} ms), {len(cycle.found)} problems",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--flush", choices=["sync", "async"], action="append")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if reason := why_not():
        raise SystemExit(f"cannot run: {reason}")
    failed = False
    for flush in options.flush or ["sync", "async"]:
        with tempfile.TemporaryDirectory() as folder:
            done = asyncio.run(campaign(Path(folder), flush, options.cycles, options.seed, options.mutant, tell=True))
        found = [text for one in done for text in one.found]
        failed = failed or bool(found) or not any(one.unflushed for one in done)
        print(
            f"{flush} flush: {len(done)} power losses, {sum(one.acknowledged for one in done)} acknowledged, "
            f"{sum(one.unflushed for one in done)} unflushed sectors and names dropped, {sum(one.lost for one in done)} lost, "
            f"the oldest {max(one.age_s for one in done) * 1000:.0f} ms old, {len(found)} problems"
        )
        print("\n".join(found[:10]))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
