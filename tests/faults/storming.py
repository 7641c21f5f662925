"""Connections that send mutated frames and count what becomes of each: the hostile half of `tests.faults.strangers`.

A volley is some frames and a question that is always answered: its answer says that everything before it was read. Only such
volleys count, and of others what was answered. A damaged frame comes behind a volley: the connection may end by it.
"""

import asyncio
import contextlib
import random
from collections import Counter
from typing import NamedTuple

import msgpack

from rmq.errors import BadBytes
from rmq.net.codec.native import Native
from rmq.net.commands import Hello, Ping
from rmq.net.commands.peers import IntroducePeer
from rmq.net.remoting.headers import ANSWER_FLAG, read, write
from tests.faults.mutating import BROKER, NAMESERVER, PEERS, Mutant, Mutator

VOLLEY, VOLLEYS = 16, 30
DAMAGED = 0.3  # of the volleys are followed by a damaged frame
END_ID = 1 << 30
UNKNOWN_CODE = 9_999  # every node answers that it does not know it
STUCK_S, REST_S = 20.0, 0.1
NATIVE = Native(1 << 20)


class Target(NamedTuple):
    """`kind`: of frames: "native", "remoting", "nameserver", "nameserver-remoting", "peer". `me`: how it introduces itself."""

    name: str
    address: str
    broker: str
    kind: str
    me: IntroducePeer | None = None


class Fate(NamedTuple):
    """`result`: the code of the answer; -1: none came (one-way, an answer itself, waiting); -2: the frame was damaged."""

    kind: str
    code: int
    result: int


class Storm:
    """What became of the frames. `found`: what no frame may bring about."""

    def __init__(self, rate: float = 1e9) -> None:
        """`rate`: at most so many frames a second."""
        self._each_s, self._next = 1 / rate, 0.0
        self.fates: Counter[Fate] = Counter()
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []

    def add(self, other: "Storm") -> None:
        self.fates += other.fates
        self.counts += other.counts
        self.found += other.found

    async def turn(self, frames: int) -> None:
        """Returns when it may send so many."""
        now = asyncio.get_running_loop().time()
        begin = max(self._next, now)
        self._next = begin + frames * self._each_s
        await asyncio.sleep(begin - now)

    @property
    def frames(self) -> int:
        return sum(self.fates.values())


class Stream:
    """One connection after the other to one target until it sent `frames`."""

    def __init__(self, target: Target, seed: int, frames: int, storm: Storm) -> None:
        self._target = target
        self._chance = random.Random(f"{seed} {target.name} {target.kind}")
        known = {"node": target.me.node, "store": target.me.store, "candidate": target.me.node} if target.me else {}
        self._mutator = Mutator(self._chance, target.broker, known)
        self._left = frames
        self._storm = storm
        self._native = "remoting" not in target.kind
        self._kinds = PEERS if target.kind == "peer" else NAMESERVER if "nameserver" in target.kind else BROKER

    async def run(self) -> None:
        failures = 0
        while self._left > 0 and failures < 100:
            try:
                host, port = self._target.address.rsplit(":", 1)
                reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
            except OSError:
                failures += 1
                await asyncio.sleep(0.1)
                continue
            failures = 0
            self._storm.counts["connections"] += 1
            with contextlib.suppress(OSError):
                await self._use(reader, writer)
            writer.transport.abort()
        if self._left > 0:
            self._storm.found.append(f"{self._target.name} takes no connections any more")

    async def _use(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Sends one volley after the other; a volley that is not answered when the next one is sent may still be answered."""
        if self._native and self._chance.random() < 0.98:
            writer.write(NATIVE.request(Hello(1, "stranger"), END_ID - 1, False))
            if self._target.me is not None:
                writer.write(NATIVE.request(self._target.me, END_ID - 2, False))
        waiting: dict[int, int] = {}
        for first in range(0, VOLLEY * VOLLEYS, VOLLEY):
            sent = [self._frame(first + number) for number in range(min(VOLLEY, self._left))]
            waiting |= {first + number: mutant.code for number, mutant in enumerate(sent)}
            await self._storm.turn(len(sent))
            writer.write(b"".join(mutant.frame for mutant in sent) + self._end())
            if not await self._read(reader, waiting, STUCK_S):
                self._storm.counts["connections ended by whole frames"] += 1
                waiting = {number: code for number, code in waiting.items() if number < first}
                break
            self._left -= len(sent)
            damaged = self._left > 0 and self._chance.random() < DAMAGED
            if not self._left or (damaged and not await self._damage(reader, writer, sent[-1], waiting)):
                break
        self._storm.fates.update(Fate(self._target.kind, code, -1) for code in waiting.values())

    async def _damage(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whole: Mutant, waiting: dict[int, int]
    ) -> bool:
        """Sends a damaged frame, and returns whether the connection goes on: if the frame claims to be longer, the node waits
        for the rest."""
        writer.write(self._mutator.damaged(whole).frame + self._end())
        self._left -= 1
        self._storm.counts["damaged frames"] += 1
        self._storm.fates[Fate(self._target.kind, whole.code, -2)] += 1
        return await self._read(reader, waiting, REST_S)

    def _frame(self, number: int) -> Mutant:
        if self._native:
            return self._mutator.native(self._chance.choice(self._kinds), number)
        return self._mutator.remoting(number)

    def _end(self) -> bytes:
        return NATIVE.request(Ping(), END_ID, False) if self._native else write(False, UNKNOWN_CODE, 0, END_ID, "", None)

    async def _read(self, reader: asyncio.StreamReader, waiting: dict[int, int], timeout_s: float) -> bool:
        """Reads answers up to that of the last question (True), or to the end of the connection."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    frame = await reader.readexactly(size)
                    result, call_id = _answer(frame) if self._native else _remoting_answer(frame)
                    if call_id == END_ID:
                        return True
                    self._answered(result, call_id, frame, waiting)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        except TimeoutError:
            if timeout_s == STUCK_S:
                self._storm.found.append(f"{self._target.name} ({self._target.kind}) did not answer within {STUCK_S:g} s")
            return False

    def _answered(self, result: int, call_id: int, frame: bytes, waiting: dict[int, int]) -> None:
        if result == 1 and b"internal error" in frame[:400]:
            self._storm.found.append(f"{self._target.name} ({self._target.kind}): {frame[:300]!r}")
        code = waiting.pop(call_id, None)
        if code is not None:
            self._storm.fates[Fate(self._target.kind, code, result)] += 1


def _answer(frame: bytes) -> tuple[int, int]:
    """Code and id; (0, -1) for what is no answer."""
    unpacker = msgpack.Unpacker(max_buffer_size=64)
    unpacker.feed(frame[:40])
    unpacker.read_array_header()
    code, call_id, flags = unpacker.unpack(), unpacker.unpack(), unpacker.unpack()
    return (code, call_id) if flags & 1 else (0, -1)


def _remoting_answer(frame: bytes) -> tuple[int, int]:
    try:
        header, _ = read(frame, 1 << 24)
    except BadBytes as error:
        raise AssertionError(f"the node sent a header that cannot be read: {error}") from error
    return (header.code, header.opaque) if header.flag & ANSWER_FLAG else (0, -1)


async def storm(targets: list[Target], seed: int, frames: int, rate: float) -> Storm:
    """Sends so many frames, spread over the targets, `rate` a second."""
    found = Storm(rate)
    each = -(-frames // len(targets))
    await asyncio.gather(*(Stream(target, seed, each, found).run() for target in targets))
    return found
