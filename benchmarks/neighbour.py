"""What a noisy neighbour leaves to others where it has a quota: the rate of a quiet user alone, and beside it, in pairs.

    python -m benchmarks.neighbour [--seconds 3] [--pairs 5]

One `rmq node` with users on a core of its own; the quiet user and the noisy one, each a process, share the other. Both keep 64
requests of 1000 bytes in flight. The noisy one has 8 connections, a quota of 1000 messages a second, and does not keep the time
that it is told to wait: it sends, or reads, again at once. Takes 2 * 2 * pairs * seconds and some.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.security import BODY_BYTES, HOST, IN_FLIGHT, ROOT, Case, opened
from rmq.clock import SystemClock
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.net.commands import CreateAcl, CreateUser, Hello, Pull, Request, Send, SetQuota, UpdateTopic, UserInfo
from rmq.net.commands.access import AclInfo, Policy, PolicyEntry
from rmq.net.commands.quotas import QuotaRow
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.scram import Credentials
from tests.faults.node import NodeProcess

QUIET, NOISY = "quiet", "noisy"
CONNECTIONS, RATE = 8, 1000
WAYS: Final = ("send", "pull")
SUBSCRIBED: Final = 4


async def connected(address: str, user: str) -> Channel:
    dialer = Dialer(SystemClock(), credentials=Credentials(user, f"{user}-secret"))
    return await dialer.open(address, Hello(1, f"client of {user}"))


def request(user: str, way: str) -> Request:
    if way == "pull":
        return Pull(user, user, 0, 0, max_msg_nums=32, sys_flag=SUBSCRIBED)
    return Send("p", user, 0, record.draft(user, b"x" * BODY_BYTES, b"", born_timestamp=1, born_host=HOST))


async def ask_on(channel: Channel, wanted: Request, until_s: float) -> tuple[int, int]:
    """How many were served, and refused, until then (monotonic s)."""
    clock, served, refused = SystemClock(), 0, 0

    async def one() -> None:
        nonlocal served, refused
        while clock.monotonic() < until_s:
            try:
                await channel.request(wanted, 30.0)
                served += 1
            except RmqError:
                refused += 1

    await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
    return served, refused


async def make_noise(address: str, way: str) -> None:
    """A process of its own: until it is killed."""
    channels = [await connected(address, NOISY) for _ in range(CONNECTIONS)]
    print("ready", flush=True)
    await asyncio.gather(*(ask_on(channel, request(NOISY, way), SystemClock().monotonic() + 3600) for channel in channels))


async def prepared(node: NodeProcess) -> None:
    root = await opened(Case("", node, None, ROOT))
    for user in (QUIET, NOISY):
        await root.request(UpdateTopic(user, read_queue_nums=1, write_queue_nums=1), 30.0)
        await root.request(CreateUser(user, UserInfo(user, f"{user}-secret")), 30.0)
        entries = [PolicyEntry(f"Topic:{user}", ["All"]), PolicyEntry(f"Group:{user}", ["All"])]
        await root.request(CreateAcl(f"User:{user}", AclInfo("", [Policy("Custom", entries)])), 30.0)
        await root.request(request(user, "send"), 30.0)
    await root.request(SetQuota(QuotaRow(f"User:{NOISY}", messages_in=RATE, messages_out=RATE)), 30.0)
    await root.close()


async def rate(address: str, seconds: float) -> float:
    """Of the quiet user, messages a second."""
    channel, clock = await connected(address, QUIET), SystemClock()
    begun = clock.monotonic()
    served, refused = await ask_on(channel, request(QUIET, "send"), begun + seconds)
    assert not refused, "the quiet user has no quota"
    took_s = clock.monotonic() - begun
    await channel.close()
    return served / took_s


async def beside(address: str, way: str, seconds: float) -> float:
    words = (sys.executable, "-m", "benchmarks.neighbour", "--noise", address, way)
    noise = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        assert noise.stdout is not None
        assert await noise.stdout.readline() == b"ready\n"
        return await rate(address, seconds)
    finally:
        noise.kill()
        await noise.wait()


async def measure(folder: Path, seconds: float, pairs: int) -> None:
    own, other = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    node = NodeProcess(
        folder / "store",
        authentication="true",
        authorization="true",
        init_user=json.dumps({"username": ROOT.name, "password": ROOT.secret}),
        node_credentials=json.dumps({"accessKey": "node", "secretKey": "another one"}),
    )
    try:
        await node.start()
        assert node.process is not None
        os.sched_setaffinity(node.process.pid, {own})
        os.sched_setaffinity(0, {other})
        await prepared(node)
        await rate(node.address, seconds)  # everything is warm
        for way in WAYS:
            alone, together = [], []
            for _ in range(pairs):
                alone.append(await rate(node.address, seconds))
                together.append(await beside(node.address, way, seconds))
            left = [with_noise / without for without, with_noise in zip(alone, together, strict=True)]
            middle = [statistics.median(each) for each in (alone, together, left)]
            print(f"a neighbour that wants to {way} more than its {RATE} messages a second, {pairs} pairs:")
            print(f"  messages/s of the quiet user: alone {middle[0]:.0f}, beside it {middle[1]:.0f}")
            print(f"  left of its rate: {middle[2]:.1%} in the median pair, {min(left):.1%} in the worst", flush=True)
    finally:
        await node.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--noise", nargs=2, metavar=("ADDRESS", "WAY"), help="be the noisy one; used by the benchmark itself")
    options = parser.parse_args()
    if options.noise:
        asyncio.run(make_noise(*options.noise))
    else:
        with tempfile.TemporaryDirectory(prefix="rmq-neighbour-") as made_folder:
            asyncio.run(measure(Path(made_folder), options.seconds, options.pairs))
