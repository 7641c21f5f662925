"""What a noisy neighbour leaves to others where it has a quota: the rate of a quiet user alone, and beside it, in pairs.

    python -m benchmarks.neighbour [--seconds 0.4] [--pairs 50]

One `rmq node` with users; the quiet user and the noisy one, each a process. Both keep 64 requests of 1000 bytes in flight on each
connection. The noisy one has 8 connections, a quota of 100 messages a second, and does not keep the time that it is told to
wait: it sends, or reads, again at once, as cheaply as it can (RocketMQ's protocol, a signature that it uses again). Rates are
messages of the quiet user for each second of the node's CPU, since the clients' own CPU would count for the noise otherwise.
A pair is two slices of time, one after the other; the noisy one is stopped (SIGSTOP) in the first or in the second, in turn.
Slices are short and many, because the machine's own pace changes from second to second.
Takes 4 * pairs * seconds and some 20 s.
"""

import argparse
import asyncio
import json
import selectors
import signal
import socket
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final, cast

import psutil

from benchmarks.cputime import cpu_seconds
from benchmarks.security import BODY_BYTES, HOST, IN_FLIGHT, ROOT, SEND, Case, answered, opened, signed_burst
from rmq.clock import SystemClock
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.net.commands import CreateAcl, CreateUser, Hello, Send, SetQuota, UpdateTopic, UserInfo
from rmq.net.commands.access import AclInfo, Policy, PolicyEntry
from rmq.net.commands.quotas import QuotaRow
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.scram import Credentials
from tests.faults.node import NodeProcess

QUIET, NOISY = "quiet", "noisy"
CONNECTIONS, RATE = 8, 100
WAYS: Final = ("send", "pull")
PULL: Final = {
    **{"consumerGroup": NOISY, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0"},
    **{"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"},
}


async def connected(address: str, user: str) -> Channel:
    dialer = Dialer(SystemClock(), credentials=Credentials(user, f"{user}-secret"))
    return await dialer.open(address, Hello(1, f"client of {user}"))


def request(user: str) -> Send:
    return Send("p", user, 0, record.draft(user, b"x" * BODY_BYTES, b"", born_timestamp=1, born_host=HOST))


async def ask_on(channel: Channel, wanted: Send, until_s: float) -> tuple[int, int]:
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


def make_noise(address: str, way: str) -> None:
    """A process of its own, until it is killed. It signs one request, and sends it again and again: that costs it least."""
    host, _, port = address.rpartition(":")
    who = Credentials(NOISY, f"{NOISY}-secret")
    if way == "pull":
        burst = signed_burst(11, {**PULL, "topic": NOISY}, b"", who)
    else:
        burst = signed_burst(310, {**SEND, "b": NOISY}, b"x" * BODY_BYTES, who)
    poll, waiting = selectors.DefaultSelector(), {}
    for _ in range(CONNECTIONS):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(burst)
        poll.register(connection, selectors.EVENT_READ)
        waiting[connection] = (IN_FLIGHT, b"")
    print("ready", flush=True)
    while True:
        for key, _ in poll.select():
            connection = cast(socket.socket, key.fileobj)
            left, rest = answered(*waiting[connection], connection.recv(1 << 20))
            if left <= 0:
                connection.sendall(burst)
                left += IN_FLIGHT
            waiting[connection] = left, rest


async def prepared(node: NodeProcess) -> None:
    root = await opened(Case("", node, None, ROOT))
    for user in (QUIET, NOISY):
        await root.request(UpdateTopic(user, read_queue_nums=1, write_queue_nums=1), 30.0)
        await root.request(CreateUser(user, UserInfo(user, f"{user}-secret")), 30.0)
        entries = [PolicyEntry(f"Topic:{user}", ["All"]), PolicyEntry(f"Group:{user}", ["All"])]
        await root.request(CreateAcl(f"User:{user}", AclInfo("", [Policy("Custom", entries)])), 30.0)
        await root.request(request(user), 30.0)
    await root.request(SetQuota(QuotaRow(f"User:{NOISY}", messages_in=RATE, messages_out=RATE)), 30.0)
    await root.close()


async def rate(node: NodeProcess, seconds: float) -> float:
    """Of the quiet user: messages for each second of the node's CPU, whatever else takes that."""
    assert node.process is not None
    process, channel, clock = psutil.Process(node.process.pid), await connected(node.address, QUIET), SystemClock()
    begun_s = cpu_seconds(process)
    served, refused = await ask_on(channel, request(QUIET), clock.monotonic() + seconds)
    used_s = cpu_seconds(process) - begun_s
    assert not refused, "the quiet user has no quota"
    await channel.close()
    return served / used_s


async def compared(node: NodeProcess, way: str, seconds: float, pairs: int) -> tuple[list[float], list[float]]:
    """The rates of the quiet user alone, and beside the noisy one."""
    words = (sys.executable, "-m", "benchmarks.neighbour", "--noise", node.address, way)
    noise = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    found: dict[signal.Signals, list[float]] = {signal.SIGSTOP: [], signal.SIGCONT: []}
    try:
        assert noise.stdout is not None
        assert await noise.stdout.readline() == b"ready\n"
        for pair in range(pairs):
            for order in list(found)[:: -1 if pair % 2 else 1]:
                noise.send_signal(order)
                found[order].append(await rate(node, seconds))
    finally:
        noise.kill()
        await noise.wait()
    return found[signal.SIGSTOP], found[signal.SIGCONT]


async def measure(folder: Path, seconds: float, pairs: int) -> None:
    node = NodeProcess(
        folder / "store",
        authentication="true",
        authorization="true",
        init_user=json.dumps({"username": ROOT.name, "password": ROOT.secret}),
        node_credentials=json.dumps({"accessKey": "node", "secretKey": "another one"}),
    )
    try:
        await node.start()
        await prepared(node)
        await rate(node, seconds)  # everything is warm
        for way in WAYS:
            alone, together = await compared(node, way, seconds, pairs)
            left = [with_noise / without for without, with_noise in zip(alone, together, strict=True)]
            middle = [statistics.median(each) for each in (alone, together, left)]
            print(f"a neighbour that wants to {way} more than its {RATE} messages a second, {pairs} pairs:")
            print(f"  messages of the quiet user for a second of CPU: alone {middle[0]:.0f}, beside it {middle[1]:.0f}")
            whole = statistics.harmonic_mean(together) / statistics.harmonic_mean(alone)
            print(f"  left of its rate: {middle[2]:.1%} in the median pair, {whole:.1%} of all pairs together", flush=True)
    finally:
        await node.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--noise", nargs=2, metavar=("ADDRESS", "WAY"), help="be the noisy one; used by the benchmark itself")
    options = parser.parse_args()
    if options.noise:
        make_noise(*options.noise)
    else:
        with tempfile.TemporaryDirectory(prefix="rmq-neighbour-") as made_folder:
            asyncio.run(measure(Path(made_folder), options.seconds, options.pairs))
