"""The brokers that are measured: rmq from this checkout, and Apache RocketMQ from Maven Central beside it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import frames
from tests.interop.maven import fetch
from tests.ports import free_port

HERE = Path(__file__).resolve().parent
ROCKETMQ_VERSION = "5.5.0"
APACHE = f"Apache RocketMQ {ROCKETMQ_VERSION}"
_START_SECONDS = 90
_OPENED = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch")] + [
    f"--add-exports=java.base/{package}=ALL-UNNAMED" for package in ("jdk.internal.ref", "sun.nio.ch")
]


class Target(NamedTuple):
    """A running broker. `processes`: the broker last. `codecs`: what it speaks. `stored(port)`: messages that it holds.
    `nameserver`: host:port of its own."""

    name: str
    broker_name: str
    port: int
    processes: tuple[subprocess.Popen[bytes], ...]
    codecs: tuple[str, ...] = ("native", "json", "binary")
    stored: Callable[[int], int] = frames.stored
    nameserver: str = ""

    def cpu_seconds(self) -> float:
        """User and system time of the broker's process and its children so far, in steps of 10 ms."""
        stats = [_stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
        family, grown = {self.processes[-1].pid}, 0
        while len(family) > grown:
            grown = len(family)
            family |= {pid for pid, parent, _ in stats if parent in family}
        return sum(ticks for pid, _, ticks in stats if pid in family) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _stat(path: Path) -> tuple[int, int, int]:
    """Process, its parent, its clock ticks; zeros if it has gone."""
    try:
        pid, _, rest = path.read_text().partition(" (")
    except OSError:
        return 0, 0, 0
    fields = rest.rpartition(")")[2].split()
    return int(pid), int(fields[1]), int(fields[11]) + int(fields[12])


def start_rmq(folder: Path, sync: bool = False, settings: dict[str, str] | None = None) -> Target:
    """Nameserver and broker in one process on free ports. `sync`: a send is answered once it is synced. `settings`: RMQ_..."""
    port, namesrv_port = free_port(), free_port()
    command = [sys.executable, "-m", "rmq.cli", "node", "--role", "all", "--listen", f"127.0.0.1:{port}",
               "--namesrv-port", str(namesrv_port), "--store", str(folder / "store"),
               "--flush", "sync" if sync else "async"]  # fmt: skip
    process = spawn(command, folder / "rmq.log", HERE.parent, settings)
    return ready(Target("rmq", "broker-a", port, (process,), nameserver=f"127.0.0.1:{namesrv_port}"), folder / "rmq.log")


def start_nameserver(folder: Path, number: int = 0, settings: dict[str, str] | None = None) -> Target:
    port, log = free_port(), folder / f"nameserver{number}.log"
    command = [sys.executable, "-m", "rmq.cli", "node", "--role", "nameserver", "--namesrv-port", str(port)]
    return ready(Target(f"nameserver{number}", "", port, (spawn(command, log, HERE.parent, settings),)), log)


def start_group(folder: Path, nameservers: list[Target], settings: dict[str, dict[str, str]] | None = None) -> list[Target]:
    """Three nodes that elect their leader. `settings`: further ones of each."""
    ports = {f"n{number}": (free_port(), free_port()) for number in range(3)}
    node = [sys.executable, "-m", "rmq.cli", "node"]
    peers = ";".join(f"{name}-127.0.0.1:{between}" for name, (_, between) in ports.items())
    found = []
    for name, (port, _) in ports.items():
        own = {
            "RMQ_ELECTED": "true",
            "RMQ_NODE_ID": name,
            "RMQ_PEERS": peers,
            "RMQ_BROKER_NAME": "broker-a",
            "RMQ_NAMESRV_ADDRESSES": ";".join(f"127.0.0.1:{one.port}" for one in nameservers),
            **(settings or {}).get(name, {}),
        }
        command = [*node, "--role", "broker", "--listen", f"127.0.0.1:{port}", "--store", str(folder / name)]
        process = spawn(command, folder / f"{name}.log", HERE.parent, own)
        found.append(Target(name, "broker-a", port, (process,)))
    return [ready(target, folder / f"{target.name}.log") for target in found]


def apache_missing() -> str:
    """Why Apache RocketMQ cannot run here; "" if it can."""
    return "" if shutil.which("java") and shutil.which("mvn") else "Maven and a JDK are needed (mvn, java)"


def start_apache(folder: Path, cache: Path, say: Callable[[str], None], sync: bool = False) -> Target:
    """Nameserver and broker of Apache RocketMQ, a heap of 1 GiB, on free ports."""
    jars = _jars(cache, say)
    port, namesrv_port = free_port(1, -2), free_port()
    folder.mkdir(parents=True, exist_ok=True)
    namesrv = folder / "namesrv.conf"
    namesrv.write_text(f"listenPort={namesrv_port}\nbindAddress=127.0.0.1\n")
    broker = folder / "broker.conf"
    broker.write_text(_broker_conf(port, namesrv_port, folder / "store", sync))
    first = spawn(_java(folder, jars, "256m", "namesrv.NamesrvStartup", namesrv), folder / "namesrv.log", folder)
    _wait_for_port(namesrv_port, first, folder / "namesrv.log")
    second = spawn(_java(folder, jars, "1g", "broker.BrokerStartup", broker), folder / "broker.log", folder)
    nameserver = f"127.0.0.1:{namesrv_port}"
    apache = Target(APACHE, "broker-a", port, (first, second), ("json", "binary"), nameserver=nameserver)
    return ready(apache, folder / "broker.log")


def start_dledger(folder: Path, cache: Path, say: Callable[[str], None]) -> tuple[Target, list[Target]]:
    """Apache RocketMQ's nameserver and three brokers that elect their leader, a heap of 1 GiB each."""
    jars = _jars(cache, say)
    folder.mkdir(parents=True, exist_ok=True)
    namesrv_port = free_port()
    (folder / "namesrv.conf").write_text(f"listenPort={namesrv_port}\nbindAddress=127.0.0.1\n")
    command = _java(folder, jars, "256m", "namesrv.NamesrvStartup", folder / "namesrv.conf")
    log = folder / "namesrv.log"
    nameserver = ready(Target("DLedger's nameserver", "", namesrv_port, (spawn(command, log, folder),)), log)
    peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(3))
    nodes = []
    for number in range(3):
        home, port = folder / f"n{number}", free_port(1, -2)
        home.mkdir()
        own = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-a",
            "dLegerPeers": peers,
            "dLegerSelfId": f"n{number}",
            "mappedFileSizeCommitLog": str(1 << 28),
        }
        conf = home / "broker.conf"
        conf.write_text(_broker_conf(port, namesrv_port, home / "store", False) + _lines(own))
        process = spawn(_java(home, jars, "1g", "broker.BrokerStartup", conf), home / "broker.log", home)
        nodes.append(Target(f"n{number}", "broker-a", port, (process,), ("json", "binary")))
    return nameserver, [ready(node, folder / node.name / "broker.log") for node in nodes]


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _broker_conf(port: int, namesrv_port: int, store: Path, sync: bool) -> str:
    lines = {
        "brokerClusterName": "bench", "brokerName": "broker-a", "brokerId": "0", "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1", "listenPort": str(port), "namesrvAddr": f"127.0.0.1:{namesrv_port}",
        "storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog"),
        "flushDiskType": "SYNC_FLUSH" if sync else "ASYNC_FLUSH",
    }  # fmt: skip
    return _lines(lines)


