"""A node, a proxy and a dashboard have the threads that they need from their start on, or say at once what they lack."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rmq.commands.shared import exits

ENV = {name: value for name, value in os.environ.items() if not name.startswith("RMQ_")}
STACK = 1 << 30  # bytes of address space for each thread, so that a limit on that is one on threads, for root, too

_ALL_AT_ONCE = """
import asyncio, resource, threading
from rmq.commands.shared import threads
from rmq.errors import StoreError

async def main():
    pool = threads.pool()
    asyncio.get_running_loop().set_default_executor(pool)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), resource.RLIM_INFINITY))
    try:
        threads.started(threads.FOR_OTHERS)
    except StoreError:
        print("no more")
    all_there = threading.Barrier(pool._max_workers)
    await asyncio.gather(*(asyncio.to_thread(all_there.wait, 20) for _ in range(pool._max_workers)))
    print("done")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

asyncio.run(main())
"""


def started(*arguments: str, most: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """`most`: bytes of address space."""

    def limit() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, hard))
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    return subprocess.run(
        [sys.executable, *arguments], env=ENV, preexec_fn=limit, capture_output=True, text=True, timeout=30, check=False
    )


def test_a_node_says_that_it_may_have_too_few_threads(tmp_path: Path) -> None:
    """A container with a small limit of processes: it ended as a bug, with Python's stack, or by a signal without a word."""
    free = ("--listen", "127.0.0.1:0", "--namesrv-port", "0", "--store", str(tmp_path / "store"))
    found = started("-m", "rmq.cli", "node", *free, most=6 * STACK)
    assert "allow it more (the container's pids limit, TasksMax in its systemd unit, ulimit -u, or memory)" in found.stderr
    assert "Traceback" not in found.stderr
    assert found.returncode == exits.FAILED
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("command", "extra", "room"), [("proxy", "grpc", 12), ("dashboard", "starlette", 3)])
def test_a_door_says_that_it_may_have_too_few_threads(tmp_path: Path, command: str, extra: str, room: int) -> None:
    """The proxy ended by a signal, or stood still, behind lines of gRPC's; the dashboard failed later, page by page."""
    pytest.importorskip(extra)
    data = ("--data", str(tmp_path)) if command == "dashboard" else ()
    found = started("-m", "rmq.cli", command, "--namesrv", "127.0.0.1:1", "--listen", "127.0.0.1:0", *data, most=room * STACK)
    assert found.stderr.startswith("rmq: the system gives this process ")
    assert "allow it more" in found.stderr
    assert (found.returncode, found.stdout) == (exits.FAILED, "")


def test_a_node_needs_no_thread_later() -> None:
    """Work on files goes on where the system gives no thread any more. It failed, and was done twice at a time."""
    found = started("-c", _ALL_AT_ONCE)
    assert found.stdout.splitlines() == ["no more", "done"], found.stderr
