"""A node has the threads that it needs from its start on, or says at once what it lacks."""

import os
import resource
import subprocess
import sys
from pathlib import Path

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


def test_a_node_needs_no_thread_later() -> None:
    """Work on files goes on where the system gives no thread any more. It failed, and was done twice at a time."""
    found = started("-c", _ALL_AT_ONCE)
    assert found.stdout.splitlines() == ["no more", "done"], found.stderr
