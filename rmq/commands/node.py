"""`rmq node`: reads the settings, starts the parts that the role asks for, waits for a signal, stops them in order."""

import asyncio
import contextlib
import dataclasses
import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmq import background
from rmq.clock import Clock, SystemClock
from rmq.commands.shared import allocator, collector, exits, logs, options, threads
from rmq.commands.shared.supervisor import Supervisor
from rmq.config.loading import Entry, load
from rmq.config.processes import Part, check_stores, parts_of
from rmq.config.settings import NodeSettings
from rmq.errors import InvalidArgument, NoPeersPort, StoreError
from rmq.net.transport import descriptors

if TYPE_CHECKING:
    from rmq.ops.metrics import Part as Watched

log = logging.getLogger("rmq.node")
SPARE_DESCRIPTORS = 4096  # beside connections: files of the log, one each
NO_LIFELINE = -1
_NO_LISTENING = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


@click.command()
@click.option("--role", type=click.Choice(["nameserver", "broker", "all"]), help="What to run.  [default: all]")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="RMQ_CONFIG",
    show_envvar=True,
    help="TOML, or RocketMQ's broker.conf.",
)
@click.option("--listen", metavar="HOST[:PORT]", help="Address to listen on; 0.0.0.0 needs --advertise.  [default: 127.0.0.1]")
@click.option("--advertise", metavar="HOST", help="Host that clients are to dial.  [default: that of --listen]")
@click.option("--namesrv-port", type=int, help="Port of the nameserver.  [default: 9876]")
@click.option("-n", "--namesrv", metavar="HOST:PORT;...", help="Nameservers that the broker registers with.")
@click.option("--store", metavar="DIR", help="Directory of the store.  [default: ./rmq-data]")
@click.option("--flush", type=click.Choice(["async", "sync"]), help="sync: answer a send after fsync.  [default: async]")
@click.option("--cluster", metavar="NAME", help="Name of the cluster.  [default: DefaultCluster]")
@click.option("--name", metavar="NAME", help="Name of the broker group.  [default: broker-a]")
@click.option(
    "--unclean",
    is_flag=True,
    default=None,
    help="Vote and lead although acknowledged messages may be missing here. Only if the other nodes will not come back.",
)
@click.option(
    "--insecure", is_flag=True, default=None, help="Listen beyond loopback without authentication: everybody may do everything."
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["auto", "human", "json"]), help="[default: auto]")
@click.option(
    "--set",
    "other",
    metavar="NAME=VALUE",
    multiple=True,
    callback=options.pairs,
    help="Any other setting (`rmq config check` lists them).",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Run N brokers, each in a process of its own: NAME-0, NAME-1, ..., ten ports apart, with a store below --store each.",
)
def node(file: Path | None, listen: str | None, other: dict[str, str], processes: int, **flags: str | int | None) -> int:
    """Run a nameserver, a broker, or both in one process.

    Flags override RMQ_* variables, and these override the file. SIGTERM or Ctrl-C stops the node: it unregisters, finishes
    running requests, flushes, and ends with exit code 0. A second signal ends it at once.
    """
    if not __debug__:
        about = "python -O (PYTHONOPTIMIZE) leaves out the checks that end a node before it writes something wrong"
        raise InvalidArgument(f"{about}: start it without")
    entries = [*_named(flags), *_listen(listen), *(Entry(name, value, f"--set {name}") for name, value in other.items())]
    loaded = load(file, os.environ, entries)
    name, lifeline = "", NO_LIFELINE
    if processes == 1:
        check_stores(loaded.settings, 1)
    else:
        logs.start(loaded.settings.log_format, loaded.settings.log_level)
        found = Supervisor(_parts(loaded.settings, processes), lambda part: part.name, lambda part: part.is_nameserver).run()
        if isinstance(found, int):
            return found
        (name, _, own), lifeline = found
        loaded = load(file, os.environ, [*entries, *own])  # again: an administrator may have changed a setting meanwhile
    logs.start(loaded.settings.log_format, loaded.settings.log_level, process=name)
    for warning in loaded.warnings:
        log.warning(warning)
    return options.run_fast(serve(loaded.settings, SystemClock(), lifeline))


