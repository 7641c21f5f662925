"""The campaign of strangers: millions of mutated frames at real nodes, and good clients beside them.

    python -m tests.faults.strangers --frames 5000000

Two nameservers, a broker that stands alone and a group of three take commands of all kinds in both codecs and what nodes say
to each other, with values, types and bytes changed (`mutating`, `storming`). Nobody may end, say "internal error", log what
no peer may bring about or grow by 100 MB; a good client's p99 stays below 20 ms, and nothing it sends is refused. At the end
strangers on the machine of a node, introduced as that node, go on; only then answers may be late, while leaders change.

The storm takes turns (`--rate`) and the processes that make it stand back, so that a machine of two cores measures the nodes
and not the crowd on its cores.
"""

import argparse
import asyncio
import multiprocessing
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rmq.errors import RmqError
from rmq.net.commands import CODES, GetRoute, Hello, UpdateTopic
from rmq.net.commands.peers import IntroducePeer
from rmq.net.transport.channel import Channel
from tests.broker.support import send
from tests.dialing import dial
from tests.faults.members import GROUP, Members
from tests.faults.node import NodeProcess
from tests.faults.storming import Fate, Storm, Target, storm

ALONE, TOPIC, BATCHES = "Solid", "Keeper", "T3"
LIGHT = {"light_queues": "true", "light_dispatch": "true"}
WORKERS = 2
RATE = 6_500.0
QUIET_S = 5.0
PAUSE_S = 0.02  # of a good client between an answer and its next question
GROWTH_BYTES, P99_MS = 100 << 20, 20.0
INSIDERS = 20  # one of so many frames comes from an introduced one
_WORDS = {-1: "none", -2: "damaged"}
BAD_LINES = ("Traceback", "AssertionError", "internal error", " CRITICAL ", '"critical"', "handler failed")


class Good:
    """A client that asks one thing after the other of one node. `late_ms`: how long each answer took."""

    def __init__(self, name: str, address: Callable[[], str], question: Callable[[], Any]) -> None:
        self.name = name
        self.late_ms: list[float] = []
        self.failed: Counter[str] = Counter()
        self._address = address
        self._question = question

    async def run(self) -> None:
        channel: Channel | None = None
        while True:
            await asyncio.sleep(PAUSE_S)
            begun = time.perf_counter()
            try:
                if channel is None or channel.closed.is_set() or channel.address != self._address():
                    channel = await dial(self._address(), Hello(1, "good"))
                    begun = time.perf_counter()
                await channel.request(self._question(), 5.0)
            except RmqError as error:
                self.failed[str(error)[:120]] += 1
                channel = None
            else:
                self.late_ms.append((time.perf_counter() - begun) * 1000)

    def begin(self) -> None:
        self.late_ms, self.failed = [], Counter()

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.late_ms)
        return ordered[len(ordered) * 99 // 100] if ordered else float("inf")


class Nodes:
    """All nodes that are stormed."""

    def __init__(self, folder: Path) -> None:
        self.members = Members(folder, metrics="off", **LIGHT)
        known = self.members.nameserver_list
        self.alone = NodeProcess(
            folder / "alone",
            role="broker",
            broker_name=ALONE,
            namesrv_addresses=known,
            segment_bytes="67108864",
            recall_messages="true",
            **LIGHT,
        )
        self.processes = {ALONE: self.alone, **self.members.nodes, **self.members.nameservers}

    async def start(self) -> None:
        await self.members.start()
        await self.alone.start()
        while not self.members.leader:
            await asyncio.sleep(0.1)
        for address in (self.alone.address, self.leader_address()):
            await _until_taken(address, UpdateTopic(TOPIC, read_queue_nums=1, write_queue_nums=1))
            await _until_taken(address, UpdateTopic(BATCHES, attributes="+queue.type=BatchCQ"))

    async def stop(self) -> None:
        await self.alone.stop()
        await self.members.stop()

    async def kill(self) -> None:
        if self.alone.process is not None and self.alone.process.returncode is None:
            await self.alone.kill()
        await self.members.kill()

    def leader_address(self) -> str:
        members = self.members
        return members.nodes[members.leader or members.names[0]].address

    def targets(self) -> list[Target]:
        """Returns the strangers' targets; what nodes say to each other goes to the peers' ports and to one of the clients'
        ports."""
        found = []
        for name, one in {ALONE: self.alone, **self.members.nodes}.items():
            broker = ALONE if name == ALONE else GROUP
            found += [Target(name, one.address, broker, kind) for kind in ("native", "remoting")]
        for name, one in self.members.nameservers.items():
            found += [Target(name, one.address, "B0", kind) for kind in ("nameserver", "nameserver-remoting")]
        for name in self.members.names:
            found.append(Target(f"{name} peers' port", self.members.peer_addresses[name], GROUP, "peer"))
        return [*found, Target("n0 clients' port", self.members.nodes["n0"].address, GROUP, "peer")]

    def insiders(self) -> list[Target]:
        """Returns targets at which strangers are introduced as another node."""
        status, names = self.members.status, self.members.names
        return [
            Target(
                f"{name} peers' port",
                self.members.peer_addresses[name],
                GROUP,
                "peer",
                IntroducePeer(GROUP, other, status[other].store, 1 << 40),
            )
            for name, other in zip(names, names[1:] + names[:1], strict=True)
            if other in status
        ]

    def rss_bytes(self) -> dict[str, int]:
        return {name: _rss_bytes(one) for name, one in self.processes.items()}

    def troubles(self) -> list[str]:
        runs = {name for name, one in self.processes.items() if one.process is not None and one.process.returncode is None}
        gone = [f"{name} ended" for name in self.processes if name not in runs]
        lines = [
            f"{name}: {line[:300]}"
            for name, one in self.processes.items()
            for line in one.log_text().splitlines()
            if any(word in line for word in BAD_LINES)
        ]
        return gone + lines[:20]


def _rss_bytes(one: NodeProcess) -> int:
    try:
        text = Path(f"/proc/{one.process.pid if one.process else 0}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS")), 0)


