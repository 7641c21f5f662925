"""CPU time of the brokers that run on this machine, for `rmq bench`. Linux only; None elsewhere."""

import os
from collections.abc import Sequence
from pathlib import Path

from rmq.client import Client
from rmq.client.admin import calls as client_admin
from rmq.commands.bench import figures
from rmq.errors import RmqError


class BrokerCpu:
    """`complete`: every broker of the cluster is one of `pids`, so the sum tells about all of them."""

    def __init__(self, pids: Sequence[int], complete: bool) -> None:
        self._pids = pids
        self.complete = complete and bool(pids)

    @classmethod
    async def find(cls, client: Client) -> "BrokerCpu":
        """Asks every broker for its process id and looks whether that process is here."""
        pids: set[int] = set()
        complete = True
        info = await client_admin.cluster_info(client)
        for address in {address for broker in info.brokers for address in broker.addresses.values()}:
            pid = await _pid(client, address)
            pids |= {pid} if pid else set()
            complete = complete and bool(pid)
        return cls(sorted(pids), complete)

    def read(self) -> float:
        """Seconds of user and system time so far; a broker that has ended counts 0."""
        return sum(_cpu_seconds(pid) for pid in self._pids)


async def _pid(client: Client, address: str) -> int:
    """0: not ours to see."""
    try:
        facts = await client_admin.runtime_info(client, address)
    except RmqError:
        return 0
    pid = facts.get("pid", "")
    return int(pid) if pid.isdecimal() and "rmq" in _command_line(int(pid)) else 0


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _cpu_seconds(pid: int) -> float:
    try:
        return figures.cpu_seconds(Path(f"/proc/{pid}/stat").read_text(), os.sysconf("SC_CLK_TCK"))
    except OSError:
        return 0.0
