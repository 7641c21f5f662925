"""What TLS, and asking who may, cost a message: CPU of `rmq node` for a send of 1000 bytes, 64 in flight, best of rounds. Native
sends, whose connection logs in once, and RocketMQ's, each of which is signed.

    python -m benchmarks.security [--count 20000] [--rounds 5]

Two nodes, each a process: one open and plain, one with users that takes both plain connections and TLS. Rounds take turns.
"""

import argparse
import asyncio
import json
import socket
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.cputime import cpu_seconds
from rmq.access.sealing import ACCESS_KEY, SIGNATURE, content, signature
from rmq.clock import SystemClock
from rmq.errors import RmqError
from rmq.log.records import record
from rmq.net.commands import Hello, Send, UpdateTopic
from rmq.net.remoting.headers import write
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.network import network_with
from rmq.net.transport.tls import Tls
from rmq.ops.certs import Authority
from rmq.scram import Credentials
from tests.faults.node import NodeProcess

BODY_BYTES, IN_FLIGHT, START_S = 1000, 64, 30.0
PROPERTIES: Final = "UNIQ_KEY\x017F0000010BAD3E8B27C74C0FFEE00001\x02TAGS\x01TagA\x02KEYS\x01order-0000000001\x02WAIT\x01true\x02"
SEND: Final = {"a": "p", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795000000000", "h": "0", "i": PROPERTIES}
HOST = record.host_bytes("127.0.0.1", 0)
ROOT = Credentials("root", "a password of this benchmark")


class Case(NamedTuple):
    title: str
    node: NodeProcess
    tls: Tls | None
    credentials: Credentials | None


async def opened(case: Case) -> Channel:
    clock = SystemClock()
    dialer = Dialer(clock, network_with(case.tls, clock), credentials=case.credentials)
    until = clock.monotonic() + START_S
    while True:
        try:
            return await dialer.open(case.node.address, Hello(1, "benchmark"))
        except RmqError:  # the first user is made a moment after the start
            if clock.monotonic() > until:
                raise


async def cost_us(case: Case, count: int) -> float:
    """Of the node, for each message."""
    assert case.node.process is not None
    process, channel = psutil.Process(case.node.process.pid), await opened(case)
    draft = record.draft("T", b"x" * BODY_BYTES, b"", born_timestamp=1, born_host=HOST)
    begun_s = cpu_seconds(process)
    for _ in range(0, count, IN_FLIGHT):
        await asyncio.gather(*(channel.request(Send("p", "T", number % 4, draft), 30.0) for number in range(IN_FLIGHT)))
    used_s = cpu_seconds(process) - begun_s
    await channel.close()
    return used_s / count * 1e6


def signed_burst(code: int, fields: dict[str, str], body: bytes, who: Credentials | None) -> bytes:
    """As many requests as are in flight, of RocketMQ's protocol; they are all the same, so one signature is enough."""
    ext = dict(fields)
    if who is not None:
        ext[ACCESS_KEY] = who.name
        ext[SIGNATURE] = signature(who.secret, content(ext, body))
    return write(False, code, 0, 1, "", ext, body) * IN_FLIGHT


def answered(left: int, rest: bytes, data: bytes) -> tuple[int, bytes]:
    """How many answers are missing then, and the beginning of one that is not whole."""
    rest += data
    at = 0
    while at + 4 <= len(rest) and at + 4 + (size := int.from_bytes(rest[at : at + 4], "big")) <= len(rest):
        at, left = at + 4 + size, left - 1
    return left, rest[at:]


def remoting_cost_us(node: NodeProcess, who: Credentials | None, count: int) -> float:
    """Of the node, for each message."""
    assert node.process is not None
    host, _, port = node.address.rpartition(":")
    process, burst = psutil.Process(node.process.pid), signed_burst(310, {**SEND, "b": "T"}, b"x" * BODY_BYTES, who)
    with socket.create_connection((host, int(port))) as connection:
        begun_s = cpu_seconds(process)
        for _ in range(0, count, IN_FLIGHT):
            connection.sendall(burst)
            left, rest = IN_FLIGHT, b""
            while left:
                left, rest = answered(left, rest, connection.recv(1 << 20))
        used_s = cpu_seconds(process) - begun_s
    return used_s / count * 1e6


async def measure(folder: Path, count: int, rounds: int) -> None:
    made = Authority.make(folder / "certs", SystemClock()).issue("node", ["127.0.0.1"])
    tls = Tls(ca=str(folder / "certs" / "ca.pem"))
    plain = NodeProcess(folder / "plain")
    locked = NodeProcess(
        folder / "locked",
        tls_mode="permissive",
        tls_cert=str(made.cert),
        tls_key=str(made.key),
        authentication="true",
        authorization="true",
        login_optional="true",
        init_user=json.dumps({"username": ROOT.name, "password": ROOT.secret}),
        node_credentials=json.dumps({"accessKey": "node", "secretKey": "another one"}),
    )
    cases = (
        Case("plain, nobody is asked", plain, None, None),
        Case("plain, users", locked, None, ROOT),
        Case("plain, nobody logs in", locked, None, None),
        Case("TLS, nobody logs in", locked, tls, None),
        Case("TLS, users", locked, tls, ROOT),
    )
    signers = (("RocketMQ's, nobody is asked", plain, None), ("RocketMQ's, signed", locked, ROOT))
    found: dict[str, list[float]] = {title: [] for title in (*(case.title for case in cases), *(each[0] for each in signers))}
    try:
        await asyncio.gather(plain.start(), locked.start())
        for case in cases[:2]:
            channel = await opened(case)
            await channel.request(UpdateTopic("T", read_queue_nums=4, write_queue_nums=4), 30.0)
            await channel.close()
        for _ in range(rounds):
            for case in cases:
                found[case.title].append(await cost_us(case, count))
            for title, node, who in signers:
                found[title].append(await asyncio.to_thread(remoting_cost_us, node, who, count))
    finally:
        await asyncio.gather(plain.stop(), locked.stop())
    print(f"broker CPU of a send of {BODY_BYTES} bytes, {IN_FLIGHT} in flight, best of {rounds}:")
    for title, each in found.items():
        print(f"  {title:28} {min(each):6.1f} us")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-security-") as made_folder:
        asyncio.run(measure(Path(made_folder), options.count, options.rounds))
