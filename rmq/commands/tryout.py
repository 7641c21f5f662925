"""`rmq try`: a nameserver and an elected group of three brokers on this machine, to try things out.

The nodes are ordinary processes of `rmq node` with the shipped files of conf/dledger. This command only starts them, finds
them by their pid files, and stops them.
"""

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import click

from rmq.client import Client
from rmq.client.admin import calls as ask
from rmq.clock import Clock, SystemClock
from rmq.commands.shared import asking, options, output
from rmq.errors import RmqError, StoreError

GROUP = "RaftNode00"
_NAMESRV_PORT, _PORTS, _PEER_PORTS = 9876, (30911, 30921, 30931), (40911, 40912, 40913)  # as in conf/dledger
_START_S, _STOP_S, _LOOK_S, _ANSWER_S = 30.0, 20.0, 0.1, 2.0
_KEPT_SHIFT = "shift"  # the file in the directory
_LOG_LINES = 5  # of a node that ended at its start


class Trial(NamedTuple):
    """`shift`: added to every port."""

    directory: Path
    shift: int

    @classmethod
    def found(cls, directory: Path, shift: int | None) -> "Trial":
        """Without `shift` that of the last start in this directory."""
        directory = directory.absolute()
        if shift is None:
            kept = directory / _KEPT_SHIFT
            text = kept.read_text().strip() if kept.is_file() else ""
            shift = int(text) if text.isdecimal() else 0
        return cls(directory, shift)

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{_NAMESRV_PORT + self.shift}"

    def processes(self) -> "list[Process]":
        brokers = [
            Process(self, f"n{index}", port + self.shift, _PEER_PORTS[index] + self.shift) for index, port in enumerate(_PORTS)
        ]
        return [Process(self, "nameserver", _NAMESRV_PORT + self.shift), *brokers]


class Process(NamedTuple):
    """A node that runs or should. `peer_port`: 0 for the nameserver."""

    of: Trial
    name: str
    port: int
    peer_port: int = 0

    @property
    def pid_file(self) -> Path:
        return self.of.directory / f"{self.name}.pid"

    @property
    def log_file(self) -> Path:
        return self.of.directory / f"{self.name}.log"

    def pid(self) -> int | None:
        """Of the running process; None if it does not run."""
        try:
            pid = int(self.pid_file.read_text())
            os.kill(pid, 0)
        except (FileNotFoundError, ValueError, ProcessLookupError, PermissionError):
            return None
        with contextlib.suppress(FileNotFoundError):  # no /proc here
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            is_ours = {b"rmq.cli", b"node"} <= {*words}
            return pid if is_ours else None  # a dead one nobody has taken notice of, or a number used again
        return pid

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "rmq.cli", "node", "--log-format", "human"]
        if not self.peer_port:
            return [*words, "--role", "nameserver", "--listen", f"127.0.0.1:{self.port}"]
        shipped = resources.files("rmq") / "conf" / "dledger" / f"broker-{self.name}.conf"
        words += ["--role", "broker", "--config", str(shipped), "--store", str(self.of.directory / self.name)]
        if self.of.shift:
            peers = ";".join(f"n{index}-127.0.0.1:{port + self.of.shift}" for index, port in enumerate(_PEER_PORTS))
            words += ["--listen", f"127.0.0.1:{self.port}", "--namesrv", self.of.namesrv, "--set", f"dLegerPeers={peers}"]
        return words

    def start(self) -> "subprocess.Popen[bytes]":
        """In a session of its own, so that it outlives this command and its terminal."""
        with self.log_file.open("ab") as log:
            environment = {name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "RMQ_CONFIG")}
            started = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.pid_file.write_text(f"{started.pid}\n")
        return started


@click.group("try")
def trial() -> None:
    """Run a nameserver and three brokers that elect their leader on this machine, to try things out."""


_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("rmq-try"),
    show_default=True,
    help="Directory of stores, logs and pid files.",
)
_shift = click.option(
    "--shift",
    type=click.IntRange(0, 20_000),
    metavar="N",
    help="Add N to every port (9876, 30911, 30921, 30931, 40911 to 40913).  [default: as at the last start here, else 0]",
)


@trial.command()
@_directory
@_shift
def start(directory: Path, shift: int | None) -> None:
    """Start the nodes that do not run, wait until there is a leader, and show the group."""
    of = Trial.found(directory, shift)
    of.directory.mkdir(parents=True, exist_ok=True)
    missing = [process for process in of.processes() if process.pid() is None]
    for process in missing:
        _check_free(process)
    (of.directory / _KEPT_SHIFT).write_text(f"{of.shift}\n")
    started = {process: process.start() for process in missing}
    leader = options.run(_until_led(of, started, SystemClock()))
    _show(of)
    click.echo(_NEXT.format(where=f"--dir {directory}", namesrv=of.namesrv, port=leader.rpartition(":")[2]))


