"""What campaigns on a group have in common: kills and pauses of its nodes, waiting for its recovery, and their command line."""

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rmq.commands.shared.options import run_fast
from tests.faults.members import Members

WELL_S = 60.0


class Outcome(Protocol):
    """The outcome of a campaign. `found`: what is wrong."""

    @property
    def found(self) -> list[str]: ...


R = TypeVar("R", bound=Outcome)


async def hurt(members: Members, fault: str, leader: bool, chance: random.Random, covered: Counter[str]) -> None:
    """Does one "kill" or "pause". Before every second kill of a leader its followers are stopped for a moment, so that no
    other node has what it answers then."""
    if not await until(lambda: members.leader):
        raise TimeoutError(f"nobody leads: {members.status}")
    victim = members.leader if leader else chance.choice([name for name in members.names if name != members.leader])
    covered[fault] += 1
    covered[f"{fault} of the leader"] += leader
    if fault == "pause":
        members.nodes[victim].freeze()
        await asyncio.sleep(chance.uniform(0.5, 4.0))
        members.nodes[victim].thaw()
        return
    others = [name for name in members.names if name != victim] if leader and covered[fault] % 2 else []
    covered["kill of a cornered leader"] += bool(others)
    for name in others:
        members.nodes[name].freeze()
    await asyncio.sleep(0.3 if others else 0.0)
    await members.nodes[victim].kill()
    for name in others:
        members.nodes[name].thaw()
    await asyncio.sleep(chance.uniform(0.0, 1.5))
    await members.nodes[victim].start()


async def hurt_all(members: Members, kills: int, pauses: int, chance: random.Random, covered: Counter[str]) -> None:
    """Does so many kills and pauses in any order, two of three at the leader."""
    faults = ["kill"] * kills + ["pause"] * pauses
    chance.shuffle(faults)
    for number, fault in enumerate(faults):
        await asyncio.sleep(chance.uniform(0.5, 2.5))
        await hurt(members, fault, leader=number % 3 != 2, chance=chance, covered=covered)
    await asyncio.sleep(1.0)


async def until(condition: Callable[[], object]) -> bool:
    """Returns whether it came true in time."""
    end = time.monotonic() + WELL_S
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.05)
    return True


def too_few(covered: Counter[str], leader_changes: int, kills: int, pauses: int) -> list[str]:
    """Says why the run proves little, if it does (G4)."""
    wanted = {"kill": kills, "pause": pauses}
    few = [f"only {covered[name]} {name}s" for name, count in wanted.items() if covered[name] < count]
    return [*few, f"only {leader_changes} leader changes"] if leader_changes < kills // 3 else few


def main(
    about: str | None,
    rate: float,
    campaign: Callable[..., Coroutine[Any, Any, R]],
    too_little: Callable[[R, int, int], list[str]],
    told: Callable[[R], str],
) -> None:
    """The program: runs one campaign in a folder, tells what it covered, and ends with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pauses", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=rate)
    parser.add_argument("--flush", choices=["sync", "async"], default="async")
    parser.add_argument("--keep", type=Path, help="where stores and the nodes' logs are left")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        work = campaign(folder, options.kills, options.pauses, seed=options.seed, rate=options.rate, flush=options.flush)
        result = run_fast(work)
    few = too_little(result, options.kills, options.pauses)
    print(told(result))
    print(f"{len(result.found)} problems", *result.found[:40], *few, sep="\n")
    raise SystemExit(1 if result.found or few else 0)


def listed(covered: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(covered.items()))