def java_program(folder: Path, cache: Path, say: Callable[[str], None], main: str) -> list[str]:
    """A program of Apache RocketMQ, to be given its arguments."""
    return _program(folder, _jars(cache, say), "512m", main)


def _java(folder: Path, jars: Path, heap: str, main: str, conf: Path) -> list[str]:
    return [*_program(folder, jars, heap, main), "-c", str(conf)]


def _program(folder: Path, jars: Path, heap: str, main: str) -> list[str]:
    return ["java", f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=1g", *_OPENED, f"-Duser.home={folder}",
            "-cp", f"{jars}/*", f"org.apache.rocketmq.{main}"]  # fmt: skip


def _jars(cache: Path, say: Callable[[str], None]) -> Path:
    """The jars, fetched once with Maven."""
    jars = cache / f"rocketmq-{ROCKETMQ_VERSION}-and-examples"
    if not jars.is_dir():
        say(f"fetching Apache RocketMQ {ROCKETMQ_VERSION} with Maven into {jars} (once, about 100 MB)")
        fetch(HERE / "pom.xml", jars)
    return jars


def spawn(command: list[str], log: Path, folder: Path, settings: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"ROCKETMQ_HOME": str(log.parent)} | (settings or {})
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, env=environment)


def ready(target: Target, log: Path) -> Target:
    try:
        _wait_for_port(target.port, target.processes[-1], log)
    except RuntimeError:
        target.stop()
        raise
    return target


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as link:
            if link.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} does not listen on {port}; its output is in {log}:\n{log.read_text()[-2000:]}")