_NEXT = """
Send and receive:    rmq send Orders hello -n {namesrv}; rmq consume Orders -g me --from first --count 1 -n {namesrv}
The drill: find the leader (the line with BID 0) by its port, kill it, and see another one lead:
    kill -9 $(lsof -t -i :{port} -s TCP:LISTEN)
    rmq admin clusterList -n {namesrv}
    rmq try start {where}          (the killed one comes back as a follower)
End it:              rmq try stop {where} [--purge]"""


def _check_free(process: Process) -> None:
    """Raises OSError, saying what to do, when another program has a port of this one."""
    for port in (process.port, *([process.peer_port] if process.peer_port else [])):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                about = f"port {port}, which {process.name} needs, is taken by another program; end it, or add a number to all"
                raise OSError(errno.EADDRINUSE, f"{about} ports: rmq try start --shift 100") from error


async def _until_led(of: Trial, started: "dict[Process, subprocess.Popen[bytes]]", clock: Clock) -> str:
    """The leader's address, once all three are registered. Raises StoreError when a node ends or nobody is elected in time."""
    deadline = clock.monotonic() + _START_S
    async with asking.client_of(of.namesrv) as client:
        while not (leader := await _leader(client)):
            for process, running in started.items():
                if running.poll() is not None:
                    process.pid_file.unlink(missing_ok=True)
                    last = "\n".join(process.log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:])
                    raise StoreError(f"{process.name} ended at its start; {process.log_file} says:\n{last}")
            if clock.monotonic() > deadline:
                raise StoreError(f"no leader after {_START_S:.0f} s; see `rmq try status` and the logs in {of.directory}")
            await clock.sleep(_LOOK_S)
    return leader


async def _leader(client: Client) -> str:
    """Its address, "" as long as there is none or not all three are there: the table that follows should be whole."""
    try:
        groups = {group.name: group.addresses for group in (await ask.cluster_info(client)).brokers}
    except RmqError:
        return ""
    nodes = groups.get(GROUP, {})
    return nodes.get(0, "") if len(nodes) == len(_PORTS) else ""


def _show(of: Trial) -> None:
    from rmq.commands.admin.admin import show_cluster  # the whole of `rmq admin`, which `stop` does not need

    show_cluster(of.namesrv, _ANSWER_S)


@trial.command()
@_directory
@_shift
def status(directory: Path, shift: int | None) -> None:
    """Show which processes run, and the state of the group."""
    of = Trial.found(directory, shift)
    rows = [(process.name, process.port, process.pid(), str(process.log_file)) for process in of.processes()]
    output.show(output.Table({"name": "Name", "port": "Port", "pid": "PID", "log": "Log"}, rows), "table")
    if rows[0][2] is not None:
        click.echo()
        _show(of)


@trial.command()
@_directory
@_shift
@click.option("--purge", is_flag=True, help="Remove stores, logs and the directory, too.")
def stop(directory: Path, shift: int | None, purge: bool) -> None:
    """Stop the brokers in order, then the nameserver."""
    of = Trial.found(directory, shift)
    nameserver, *brokers = of.processes()
    options.run(_stop(brokers, SystemClock()))
    options.run(_stop([nameserver], SystemClock()))
    if purge:
        (of.directory / _KEPT_SHIFT).unlink(missing_ok=True)
        for process in of.processes():
            process.log_file.unlink(missing_ok=True)
            shutil.rmtree(of.directory / process.name, ignore_errors=True)
        with contextlib.suppress(OSError):  # it is not there, or holds what is not ours
            of.directory.rmdir()


async def _stop(processes: list[Process], clock: Clock) -> None:
    running = {process: pid for process in processes if (pid := process.pid()) is not None}
    for pid in running.values():
        os.kill(pid, signal.SIGTERM)
    if not await _ended(running, clock, _STOP_S):
        for process in running:
            if (pid := process.pid()) is not None:
                click.echo(f"{process.name} did not stop in {_STOP_S:.0f} s: killed", err=True)
                os.kill(pid, signal.SIGKILL)
        await _ended(running, clock, _STOP_S)
    for process in processes:
        process.pid_file.unlink(missing_ok=True)
        click.echo(f"{process.name}: {'stopped' if process in running else 'did not run'}")


async def _ended(running: dict[Process, int], clock: Clock, seconds: float) -> bool:
    deadline = clock.monotonic() + seconds
    while any(process.pid() is not None for process in running):
        if clock.monotonic() > deadline:
            return False
        await clock.sleep(_LOOK_S)
    return True
