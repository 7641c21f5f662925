"""Apache RocketMQ's Java client, with its default settings, over changes of leader: what it notices.

    python -m tests.interop.crossing [--rate 500] [transfer restart kill]

A group of three and two nameservers, each a process; one Java program sends and consumes all the while.

    transfer   transferLeader: no send may fail
    restart    all nodes stopped in order and started again, one after the other: no send may fail
    kill       kill -9 of the leader, started again after 2 s: no send that began after it listens again may fail

Prints the sends that failed and the longest time in which nothing was consumed, for each of them.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rmq.client import Client
from rmq.commands.shared.options import run_fast
from rmq.errors import RmqError
from rmq.net.commands import Hello
from rmq.net.commands.peers import TransferLeader
from tests.dialing import dial
from tests.faults.members import Members
from tests.faults.traffic import make_topic
from tests.interop import java
from tests.interop.java import Java

TOPIC, QUEUES = "Crossing", 8
KINDS = ("transfer", "restart", "kill")
AWAY_S = 2.0  # a killed node is started again
LISTENS_S = 30.0
QUIET_S = 5.0  # before and after
ROUTES_S = 33.0  # Java asks for routes every 30 s: between two changes, so that it talks to the leader when the next one comes
STEP_S = 300.0


class Crossing(NamedTuple):
    """`failed`: sends that failed and began at or after `counts_from`; `others`: before. Milliseconds."""

    kind: str
    failed: Sequence[str]
    others: int
    longest_pause_ms: int


class Result(NamedTuple):
    """`missing`: acknowledged and not consumed."""

    crossings: Sequence[Crossing]
    tried: int
    sent: int
    missing: int
    repeats: int


async def crossings(folder: Path, kinds: Sequence[str], rate: int, **settings: str) -> Result:
    members = Members(folder, **settings)
    try:
        await members.start()
        async with Client(members.nameserver_list) as client:
            await make_topic(client, members, TOPIC, QUEUES)
        program = await Java.start("crossing", members.nameserver_list, TOPIC, "crossers", str(rate))
        await program.until(lambda: program.got("STARTED"))
        found = []
        for kind in kinds:
            await asyncio.sleep(ROUTES_S if found else QUIET_S)
            found.append(await _cross(kind, members, program))
        await program.tell("no more")
        await program.until(lambda: program.got("TOTAL"))
        (total,) = program.got("TOTAL")
        await program.stop()
        return Result(found, *map(int, total))
    finally:
        await members.kill()


async def _cross(kind: str, members: Members, program: Java) -> Crossing:
    known, begin = len(program.lines), _now_ms()
    counts_from = await {"transfer": _transfer, "restart": _restart, "kill": _kill}[kind](members) or begin
    await asyncio.sleep(QUIET_S)
    lines = [line.split(" ", 3) for line in program.lines[known:]]
    failed = [" ".join(line) for line in lines if line[0] == "FAILED" and int(line[1]) >= counts_from]
    others = sum(line[0] == "FAILED" for line in lines) - len(failed)
    return Crossing(kind, failed, others, max((int(line[2]) for line in lines if line[0] == "PAUSE"), default=0))


async def _transfer(members: Members) -> None:
    before = await _leader(members)
    channel = await dial(members.nodes[before].address, Hello(1, "crossing"))
    await channel.request(TransferLeader(""), 10.0)
    await channel.close()
    await _until(lambda: members.leader not in ("", before))


async def _restart(members: Members) -> None:
    for name in members.names:
        await _leader(members)
        assert await members.nodes[name].stop() == 0
        await members.nodes[name].start()
        await _until(members.level_enough)


async def _kill(members: Members) -> int:
    """When it listens again, in milliseconds."""
    name = await _leader(members)
    await members.nodes[name].kill()
    await asyncio.sleep(AWAY_S)
    starting = asyncio.create_task(members.nodes[name].start())
    listens = await _listens(members.nodes[name].address)
    await starting
    await _until(members.level_enough)
    return listens


async def _listens(address: str) -> int:
    async with asyncio.timeout(LISTENS_S):
        while True:
            try:
                channel = await dial(address, Hello(1, "crossing"))
            except RmqError:
                await asyncio.sleep(0.01)
                continue
            listens = _now_ms()
            await channel.close()
            return listens


async def _leader(members: Members) -> str:
    await _until(lambda: members.leader)
    return members.leader


async def _until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(STEP_S):
        while not condition():
            await asyncio.sleep(0.02)


def _now_ms() -> int:
    return int(time.time() * 1000)


def problems(result: Result) -> list[str]:
    """Why this is not what is promised; pauses are for a quiet machine to judge."""
    found = [f"{one.kind}: {text}" for one in result.crossings for text in one.failed]
    found += [f"{one.kind}: {one.others} sends failed" for one in result.crossings if one.others and one.kind != "kill"]
    if result.missing:
        found.append(f"{result.missing} acknowledged messages were not consumed")
    return found


def show(result: Result) -> None:
    for one in result.crossings:
        before = f" ({one.others} while it was away)" if one.kind == "kill" else ""
        pause_s = one.longest_pause_ms / 1000
        print(f"{one.kind}: {len(one.failed)} failed sends{before}, longest pause of the consumer {pause_s:.2f} s")
    print(
        f"{result.tried} sends, {result.sent} acknowledged, {result.missing} of them not consumed, "
        f"{result.repeats} consumed again"
    )
    print("\n".join(problems(result)[:20]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND")
    parser.add_argument("--rate", type=int, default=500)
    asked = parser.parse_args()
    java.build()
    with tempfile.TemporaryDirectory(prefix="rmq-crossing-") as folder:
        result = run_fast(crossings(Path(folder), asked.kinds, asked.rate))
    show(result)
    raise SystemExit(bool(problems(result)))


if __name__ == "__main__":
    main()