async def _until_taken(address: str, request: Any) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                channel = await dial(address, Hello(1, "good"))
                await channel.request(request, 5.0)
                await channel.close()
                return
            except RmqError:
                await asyncio.sleep(0.2)


def _work(targets: list[Target], seed: int, frames: int, rate: float) -> Storm:
    os.nice(max(0, 10 - os.nice(0)))
    return asyncio.run(storm(targets, seed, frames, rate))


async def storms(targets: list[Target], seed: int, frames: int, rate: float, pool: ProcessPoolExecutor | None) -> Storm:
    """Runs the storms, in several processes if there is a pool."""
    if pool is None:
        return await storm(targets, seed, frames, rate)
    loop, all_of_them = asyncio.get_running_loop(), Storm()
    work = [(targets, seed * 100 + number, frames // WORKERS, rate / WORKERS) for number in range(WORKERS)]
    for part in await asyncio.gather(*(loop.run_in_executor(pool, _work, *each) for each in work)):
        all_of_them.add(part)
    return all_of_them


class Outcome:
    """`found`: what is wrong."""

    def __init__(self) -> None:
        self.storm = Storm()
        self.found: list[str] = []
        self.seconds = 0.0
        self.grown: dict[str, int] = {}
        self.quiet_p99_ms: dict[str, float] = {}  # before the storm: what the machine does to it
        self.p99_ms: dict[str, float] = {}


async def campaign(folder: Path, frames: int, seed: int, *, workers: bool, rate: float = RATE, p99_ms: float = P99_MS) -> Outcome:
    nodes, outcome = Nodes(folder), Outcome()
    goods = [
        Good("send to the lone broker", lambda: nodes.alone.address, lambda: send(TOPIC)),
        Good("send to the leader", nodes.leader_address, lambda: send(TOPIC)),
        Good("route", lambda: nodes.members.nameservers["s0"].address, lambda: GetRoute(TOPIC)),
    ]
    pool = ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) if workers else None
    asking: list[asyncio.Task[None]] = []
    try:
        await nodes.start()
        asking = [asyncio.create_task(good.run()) for good in goods]
        await asyncio.sleep(QUIET_S if workers else 0)
        outcome.quiet_p99_ms = {good.name: round(good.p99_ms, 1) for good in goods}
        outcome.storm.add(await storms(nodes.targets(), seed, frames // 50, rate, pool))  # every table has something then
        for good in goods:
            good.begin()
        before, begun = nodes.rss_bytes(), time.monotonic()
        outcome.storm.add(await storms(nodes.targets(), seed + 1, frames - frames // INSIDERS, rate, pool))
        outcome.p99_ms = {good.name: round(good.p99_ms, 1) for good in goods}
        for good in goods:
            outcome.found += [f"{good.name}: {count} times {text}" for text, count in good.failed.items()]
            if good.p99_ms > p99_ms:
                outcome.found.append(f"{good.name}: p99 {good.p99_ms:.1f} ms of {len(good.late_ms)}")
        outcome.storm.add(await storms(nodes.insiders(), seed + 2, frames // INSIDERS, rate, pool))
        outcome.seconds = time.monotonic() - begun
        await _ended(asking)
        await _works_again(nodes, outcome)
        outcome.grown = {name: size - before[name] for name, size in nodes.rss_bytes().items()}
        outcome.found += [f"{name} grew by {size >> 20} MiB" for name, size in outcome.grown.items() if size > GROWTH_BYTES]
        outcome.found += [*outcome.storm.found[:20], *nodes.troubles()]
    finally:
        await _ended(asking)
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        await nodes.kill()
    return outcome


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _works_again(nodes: Nodes, outcome: Outcome) -> None:
    """Checks that a group takes messages again, at its leader, after strangers spoke in the name of its nodes."""
    try:
        async with asyncio.timeout(30):
            while not nodes.members.level():
                await asyncio.sleep(0.1)
        await _until_taken(nodes.leader_address(), send(TOPIC))
    except TimeoutError:
        outcome.found.append(f"the group does not work again: {nodes.members.status}")


def table(fates: Counter[Fate]) -> list[str]:
    """Returns one line for each kind and code: how many frames there were, and what the answers were."""
    names = {int(code): kind.__name__ for kind, code in CODES.items()}
    rows: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for fate, count in fates.items():
        rows[fate.kind, fate.code][fate.result] += count
    lines = []
    for (kind, code), results in sorted(rows.items()):
        told = ", ".join(f"{_WORDS.get(result, result)}: {count}" for result, count in sorted(results.items()))
        lines.append(f"{kind:20} {code:7} {names.get(code, ''):24} {results.total():9}   {told}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=RATE, help="frames a second at most")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(campaign(Path(folder), options.frames, options.seed, workers=True, rate=options.rate))
    print("\n".join(table(outcome.storm.fates)))
    total, seconds = outcome.storm.frames, outcome.seconds
    print(f"{total} frames in {seconds:.0f} s ({total / max(seconds, 1):.0f} a second), {dict(outcome.storm.counts)}")
    print(f"p99 of good clients in ms, before the storm: {outcome.quiet_p99_ms}, in it: {outcome.p99_ms}")
    print(f"grown, in MiB: { {n: s >> 20 for n, s in outcome.grown.items()} }")
    print("\n".join(outcome.found) or "nothing found")
    raise SystemExit(bool(outcome.found))


if __name__ == "__main__":
    main()
