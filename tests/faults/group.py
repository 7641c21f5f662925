"""A real group of three under load that is killed, paused and cut apart, again and again: nothing acknowledged is lost.

    python -m tests.faults.group --kills 100 --partitions 20 --pauses 50 [--seed 1] [--rate 1200] [--flush sync]
    python -m tests.faults.group --restarts 10             # all nodes in turn, in order: no send may fail
    python -m tests.faults.group --soak 60 --load 0.8      # minutes without a fault: nobody may be elected
    python -m tests.faults.group --fixed --kills 40 --handovers 20 --pauses 10   # a master with slaves: nobody is elected

Three `rmq node` processes and two nameservers, in network namespaces when partitions are wanted (root). Half of the kills and
pauses hit the leader. Producers send all the while, a consumer group whose members come and go and a reader at each node read
everything; some messages wait for their time or the end of a transaction, and are popped (`waiting`). The history is judged
afterwards (`history`). A run counts only if there was enough trouble (G4). Prints what it
covered, and how long it took from the kill of a leader to the first send that a new one acknowledged.
"""

import argparse
import asyncio
import logging
import random
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from rmq.commands.shared.options import run_fast
from tests.faults import soak, waiting
from tests.faults.history import ACKED, REFUSED, UNKNOWN, problems, repeats, unequal
from tests.faults.members import CLIENT, HOSTS, Members, both_ways
from tests.faults.netns import Network, possible
from tests.faults.takers import STAYS_S
from tests.faults.traffic import Traffic, whole_queues

FAULTS = ("kill", "partition", "pause", "restart", "handover")
WAITING = 0.02  # of the rate: messages of each kind that wait
WELL_S = 60.0  # so soon after the last fault everything must be well again


class Result(NamedTuple):
    seconds: float
    faults: Counter[str]
    cuts: int
    leader_changes: int
    outcomes: Counter[str]
    reads: int
    repeats: int
    failovers: list[float]
    longest_s: float
    found: list[str]


