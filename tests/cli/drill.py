"""A group of three started by `rmq try`, on ports that are free, for tests that kill its nodes."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from rmq.commands import tryout

PORTS = (9876, 30911, 30921, 30931, 40911, 40912, 40913)


class Drill:
    def __init__(self, directory: Path, shift: int) -> None:
        self.where = ("--dir", str(directory), "--shift", str(shift))
        self.of = tryout.Trial(directory, shift)

    async def rmq(self, *words: str, code: int | None = 0) -> str:
        """Output of one command, which must end with this exit code (None: any)."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "NAMESRV_"))}
        command = [sys.executable, "-m", "rmq.cli", *words]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, env=env, timeout=60)
        assert code in (None, done.returncode), (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    async def cluster(self) -> dict[int, dict[str, Any]]:
        rows = json.loads((await self.rmq("admin", "clusterList", "-o", "json", "-n", self.of.namesrv)).partition("\nwarning")[0])
        return {row["id"]: row for row in rows if row["id"] is not None}  # who is missing has no number

    def leading(self, cluster: dict[int, dict[str, Any]]) -> tryout.Process:
        """The process behind BID 0."""
        port = int(cluster[0]["address"].rpartition(":")[2])
        return next(process for process in self.of.processes() if process.port == port)

    async def kill_leader(self) -> tryout.Process:
        """With kill -9; returns it once another node leads."""
        before = await self.cluster()
        leader = self.leading(before)
        pid = leader.pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while 0 not in (now := await self.cluster()) or now[0]["address"] == before[0]["address"]:
                pass
        assert now[0]["epoch"] > before[0]["epoch"]
        return leader


def free_shift() -> int:
    """A number to add to all ports so that they are free (some lie where systems number outgoing connections)."""
    while True:
        shift = random.randrange(1000, 20_000)
        try:
            with contextlib.ExitStack() as taken:
                for port in PORTS:
                    taken.enter_context(socket.socket()).bind(("127.0.0.1", port + shift))
        except OSError:
            continue
        return shift
