"""Clears up behind a run of tests, or a campaign, however it ends: its processes, mounts and network namespaces.

`begin()` marks this process. What it starts inherits the mark in its environment; mounts and namespaces have it in their names.
A second process waits until the first is gone (its pipe closes, also after kill -9), and ends whatever still has the mark.
Linux only.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

VARIABLE = "RUN_OF_TESTS"
_PATIENCE_S = 1.0  # for what ends by itself once its pipes are closed


def begin() -> str:
    """The mark of this process, at most 10 letters. Called again it is the same."""
    mark = f"rmq{os.getpid()}"
    if os.environ.get(VARIABLE) == mark or sys.platform != "linux":
        return mark
    reading, _writing = os.pipe()  # the writing end stays open here, as long as this process lives, and nowhere else
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    command = [sys.executable, "-S", "-E", __file__, mark]
    unmarked = {name: value for name, value in os.environ.items() if name != VARIABLE}  # of a run whose worker this is
    os.posix_spawn(sys.executable, command, unmarked, file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), *silent], setsid=True)
    os.close(reading)
    os.environ[VARIABLE] = mark
    return mark


def _marked(mark: str) -> list[int]:
    """Processes that were started with the mark."""
    word, found = f"{VARIABLE}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it ended, or is somebody else's
            continue
    return found


def _wait_for(processes: list[int]) -> None:
    """Until they have ended, or patience has."""
    until = time.monotonic() + _PATIENCE_S
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(pid)], [], [], max(0.0, until - time.monotonic()))


def _mounts(mark: str) -> list[str]:
    """Those whose source, or whose directory's name, is the mark; the last one first."""
    lines = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [where for source, where, *_ in reversed(lines) if mark in (source, where.rpartition("/")[2])]


def _clear(mark: str) -> None:
    _wait_for(_marked(mark))
    for pid in _marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for where in _mounts(mark):
        _do("umount", "--lazy", where)
    spaces = _do("ip", "netns", "list").split()
    for space in (name for name in spaces if name.startswith(f"{mark}-")):
        _do("ip", "netns", "del", space)
    if Path(f"/sys/class/net/{mark}").exists():
        _do("ip", "link", "del", mark)


def _do(*command: str) -> str:
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout
    except OSError:  # there is no such program here
        return ""


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _clear(sys.argv[1])