class Campaign:
    """Faults are "kill", "pause", "partition", "restart" (of all nodes in turn) and "handover" (by transferLeader), in any number
    and order; a pause lasts 0.5 to `longest_s`."""

    def __init__(self, members: Members, traffic: Traffic, net: Network | None, seed: int, longest_s: float = 20.0) -> None:
        self._longest_s = longest_s
        self._members = members
        self._traffic = traffic
        self._net = net
        self._chance = random.Random(seed)
        self._covered: Counter[str] = Counter()
        self._kills: list[float] = []
        self._longest_s_restarting = 0.0
        self._found: list[str] = []

    async def run(self, faults: list[str], tell: bool) -> None:
        makes = {
            "kill": self._kill,
            "pause": self._pause,
            "partition": self._partition,
            "restart": self._restart,
            "handover": self._hand_over,
        }
        for number, fault in enumerate(faults, 1):
            await self._leader()
            await asyncio.sleep(self._chance.uniform(0.2, 1.0))
            about = await makes[fault]()
            self._covered[fault] += 1
            healed = time.monotonic()
            if self._chance.random() < 0.7:
                await self._well(about)
            if tell:
                took = time.monotonic() - healed
                print(f"{number}/{len(faults)} {about}: well after {took:.2f} s, {self._traffic.acked} acknowledged", flush=True)

    async def finish(self) -> list[str]:
        """Ends faults and sends. All nodes must become equal, and everything must be consumed."""
        await self._well("the last fault")
        await self._traffic.stop_sending()
        self._members.look_anew()
        if not await self._wait(self._members.level):
            return [*self._found, f"the nodes did not come to the same end: {self._members.status}"]
        until = time.monotonic() + WELL_S
        while True:  # what the leader has just committed reaches the others a moment later
            queues = {name: await whole_queues(node.address) for name, node in self._members.nodes.items()}
            first = queues[self._members.names[0]]
            if all(found == first for found in queues.values()) or time.monotonic() > until:
                break
            await asyncio.sleep(0.1)
        self._found += [f"the queues of {name} differ" for name, found in queues.items() if found != first]
        if not await self._wait(lambda: self._traffic.consumed(first)):
            missing, takers = self._traffic.missing(first), self._traffic.takers
            self._found.append(f"not everything was consumed: {missing} (messages, first offset); {takers.standing()}")
        if self._members.level():
            self._found += unequal(await asyncio.to_thread(self._members.log_digests))
        return self._found + problems(self._traffic.history(first)) + self._members.troubles()

    def result(self, found: list[str], waits: Counter[str], seconds: float) -> Result:
        traffic, changes = self._traffic, self._members.told("this node leads the group") - 1
        return Result(
            seconds, self._covered + traffic.takers.covered + waits, self._net.cuts if self._net else 0, changes,
            Counter(attempt.outcome for attempt in traffic.attempts), traffic.reads, repeats(traffic.takers.delivered),
            self._failovers(), self._longest_s_restarting, found,
        )  # fmt: skip

    # --- faults -------------------------------------------------------------------------------------------------------

    async def _kill(self) -> str:
        nodes, leader = self._members.nodes, await self._leader()
        victims = [self._every_other("kill", leader)]
        if self._chance.random() < 0.1:
            victims = self._chance.sample(self._members.names, self._chance.choice((2, 3)))
        moment = time.monotonic()
        await asyncio.gather(*(nodes[name].kill() for name in victims))
        self._covered["kill of a leader"] += leader in victims
        self._covered["kill of several"] += len(victims) > 1
        if victims == [leader] and not self._members.fixed:  # else nobody leads until it is back
            self._kills.append(moment)
            await self._wait(lambda: self._traffic.acked_since(moment))
        await asyncio.sleep(self._chance.uniform(0.0, 1.5))
        await asyncio.gather(*(nodes[name].start() for name in victims))
        return f"kill of {' '.join(victims)} (leader {leader})"

    async def _restart(self) -> str:
        """L1: the next one is stopped when the last one is back and has what the others have."""
        members, begin = self._members, time.monotonic()
        await self._well("a fault")
        asked = time.monotonic()
        for name in members.names:
            code = await members.nodes[name].stop()
            if code:
                self._found.append(f"{name} ended with {code} when it was stopped in order")
            await members.nodes[name].start()
            await self._well(f"the restart of {name}")
            end = max(one.committed for one in members.status.values())
            await self._wait(lambda name=name, end=end: name in members.status and members.status[name].end >= end)
        sends = [each for each in self._traffic.since(begin) if each.began_s > asked]
        self._longest_s_restarting = max([self._longest_s_restarting, *(each.ended_s - each.began_s for each in sends)])
        self._found += [f"a send failed in a rolling restart: {each.trouble}" for each in sends if each.outcome != ACKED]
        return "rolling restart"

    async def _hand_over(self) -> str:
        leader = await self._leader()
        to = self._chance.choice([name for name in self._members.names if name != leader])
        await self._traffic.hand_over(to)
        return f"handover from {leader} to {to}"

    async def _pause(self) -> str:
        leader = await self._leader()
        victim = self._every_other("pause", leader)
        seconds = 0.5 * (2 * self._longest_s) ** self._chance.random()
        self._members.nodes[victim].freeze()
        await asyncio.sleep(seconds)
        self._members.nodes[victim].thaw()
        self._covered["pause of a leader"] += victim == leader
        return f"pause of {victim} for {seconds:.1f} s (leader {leader})"

    async def _partition(self) -> str:
        assert self._net is not None
        leader = await self._leader()
        kind = self._chance.choice(("halves", "leader alone", "leader and clients", "one way", "flapping"))
        cuts = self._cuts(kind, leader)
        for _ in range(4 if kind == "flapping" else 1):
            await self._net.cut(*cuts)
            await asyncio.sleep(self._chance.uniform(*((0.1, 1.5) if kind == "flapping" else (1.0, min(8.0, self._longest_s)))))
            await self._net.heal()
            await asyncio.sleep(self._chance.uniform(0.1, 1.0) if kind == "flapping" else 0.0)
        self._covered[f"partition: {kind}"] += 1
        return f"partition: {kind} (leader {leader})"

    def _cuts(self, kind: str, leader: str) -> list[tuple[str, str]]:
        """Returns the directions to cut. With "leader and clients" and "flapping" only the leader and its followers do not
        hear each other."""
        others = [name for name in self._members.names if name != leader]
        follower = self._chance.choice(others)
        if kind == "halves":  # each with a nameserver
            minority = [self._chance.choice((leader, follower)), "s0"]
            return both_ways(minority, [name for name in (*HOSTS, CLIENT) if name not in minority])
        if kind == "leader alone":
            return both_ways([leader], [name for name in (*HOSTS, CLIENT) if name != leader])
        if kind == "one way":
            return self._chance.choice(
                (
                    [(leader, follower)],
                    [(follower, leader)],
                    [(leader, name) for name in others],
                    [(name, leader) for name in others],
                    [(leader, CLIENT)],
                    [(CLIENT, leader)],
                )
            )
        return both_ways([leader], others)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _every_other(self, fault: str, leader: str) -> str:
        """Chooses the leader, then a follower, and so on."""
        others = [name for name in self._members.names if name != leader]
        return self._chance.choice(others) if self._covered[fault] % 2 else leader

    async def _leader(self) -> str:
        if not await self._wait(lambda: self._members.leader):
            raise TimeoutError(f"nobody leads: {self._members.status}")
        return self._members.leader

    async def _well(self, after: str) -> None:
        """Waits until all nodes answer, one leads, and sends that begin now are acknowledged."""
        begin = time.monotonic()
        well = await self._wait(
            lambda: self._members.leader and len(self._members.status) == 3 and self._traffic.acked_since(begin)
        )
        if not well:
            self._found.append(f"not well {WELL_S:.0f} s after {after}: {self._members.status}")

    async def _wait(self, condition: object) -> bool:
        assert callable(condition)
        until = time.monotonic() + WELL_S
        while not condition():
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.01)
        return True

    def _failovers(self) -> list[float]:
        """Seconds from the kill of a leader to the end of the first acknowledged send that began after it."""
        acked = sorted((one for one in self._traffic.attempts if one.outcome == ACKED), key=lambda one: one.ended_s)
        ends = [one.ended_s for one in acked]
        took = []
        for moment in self._kills:
            later = acked[bisect_right(ends, moment) :]
            took.append(next((one.ended_s - moment for one in later if one.began_s > moment), float("inf")))
        return took