def _parts(settings: NodeSettings, processes: int) -> list[Part]:
    """Raises InvalidArgument."""
    port = settings.namesrv_port
    if settings.with_nameserver and not port:  # all must know it before one of them listens
        with socket.socket(socket.AF_INET6 if ":" in settings.listen_host else socket.AF_INET) as probe:
            probe.bind((settings.listen_host.strip("[]"), 0))
            port = probe.getsockname()[1]
    return parts_of(settings, processes, port)


_FLAGS = {"role": "role", "advertise": "advertised_host", "namesrv_port": "namesrv_port", "namesrv": "namesrv_addresses",
          "store": "store_dir", "flush": "flush", "cluster": "cluster_name", "name": "broker_name", "log_level": "log_level",
          "log_format": "log_format", "unclean": "unclean", "insecure": "insecure"}  # fmt: skip


def _named(flags: dict[str, str | int | None]) -> Iterator[Entry]:
    for flag, value in flags.items():
        if value is not None:
            yield Entry(_FLAGS[flag], value, f"--{flag.replace('_', '-')}")


def _listen(text: str | None) -> Iterator[Entry]:
    """`host`, `host:port`, `[v6]:port` or `:port`."""
    if text is None:
        return
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):  # no port: a bare host, or a bare IPv6 address
        host, port = text, ""
    if host:
        yield Entry("listen_host", host, "--listen")
    if port:
        yield Entry("listen_port", port, "--listen")


async def serve(settings: NodeSettings, clock: Clock, lifeline: int = NO_LIFELINE) -> int:
    """Runs until a signal comes, or `lifeline` ends; gives the exit code. Raises StoreError or OSError when it cannot start."""
    stop = asyncio.Event()
    _raise_limits(settings)
    asyncio.get_running_loop().set_default_executor(threads.pool())
    if settings.init_user or settings.node_credentials or settings.tls_key:
        descriptors.no_core_files()
    on_signals(asyncio.get_running_loop(), stop)
    if lifeline != NO_LIFELINE:
        asyncio.get_running_loop().add_reader(lifeline, _let_go, lifeline, stop)
    asyncio.get_running_loop().set_exception_handler(end_on_bugs)
    parts: list[Watched] = []
    async with contextlib.AsyncExitStack() as running:
        await running.enter_async_context(_watched(settings, parts, clock))
        if settings.with_nameserver:
            address = await running.enter_async_context(_nameserver(settings, clock, parts))
            everyone = dict.fromkeys((address, *settings.namesrv_addresses))
            settings = dataclasses.replace(settings, namesrv_addresses=tuple(everyone))
        if settings.with_broker:
            await running.enter_async_context(_broker(settings, clock, stop, parts))
        collector.settle()
        looking = background.start(collector.look_now_and_then(clock), "collector")
        running.callback(looking.cancel)
        _share_fairly()
        allocator.keep_freed()
        if not stop.is_set():
            log.info("ready (Ctrl-C or SIGTERM stops)")
        await stop.wait()
        log.info("stopping (a second signal ends the node at once)")
    log.info("stopped")
    return 0


@contextlib.asynccontextmanager
async def _nameserver(settings: NodeSettings, clock: Clock, parts: "list[Watched]") -> AsyncIterator[str]:
    from rmq.nameserver.node import Nameserver

    nameserver = Nameserver(settings, clock)
    with explaining_bind_errors("nameserver", settings.listen_host, settings.namesrv_port, "--namesrv-port"):
        await nameserver.start()
    parts.append(nameserver)
    log.info("nameserver listens", extra={"address": nameserver.address})
    try:
        yield nameserver.address
    finally:
        await nameserver.stop()


