"""Apache RocketMQ's Java client and mqadmin, run against our nodes, and its broker, on our directories.

Needs Maven and a JDK; fetched jars stay in a cache.
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rmq.net.commands import GetClusterInfo
from rmq.testing import INDEX_ENTRIES, INDEX_SLOTS, SEGMENT_BYTES
from tests.broker.javaclient import JavaClient
from tests.interop.maven import fetch
from tests.ports import free_port

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("RMQ_INTEROP_CACHE", Path.home() / ".cache" / "rmq" / "interop-5.5.0-broker"))
JARS = CACHE / "lib"
PROGRAMS = CACHE / "programs.jar"
LOADED = CACHE / "programs.jsa"
PLAIN = ["tls.server.mode=disabled"]  # else a nameserver and a broker make an RSA key when they start: two seconds
LINE_BYTES = 16 << 20  # the longest line that a program may print
TWIN = ["rocketmq.client.rebalance.waitInterval=1000", "rocketmq.client.rebalance.minInterval=200"]
OPENED = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",  # half of a short program's CPU would go into compiling it
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
]
MISSING = "" if shutil.which("mvn") and shutil.which("javac") else "Maven and a JDK are needed (mvn, javac)"


def build() -> None:
    """Fetches RocketMQ's jars (Maven Central) and compiles our programs, once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:  # the workers of one test run come at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not JARS.is_dir():
            fetch(HERE / "pom.xml", JARS)
        sources = [HERE / f"{name}.java" for name in ("Interop", "Tools", "Twin", "Warm")]
        if not LOADED.exists() or LOADED.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            _compile(sources)


def _compile(sources: Sequence[Path]) -> None:
    """The programs, and what they load: they start for half the CPU so. A machine knows jars by their times: it comes last."""
    with TemporaryDirectory() as folder:
        subprocess.run(["javac", "-cp", f"{JARS}/*", "-d", folder, *sources], check=True)
        subprocess.run(["jar", "--create", "--file", PROGRAMS, "-C", folder, "."], check=True)
    with TemporaryDirectory() as folder:
        address = f"127.0.0.1:{free_port()}"
        files = _nameserver_file(Path(folder), int(address.split(":")[1])), _broker_file(Path(folder), address, free_port(1, -2))
        LOADED.unlink(missing_ok=True)
        kept = [f"-XX:ArchiveClassesAtExit={LOADED}"]
        warm = _command("Warm", address, *map(str, files), properties=PLAIN, machine=kept)
        subprocess.run(warm, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=_scratch(), check=True, timeout=120)


def _command(
    main: str, *args: str, properties: Sequence[str] = (), machine: Sequence[str] = (f"-XX:SharedArchiveFile={LOADED}",)
) -> list[str]:
    homes = [f"user.home={CACHE}", f"rocketmq.home.dir={CACHE}"]
    return [
        "java",
        "-Xmx400m",
        "-Xlog:disable",  # of the machine itself, to standard output
        *machine,
        *OPENED,
        *(f"-D{each}" for each in (*homes, *properties)),
        "-cp",
        f"{PROGRAMS}:{JARS}/*",
        main,
        *args,
    ]


def _nameserver_file(folder: Path, port: int) -> Path:
    file = folder / "namesrv.conf"
    file.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\n")
    return file


def _broker_file(folder: Path, nameserver: str, port: int, **more: object) -> Path:
    """Its settings, for a store beside them. Two of its threads look all the time, without these intervals, and take a core."""
    settings = {
        "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": 0, "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1", "listenPort": port, "namesrvAddr": nameserver, "storePathRootDir": folder / "store",
        "storePathCommitLog": folder / "store" / "commitlog", "maxHashSlotNum": INDEX_SLOTS, "maxIndexNum": INDEX_ENTRIES,
        "transactionMetricFlushInterval": 500, "timerFlushIntervalMs": 10_000, **more,
    }  # fmt: skip
    file = folder / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def _scratch() -> Path:
    """Where programs stand: `mqadmin consumerStatus` leaves files there."""
    folder = CACHE / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


started: list[asyncio.subprocess.Process] = []  # by the running test