async def campaign(
    folder: Path,
    faults: list[str],
    *,
    seed: int,
    rate: float,
    flush: str = "async",
    fixed: bool = False,
    longest_s: float = 20.0,
    stays_s: tuple[float, float] = STAYS_S,
    tell: bool = False,
) -> Result:
    random.Random(seed).shuffle(faults)
    async with AsyncExitStack() as stack:
        net = await stack.enter_async_context(Network(HOSTS)) if "partition" in faults else None
        members = Members(folder, net, fixed=fixed, flush=flush, **waiting.SETTINGS)
        stack.push_async_callback(members.kill)
        await members.start()
        traffic, waits = Traffic(members, rate, seed), waiting.Waiting(members, rate * WAITING, seed)
        stack.push_async_callback(traffic.stop)
        stack.push_async_callback(waits.stop)
        await traffic.start()
        await waits.start()
        changing = asyncio.create_task(traffic.takers.come_and_go(stays_s))
        run, begin = Campaign(members, traffic, net, seed, longest_s), time.monotonic()
        await run.run(faults, tell)
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        await traffic.takers.settle()
        seconds = time.monotonic() - begin
        found = [*await waits.finish(), *await run.finish()]
        return run.result(found, waits.covered, seconds)


def too_little(result: Result, wanted: Counter[str]) -> list[str]:
    """Says why the run proves little, if it does (G4)."""
    few = [f"only {result.faults[fault]} of {count} {fault}s" for fault, count in wanted.items() if result.faults[fault] < count]
    least = wanted["kill"] // 4 + wanted["partition"] // 4 + wanted["pause"] // 6 + wanted["restart"] + wanted["handover"] // 2
    if result.leader_changes < least:
        few.append(f"only {result.leader_changes} leader changes, {least} wanted")
    if result.cuts < 2 * wanted["partition"]:
        few.append(f"only {result.cuts} cuts")
    if result.seconds > 60 and not (result.faults["consumer that died"] and result.faults["consumer that joined"]):
        few.append("no consumer died")
    if result.outcomes[ACKED] < 200 * result.seconds:
        few.append(f"only {result.outcomes[ACKED] / result.seconds:.0f} acknowledged sends a second")
    return few


