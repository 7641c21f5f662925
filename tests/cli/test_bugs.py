"""What a node does when one of its own assertions fails."""

import os
import subprocess
import sys

PROGRAM = """
import asyncio
from rmq.commands.node import end_on_bugs
from rmq.errors import StoreError

def broken():
    assert False, "the queue has 3 entries, a record says 5"

def disk():
    try:
        raise StoreError("a flush failed: repair the disk and restart the node")
    except StoreError as error:
        raise AssertionError(str(error)) from error

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(end_on_bugs)
    what = {what}
    loop.call_soon(what)
    await (asyncio.Event().wait() if what in (broken, disk) else asyncio.sleep(0))

asyncio.run(main())
"""


def run(what: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", PROGRAM.format(what=what)], capture_output=True, text=True, timeout=60)


def test_a_broken_assertion_ends_the_process_with_its_own_code() -> None:
    """A bug is no refusal: the node ends before it writes something worse."""
    ended = run("broken")
    assert ended.returncode == 70
    assert "a record says 5" in ended.stderr


def test_a_disk_that_failed_is_told_as_that() -> None:
    """An operator was asked to report a bug, with a traceback."""
    ended = run("disk")
    assert ended.returncode == 70
    assert "this node ends (an elected group goes on without it): a flush failed: repair the disk" in ended.stderr
    assert "report" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_another_failure_in_a_callback_is_told_and_survived() -> None:
    ended = run("lambda: int('x')")
    assert ended.returncode == 0
    assert "invalid literal" in ended.stderr


def test_a_node_does_not_run_without_its_checks() -> None:
    """It did, and behind a broken invariant it would have written on."""
    command = [sys.executable, "-m", "rmq.cli", "node", "--store", "nowhere"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONOPTIMIZE": "1"})
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "PYTHONOPTIMIZE" in ended.stderr
