"""A real node in a process of its own, to be killed and started again."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from pathlib import Path

from rmq.errors import RmqError
from rmq.net.commands import Hello, Ping
from tests import janitor
from tests.dialing import dial
from tests.ports import free_port

READY_S = 30.0
BUILDS = list(filter(None, os.environ.get("RMQ_TEST_BUILDS", "").split(os.pathsep)))
"""Trees of this project: each start of a node takes one of them by chance, so that builds meet in one group."""
_chance = random.Random(len(BUILDS))


class NodeProcess:
    """`rmq node --role all` on `host`, loopback by default. `settings`: names of NodeSettings in lower case -> text.

    `command` runs the program, `environment` is added to the process's own; what it prints goes to `log`.
    """

    def __init__(self, store: Path, *, host: str = "127.0.0.1", log: Path | None = None, **settings: str) -> None:
        self.command = [sys.executable, "-m", "rmq.cli"]
        self.environment: dict[str, str] = {}
        self.port = free_port()
        self.namesrv_port = free_port()
        self._settings = {
            "role": "all",
            "listen_host": host,
            "insecure": str(host != "127.0.0.1").lower(),  # network namespaces of a test's own
            "store_dir": str(store),
            "listen_port": str(self.port),
            "namesrv_port": str(self.namesrv_port),
            "vip_port": "false",
            **settings,
        }
        self._log = log or store.with_suffix(".log")
        self.process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        """The address of the broker, or of a nameserver that stands alone (its port may be called `listen_port`, too)."""
        return f"{self._settings['listen_host']}:{self.port}"

    async def start(self) -> None:
        """Starts the node, and returns once it answers."""
        janitor.begin()
        env = {k: v for k, v in os.environ.items() if not k.startswith("RMQ_")}
        env |= {f"RMQ_{name.upper()}": value for name, value in self._settings.items()} | _build() | self.environment
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, "node", env=env, stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL
            )
        try:
            await asyncio.wait_for(self._answers(), READY_S)
        except BaseException:
            await self.kill()
            raise

    async def _answers(self) -> None:
        while True:
            try:
                channel = await dial(self.address, Hello(1, "probe"))
                try:
                    await channel.request(Ping(), 5.0)
                    return
                finally:
                    await channel.close()
            except RmqError:
                assert self.process is not None
                if self.process.returncode is not None:
                    raise RuntimeError(f"the node ended with {self.process.returncode}: {self.log_text()[-2000:]}") from None
            await asyncio.sleep(0.02)

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Pauses the process until it is thawed or killed."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Sends SIGTERM, and returns the exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, signum: int) -> int:
        """Does nothing if the process never began or has ended."""
        if self.process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signum)
        return await self.process.wait()

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")


def _build() -> dict[str, str]:
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": _chance.choice(BUILDS)} if BUILDS else {}
