"""A group without a fault for minutes or hours, on a busy machine: nobody may be elected, no send may fail, no node grow."""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from tests.faults.history import ACKED, REFUSED, UNKNOWN
from tests.faults.members import Members
from tests.faults.traffic import Traffic

LOOK_S = 5.0
WARM_S = 60.0  # memory is first looked at then


class Soak(NamedTuple):
    """`busy`: share of the cores, `rates`: acknowledged sends a second, both each `LOOK_S`. `grown`: of each node, MiB of its
    own memory when it was warm and at the end. `kept`: bytes of the log at the end."""

    seconds: float
    outcomes: Counter[str]
    elections: int
    busy: list[float]
    rates: list[float]
    longest_s: float
    grown: dict[str, tuple[float, float]]
    kept: int
    found: list[str]


async def soak(folder: Path, minutes: float, load: float, rate: float, floor: float) -> Soak:
    """Sends as fast as it takes to keep the cores busy to the share `load`, other programs counted; never slower than `floor`."""
    async with AsyncExitStack() as stack:
        members = Members(folder)
        stack.push_async_callback(members.kill)
        await members.start()
        traffic = Traffic(members, rate, 1)
        stack.push_async_callback(traffic.stop)
        await traffic.start()
        outcomes: Counter[str] = Counter()
        busy: list[float] = []
        rates: list[float] = []
        longest_s, warm, begin = 0.0, dict[str, float](), time.monotonic()
        while time.monotonic() - begin < minutes * 60:
            before, since = _cpu_ticks(), time.monotonic()
            await asyncio.sleep(LOOK_S)
            idle, total = (now - was for now, was in zip(_cpu_ticks(), before, strict=True))
            busy.append(1 - idle / total)
            sends = traffic.forget()
            found = Counter(each.outcome for each in sends)
            outcomes += found
            rates.append(found[ACKED] / (time.monotonic() - since))
            longest_s = max([longest_s, *(each.ended_s - each.began_s for each in sends)])
            traffic.rate = min(20_000.0, max(floor, traffic.rate * min(1.25, max(0.8, load / busy[-1]))))
            if not warm and time.monotonic() - begin > min(WARM_S, minutes * 30):
                warm = _memory(members)
        grown = {name: (warm[name], after) for name, after in _memory(members).items()}
        kept = max(one.end - one.log_start for one in members.status.values())
        elections = members.told("this node leads the group") - 1
        seconds = time.monotonic() - begin
        return Soak(seconds, outcomes, elections, busy, rates, longest_s, grown, kept, members.troubles())


def _cpu_ticks() -> tuple[int, int]:
    """Returns the idle ticks and all ticks of all cores since the machine started."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _memory(members: Members) -> dict[str, float]:
    """Returns MiB of each node's own memory, without mapped files, which belong to the page cache."""
    found = {}
    for name, node in members.nodes.items():
        assert node.process is not None
        lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
        found[name] = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024
    return found


def show(result: Soak) -> None:
    busy, rates, sends = sorted(result.busy), sorted(result.rates), result.outcomes
    memory = ", ".join(f"{name} {before:.0f} to {after:.0f} MiB" for name, (before, after) in sorted(result.grown.items()))
    print(
        f"{result.seconds / 60:.0f} min without a fault; cores busy {busy[len(busy) // 2]:.0%} in the middle, "
        f"{busy[0]:.0%} at least; {sends[ACKED]} acknowledged ({sends[ACKED] / result.seconds:.0f}/s, in the slowest "
        f"{LOOK_S:.0f} s {rates[0]:.0f}/s), {sends[UNKNOWN]} unknown, {sends[REFUSED]} refused; longest send "
        f"{result.longest_s:.2f} s; {result.elections} elections after the first; {len(result.found)} problems\n"
        f"own memory {memory}; {result.kept >> 20} MiB of log"
    )
    print("\n".join(result.found[:20]))


def failed(result: Soak) -> bool:
    return bool(result.elections or result.found or result.outcomes[UNKNOWN] or result.outcomes[REFUSED])
