"""Machines of our own on one machine: network namespaces on a bridge, between which any direction can be cut. The bridge has one
of its own, where no rules of this machine hold: with Docker's it forwards nothing.

Linux and root only (`possible()`). A cut from a to b gives b's address at a a hardware address that nobody has: what a sends
to b disappears without an error, as on a broken switch, while connections stay open. The caller itself is the host "client".
"""

import asyncio
import os
import shutil
import socket
import subprocess

from tests import janitor

CLIENT = "client"
SWITCH = "switch"


def possible() -> bool:
    """Whether this process may make namespaces and links."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"rmqp{os.getpid()}"
    tries = (["netns", "add", probe], ["link", "add", probe, "type", "bridge"], ["netns", "del", probe], ["link", "del", probe])
    return all([subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0 for words in tries])


class Network:
    """`async with Network(["n0", "s0"]) as net`. `net.address["n0"]` is an IP address; it lasts as long as the block."""

    def __init__(self, hosts: list[str]) -> None:
        self._mark = janitor.begin()
        self._hosts = {name: number for number, name in enumerate(hosts, 2)} | {CLIENT: 1}
        subnet, self._holds = _free_subnet()
        self.address = {name: f"{subnet}.{number}" for name, number in self._hosts.items()}
        self._cut: set[tuple[str, str]] = set()
        self.cuts = 0

    async def __aenter__(self) -> "Network":
        try:
            await self._build()
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._remove()

    def inside(self, host: str) -> list[str]:
        """Returns what to put before a command to run it on that host."""
        return ["ip", "netns", "exec", self._space(host)]

    async def cut(self, *directions: tuple[str, str]) -> None:
        """From now on no message of the first host of each pair reaches the second."""
        self.cuts += len(directions)
        self._cut |= set(directions)
        for source, target in directions:
            await self._point(source, target, "02:13:00:00:ff:ff")

    async def heal(self) -> None:
        cut, self._cut = self._cut, set()
        for source, target in cut:
            await self._point(source, target, self._mac(target))

    def _space(self, host: str) -> str:
        return f"{self._mark}-{host}"

    def _mac(self, host: str) -> str:
        return f"02:13:00:00:00:{self._hosts[host]:02x}"

    async def _build(self) -> None:
        switch = self._space(SWITCH)
        await _ip("netns", "add", switch)
        await _ip("-n", switch, "link", "add", SWITCH, "type", "bridge")
        await _ip("-n", switch, "link", "set", SWITCH, "up")
        for host, number in self._hosts.items():
            port, space = f"port{number}", self._space(host)
            if host == CLIENT:
                link, owner, here = self._mark, str(os.getpid()), ()
            else:
                link, owner, here = "eth0", space, ("-n", space)
                await _ip("netns", "add", space)
                await _ip(*here, "link", "set", "lo", "up")
            end = ("name", link, "address", self._mac(host), "netns", owner)
            await _ip("-n", switch, "link", "add", port, "type", "veth", "peer", *end)
            await _ip("-n", switch, "link", "set", port, "master", SWITCH, "up")
            await _ip(*here, "addr", "add", f"{self.address[host]}/24", "dev", link)
            await _ip(*here, "link", "set", link, "up")
        for source in self._hosts:
            for target in self._hosts:
                if source != target:
                    await self._point(source, target, self._mac(target))

    async def _point(self, source: str, target: str, mac: str) -> None:
        where = ("dev", self._mark) if source == CLIENT else ("dev", "eth0")
        space = () if source == CLIENT else ("-n", self._space(source))
        await _ip(*space, "neigh", "replace", self.address[target], "lladdr", mac, "nud", "permanent", *where)

    async def _remove(self) -> None:
        for host in (*self._hosts, SWITCH):
            if host != CLIENT:
                await _ip("netns", "del", self._space(host), check=False)
        self._holds.close()


def _free_subnet() -> tuple[str, socket.socket]:
    """The first three numbers of addresses that no other run has, as long as the socket is open: of two bridges with the same
    ones only the first is reached."""
    for number in range(256):
        subnet, holds = f"10.213.{number}", socket.socket(socket.AF_UNIX)
        try:
            holds.bind(f"\0rmq-{subnet}")  # a name that goes with the socket
        except OSError:
            holds.close()
        else:
            return subnet, holds
    raise OSError("256 networks are in use")


async def _ip(*words: str, check: bool = True) -> None:
    process = await asyncio.create_subprocess_exec("ip", *words, stderr=asyncio.subprocess.PIPE)
    _, trouble = await process.communicate()
    if check and process.returncode:
        raise OSError(f"ip {' '.join(words)}: {trouble.decode().strip()}")
