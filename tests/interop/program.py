"""A program of another language that runs beside a test: its lines as they come."""

import asyncio
from collections.abc import Mapping, Sequence


class Program:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: Sequence[str], environ: Mapping[str, str]) -> "Program":
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environ))

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().strip())

    def got(self, word: str) -> list[list[str]]:
        """The lines that begin with `word`, as fields."""
        return [fields[1:] for line in self.lines if (fields := line.split(" "))[0] == word]

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reader