def show(result: Result) -> None:
    rate = result.outcomes[ACKED] / result.seconds
    print(
        f"{result.seconds:.0f} s; {result.outcomes[ACKED]} acknowledged ({rate:.0f}/s), {result.outcomes[UNKNOWN]} unknown, "
        f"{result.outcomes[REFUSED]} refused; {result.reads} read at the nodes, {result.repeats} consumed again"
    )
    print(
        f"{result.leader_changes} leader changes, {result.cuts} directions cut; "
        + ", ".join(f"{count} {name}" for name, count in sorted(result.faults.items()))
    )
    if took := sorted(result.failovers):
        p50, p90, p99 = (took[min(len(took) - 1, int(len(took) * share))] for share in (0.5, 0.9, 0.99))
        print(
            f"from the kill of a leader to the first send that another one acknowledged, {len(took)} times: "
            f"p50 {p50:.2f} s, p90 {p90:.2f} s, p99 {p99:.2f} s, longest {took[-1]:.2f} s"
        )
    if result.longest_s:
        print(f"longest send while all nodes were restarted in turn: {result.longest_s:.2f} s")
    print(f"{len(result.found)} problems")
    print("\n".join(result.found[:40]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for fault in FAULTS:
        parser.add_argument(f"--{fault}s", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1200.0)
    parser.add_argument("--flush", choices=["sync", "async"], default="async")
    parser.add_argument("--fixed", action="store_true", help="a master with slaves; a killed master is the master again")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--load", type=float, default=0.8, help="with --soak: share of the cores that is busy")
    parser.add_argument("--floor", type=float, default=600.0, help="with --soak: sends a second, however busy the cores are")
    parser.add_argument("--keep", type=Path, help="where stores and the nodes' logs are left")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        logging.basicConfig(filename=folder / "clients.log", format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
        raise SystemExit(run_soak(folder, options) if options.soak else run_campaign(folder, options))


def run_soak(folder: Path, options: argparse.Namespace) -> int:
    result = run_fast(soak.soak(folder, options.soak, options.load, options.rate, min(options.rate, options.floor)))
    soak.show(result)
    return 1 if soak.failed(result) else 0


def run_campaign(folder: Path, options: argparse.Namespace) -> int:
    wanted = Counter({fault: getattr(options, f"{fault}s") for fault in FAULTS})
    if wanted["partition"] and not possible():
        raise SystemExit("partitions need root and network namespaces: leave --partitions away")
    faults = list(wanted.elements())
    run = campaign(folder, faults, seed=options.seed, rate=options.rate, flush=options.flush, fixed=options.fixed, tell=True)
    result = run_fast(run)
    few = too_little(result, wanted)
    show(result)
    print("\n".join(few))
    return 1 if result.found or few else 0


if __name__ == "__main__":
    main()