class Java:
    """A running Java program: its lines of standard output as they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._reader = asyncio.create_task(self._read())
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, *args: str, properties: Sequence[str] = ()) -> "Java":
        """Interop.java with these arguments; `properties` of the machine, as `name=value`."""
        return await cls._run("Interop", *args, properties=properties)

    @classmethod
    async def start_tools(cls, nameserver: str) -> "Java":
        """Tools.java: mqadmin, command after command (`ran`)."""
        tools = await cls._run("Tools", nameserver)
        await tools.until(lambda: tools.got("STARTED"))
        return tools

    @classmethod
    async def start_twin(cls, nameserver: str, broker: str, offsets: Path) -> "Java":
        """Twin.java; broadcast offsets lie in that directory."""
        twin = await cls._run("Twin", nameserver, broker, properties=[*TWIN, f"rocketmq.client.localOffsetStoreDir={offsets}"])
        await twin.until(lambda: twin.got("STARTED"))
        return twin

    @classmethod
    async def _run(cls, main: str, *args: str, properties: Sequence[str] = ()) -> "Java":
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *_command(main, *args, properties=properties), stdin=pipe, stdout=pipe, stderr=pipe, cwd=_scratch(), limit=LINE_BYTES
        )
        started.append(process)
        return cls(process)

    @classmethod
    async def start_nameserver(cls, folder: Path, port: int) -> "Java":
        """RocketMQ's nameserver; returns when it serves."""
        file = _nameserver_file(folder, port)
        nameserver = await cls._run("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(file), properties=PLAIN)
        await nameserver.until(lambda: any("boot success" in line for line in nameserver.lines))
        return nameserver

    @classmethod
    async def start_broker(
        cls, folder: Path, nameserver: str, port: int, segment_bytes: int = SEGMENT_BYTES, **more: object
    ) -> "Java":
        """RocketMQ's broker on the `store` in that directory; returns when it serves, and the nameserver knows it."""
        file = _broker_file(folder, nameserver, port, mappedFileSizeCommitLog=segment_bytes, **more)
        broker = await cls._run("org.apache.rocketmq.broker.BrokerStartup", "-c", str(file), properties=PLAIN)
        await broker.until(lambda: any("boot success" in line for line in broker.lines))
        address = f"127.0.0.1:{port}".encode()
        async with asyncio.timeout(60), JavaClient.connect(nameserver) as client:
            while address not in (await client.ask(GetClusterInfo()))[1]:  # it registers when it likes, on a busy machine
                await asyncio.sleep(0.02)
        return broker

    async def terminate(self) -> None:
        """SIGTERM, as its scripts stop a broker. That takes it 13 s on an idle machine."""
        self._process.terminate()
        async with asyncio.timeout(180):
            await self._reader
            await self._process.wait()

    async def kill(self) -> None:
        self._process.kill()
        await self._reader
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        complaining = asyncio.create_task(self._read_errors())
        async for line in self._process.stdout:
            self.lines.append(line.decode().rstrip("\r\n"))
            self._news.set()
        await complaining
        self._news.set()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.errors.append(line.decode().rstrip())
            self._news.set()

    def got(self, word: str) -> list[list[str]]:
        """The lines that begin with `word`, as fields."""
        return [fields[1:] for line in self.lines if (fields := line.split(" "))[0] == word]

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait for lines until `condition()` holds. TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._news.clear()
                if self._reader.done() and not condition():
                    raise EOFError("the Java program ended:\n" + "\n".join(self.lines[-10:] + self.errors[-30:]))
                await self._news.wait()

    async def tell(self, line: str) -> None:
        """Writes to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def ran(self, *words: str, stop_at: str = "") -> list[str]:
        """What Tools.java prints of a command; one that goes on for ever is stopped when it prints that. One has its turn after
        the other."""
        async with self._turn:
            done, before = len(self.got("DONE")), len(self.lines)
            await self.tell("\t".join(words))
            if stop_at:
                await self.until(lambda: any(stop_at in line for line in self.lines[before:]))
                await self.tell("STOP")
            await self.until(lambda: len(self.got("DONE")) > done)
            lines = self.lines[before:]
            return lines[: lines.index("DONE")]  # a consumer in the same program may have printed more

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def stop(self) -> int:
        """Closes its standard input, which ends a consumer in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(60):
            await self._reader
            return await self._process.wait()


_tools: list[Java] = []  # runs mqadmin's commands for the running test


async def mqadmin(command: str, *args: str, properties: Sequence[str] = ()) -> str:
    """What one mqadmin command prints, without its logging noise. One program runs all commands of a test, one after the other;
    one with `properties` of the machine, as `name=value`, has its own."""
    if properties:
        program = await Java._run("org.apache.rocketmq.tools.command.MQAdminStartup", command, *args, properties=properties)
        await program.stop()
        lines = program.lines + program.errors
    else:
        if not _tools or _tools[-1].ended:
            _tools[:] = [await Java.start_tools("")]
        lines = await _tools[-1].ran(command, *args)
    return "\n".join(line for line in lines if " |-" not in line)