@contextlib.asynccontextmanager
async def _broker(settings: NodeSettings, clock: Clock, stop: asyncio.Event, parts: "list[Watched]") -> AsyncIterator[None]:
    with _collector_off():  # all that is loaded stays: looking through it again and again took a fifth of a start
        from rmq.broker.node import Broker

    collector.settle()
    broker = Broker(settings, clock)
    parts.append(broker)
    with explaining_bind_errors("broker", settings.listen_host, settings.listen_port, "--listen HOST:PORT"):
        if not await _started(broker.start(), stop):
            yield
            return
    listening = {
        "address": broker.address,
        "broker": settings.broker_name,
        "store": str(settings.store_dir.absolute()),
        "nameservers": ";".join(settings.namesrv_addresses),
    }
    log.info("broker listens", extra=listening)
    try:
        yield
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def _watched(settings: NodeSettings, parts: "Sequence[Watched]", clock: Clock) -> AsyncIterator[None]:
    """Metrics and health are served from here on, also while the parts start."""
    if settings.metrics == "off":
        yield
        return
    from rmq.ops.exporter import pages

    async with contextlib.AsyncExitStack() as serving:
        with explaining_bind_errors(
            "metrics", settings.metrics_host, settings.metrics_port, "metrics_port (RocketMQ: metricsPromExporterPort)"
        ):
            address = await serving.enter_async_context(pages(parts, clock, settings.metrics_host, settings.metrics_port))
        log.info("metrics: http://%s/metrics", address)
        yield


async def _started(start: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """False if `stop` came first: a start may take minutes (queues are rebuilt), and must not delay a stop."""
    starting, stopping = asyncio.create_task(start), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
        return False
    await starting
    return True


@contextlib.contextmanager
def explaining_bind_errors(what: str, host: str, port: int, flag: str) -> Iterator[None]:
    """An error of listening names the part, the address, and what to do."""
    try:
        yield
    except OSError as error:
        unknown = isinstance(error, socket.gaierror)
        if (error.errno not in _NO_LISTENING and not unknown) or error.filename is not None:  # of a file
            raise
        if isinstance(error, NoPeersPort):
            port, flag = error.port, "haListenPort (peer_port), or for this node in dLegerPeers (peers)"
        why = "no such host" if unknown else os.strerror(error.errno or 0)
        raise OSError(error.errno, f"the {what} cannot listen on {host}:{port} ({why}); choose another with {flag}") from error


def end_on_bugs(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A broken assertion ends the process like kill -9: nothing worse is written, and the next start recovers. So does a disk
    that failed under a member of a group, or was set back there, which is no bug."""
    error = context.get("exception")
    if isinstance(error, AssertionError):
        if isinstance(error.__cause__, StoreError):
            log.critical("this node ends (an elected group goes on without it): %s", error)
        else:
            log.critical("an invariant is broken; the node ends. Please report this, then start the node again", exc_info=error)
        logging.shutdown()
        os._exit(exits.BUG)
    loop.default_exception_handler(context)


def _raise_limits(settings: NodeSettings) -> None:
    """Each connection and each log file takes a file descriptor; the usual limit is 1024. Raises OSError where none is left for a
    connection."""
    wanted = settings.max_connections * (settings.with_broker + settings.with_nameserver) + SPARE_DESCRIPTORS
    given = descriptors.raise_limit(wanted)
    if given <= descriptors.LEFT:
        about = f"this process may have {given} files open, and keeps {descriptors.LEFT} of them: nobody could connect"
        raise OSError(errno.EMFILE, f"{about}. Allow it {wanted} (LimitNOFILE in its systemd unit, or ulimit -Hn)")
    if given < wanted:
        log.warning(
            "this process may have %d files and connections open, which is too few for max_connections = %d: from about %d on "
            "connections are refused. Allow it %d (LimitNOFILE in its systemd unit, or ulimit -Hn), or lower max_connections",
            given,
            settings.max_connections,
            given - descriptors.LEFT,
            wanted,
        )


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _share_fairly() -> None:
    """Threads (index, rebuilds, pages for Prometheus) give the interpreter back after 0.2 ms, not 5: the loop lets go of it at
    each call of the system, dozens of times in a turn, and waits so long for it each time."""
    sys.setswitchinterval(0.0002)


def _let_go(lifeline: int, stop: asyncio.Event) -> None:
    """The process that started this one stops, or is gone."""
    asyncio.get_running_loop().remove_reader(lifeline)
    stop.set()


def on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    def received(signum: signal.Signals) -> None:
        if stop.is_set():
            os._exit(128 + signum)  # the second signal: end at once, the next start recovers
        stop.set()

    with contextlib.suppress(NotImplementedError):  # Windows: only Ctrl-C, as KeyboardInterrupt
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, received, signum)
        about = "SIGHUP: the node goes on. It does not read its file again, and the log goes to stderr. SIGTERM stops the node"
        loop.add_signal_handler(signal.SIGHUP, log.info, about)
