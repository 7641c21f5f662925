"""A real group: two nameservers and the nodes of one group, each a process, on loopback or in namespaces of their own."""

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path

from rmq.errors import RmqError
from rmq.net.commands import Hello
from rmq.net.commands.peers import GetGroupStatus, GroupStatus
from rmq.net.transport.channel import Channel
from rmq.scram import Credentials
from tests.dialing import dial
from tests.faults.history import Lead
from tests.faults.netns import CLIENT, Network
from tests.faults.node import NodeProcess
from tests.ports import free_port

NAMESERVERS = ("s0", "s1")
SHARED = ("authentication", "authorization", "node_credentials")  # settings that nameservers have, too
GROUP = "RaftNode00"
SEGMENT_BYTES = 16 * 1024 * 1024
LOOK_S = 0.05  # between two looks at who leads


class Members:
    """`await start()`, `await stop()`. `net`: where they live; loopback without. `fixed`: a master with slaves."""

    def __init__(self, folder: Path, net: Network | None = None, count: int = 3, *, fixed: bool = False, **settings: str) -> None:
        self.fixed = fixed
        self._folder = folder
        self._net = net
        self.names = [f"n{number}" for number in range(count)]
        shared = {name: value for name, value in settings.items() if name in SHARED}
        self.nameservers = {name: self._process(name, role="nameserver", **shared) for name in NAMESERVERS}
        self.credentials: Credentials | None = None  # of who watches
        known = ";".join(one.address for one in self.nameservers.values())
        self.peer_addresses = {name: f"{self._host(name)}:{free_port()}" for name in self.names}
        self._peers = ";".join(f"{name}-{address}" for name, address in self.peer_addresses.items())
        self.nodes = {
            name: self._process(
                name,
                role="broker",
                namesrv_addresses=known,
                broker_name=GROUP,
                **self._place(number),
                segment_bytes=str(SEGMENT_BYTES),
                index_slots="100000",
                index_entries="400000",
                **settings,
            )
            for number, name in enumerate(self.names)
        }
        self.leads: set[Lead] = set()
        self.status: dict[str, GroupStatus] = {}  # what each said last, if it answers now
        self._looks = 0  # how often `look_anew` was called
        self._watching: list[asyncio.Task[None]] = []

    def _place(self, number: int) -> dict[str, str]:
        """In the group."""
        if not self.fixed:
            return {"elected": "true", "peers": self._peers, "node_id": self.names[number]}
        role = {"broker_role": "SLAVE"} if number else {"broker_role": "SYNC_MASTER", "in_sync_replicas": "2"}
        return {**role, "broker_id": str(number), "total_replicas": str(len(self.names))}

    def _host(self, name: str) -> str:
        return self._net.address[name] if self._net else "127.0.0.1"

    def _process(self, name: str, **settings: str) -> NodeProcess:
        process = NodeProcess(self._folder / name, host=self._host(name), **settings)
        if self._net:
            process.command = [*self._net.inside(name), *process.command]
        return process

    @property
    def nameserver_list(self) -> str:
        return ";".join(one.address for one in self.nameservers.values())

    async def start(self) -> None:
        await asyncio.gather(*(one.start() for one in self.nameservers.values()))
        await asyncio.gather(*(one.start() for one in self.nodes.values()))
        self.watch()

    def watch(self) -> None:
        """Notes from now on which node leads."""
        self.look_anew()
        self._watching = [asyncio.create_task(self._watch(name)) for name in self.names]

    async def stop(self) -> None:
        """Stops all nodes in order."""
        await self.stop_watching()
        await asyncio.gather(*(one.stop() for one in self.nodes.values() if one.process))
        await asyncio.gather(*(one.stop() for one in self.nameservers.values() if one.process))

    async def stop_watching(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        self._watching = []

    async def kill(self) -> None:
        """Kills the processes that are left, whatever state they are in."""
        await self.stop_watching()
        for one in (*self.nodes.values(), *self.nameservers.values()):
            if one.process is not None and one.process.returncode is None:
                one.process.kill()
                await one.process.wait()

    # --- who leads ----------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> str:
        """The node that leads with the largest epoch, as far as can be seen; "" if none."""
        leading = [(one.epoch, name) for name, one in self.status.items() if one.role == "leader"]
        return max(leading)[1] if leading else ""

    def look_anew(self) -> None:
        """Forgets what the nodes said, also in answers on their way: all that is seen then was so after this call."""
        self._looks += 1
        self.status.clear()

    def level(self) -> bool:
        """Whether all nodes have the same log and have committed all of it. Call `look_anew` first."""
        seen = [self.status.get(name) for name in self.names]
        ends = {(one.epoch, one.end, one.committed) for one in seen if one}
        return all(seen) and len(ends) == 1 and all(end == committed for _, end, committed in ends) and bool(self.leader)

    def level_enough(self) -> bool:
        """Waits until all nodes answer and have what the leader had committed a moment ago."""
        seen = [self.status[name] for name in self.names if name in self.status]
        if len(seen) < len(self.names) or not self.leader:
            return False
        return max(one.committed for one in seen) - min(one.end for one in seen) < 1 << 20

    async def _watch(self, name: str) -> None:
        channel: Channel | None = None
        while True:
            look = self._looks
            try:
                if channel is None or channel.closed.is_set():
                    channel = await dial(self.nodes[name].address, Hello(1, "watch"), timeout_s=1.0, credentials=self.credentials)
                found = await channel.request(GetGroupStatus(), 1.0)
            except RmqError:
                self.status.pop(name, None)
                if channel is not None:
                    channel.abort("asked again on another")  # after a cut a new one is faster
            else:
                if look == self._looks:
                    self.status[name] = found
                if found.role == "leader":
                    self.leads.add(Lead(found.epoch, name))
            await asyncio.sleep(LOOK_S)

    # --- afterwards ---------------------------------------------------------------------------------------------------

    def log_digests(self) -> dict[str, bytes]:
        """Returns each node's SHA-256 of the bytes that all nodes have committed, from where the shortest log begins."""
        begin = max(one.log_start for one in self.status.values())
        end = min(one.committed for one in self.status.values())
        return {name: _digest(self._folder / name / "commitlog", begin, end) for name in self.names}

    def told(self, words: str) -> int:
        """Counts the lines of the nodes' logs that say that."""
        return sum(one.log_text().count(words) for one in self.nodes.values())

    def troubles(self) -> list[str]:
        """Returns lines of the nodes' logs that no fault explains."""
        bad = ("Traceback", "AssertionError", '"level":"critical"', " CRITICAL ", '"error"', " ERROR ")
        return [
            f"{name}: {line[:300]}"
            for name, one in (*self.nodes.items(), *self.nameservers.items())
            for line in one.log_text().splitlines()
            if any(word in line for word in bad)
        ]


def _digest(folder: Path, begin: int, end: int) -> bytes:
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        base = int(path.name)
        if base + SEGMENT_BYTES > begin and base < end:
            data = path.read_bytes()
            found.update(data[max(0, begin - base) : end - base])
    return found.digest()


def both_ways(some: Iterable[str], others: Iterable[str]) -> list[tuple[str, str]]:
    """Directions to cut so that the two sides do not hear each other."""
    others = list(others)
    return [pair for one in some for other in others for pair in ((one, other), (other, one))]


HOSTS = [*NAMESERVERS, "n0", "n1", "n2"]
__all__ = ["CLIENT", "GROUP", "HOSTS", "NAMESERVERS", "Members", "both_ways"]
