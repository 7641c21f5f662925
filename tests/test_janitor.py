"""A run that is killed leaves nothing behind, and none waits for ever."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rmq.testing import until
from tests import conftest
from tests.faults import netns

ROOT = Path(__file__).parents[1]
PROGRAM = """
import subprocess, sys
from tests import janitor
mark = janitor.begin()
assert janitor.begin() == mark
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
for command in sys.argv[1:]:
    subprocess.run(command.replace("MARK", mark).split(), check=True)
print(mark, child.pid, flush=True)
sys.stdin.read()
"""


OF_WORKERS = """
import subprocess, sys
from tests import janitor
janitor.begin()
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


def killed(*commands: str, program: str = PROGRAM) -> tuple[str, int]:
    """A process that starts another, runs these commands and is killed: its mark, and the other's number."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *commands], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        mark, pid = process.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        process.kill()
    return mark, int(pid)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


async def test_a_process_of_a_killed_run_ends() -> None:
    _, pid = killed()
    await until(lambda: not _lives(pid))


async def test_a_process_of_a_worker_of_a_killed_run_ends() -> None:
    """The run's janitor killed its worker's before that had cleared up: a server for S3 lived on."""
    _, pid = killed(PROGRAM.replace("sys.stdin.read()", "import time; time.sleep(600)"), program=OF_WORKERS)
    await until(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


async def test_mounts_and_namespaces_of_a_killed_run_go(tmp_path: Path) -> None:
    if not netns.possible():
        pytest.skip("needs root, to mount and to make namespaces")
    (tmp_path / "disk").mkdir()
    mark, _ = killed(f"mount -t tmpfs MARK {tmp_path}/disk", "ip netns add MARK-n0", "ip link add MARK type bridge")
    await until(lambda: str(tmp_path) not in Path("/proc/self/mounts").read_text())
    await until(lambda: not Path(f"/sys/class/net/{mark}").exists())
    await until(lambda: not Path(f"/run/netns/{mark}-n0").exists())


def test_a_test_that_waits_for_ever_fails(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert 0 < float(request.config.getini("timeout")) <= 600
    (tmp_path / "test_it.py").write_text("import asyncio\nasync def test_it():\n    await asyncio.Event().wait()\n")
    run = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-o", "timeout=1", "-p", "no:cacheprovider"]
    ended = subprocess.run([*run, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert "Timeout (>1.0s)" in ended.stdout
    assert ended.returncode == 1


def test_workers_start_in_a_clone_behind_a_symbolic_link(tmp_path: Path) -> None:
    """Named by that link. Each ended with an error, and the run with it."""
    (link := tmp_path / "link").symlink_to(ROOT)
    share = {"workerid": "gw0", "workercount": 1}
    config = SimpleNamespace(workerinput=share, args=[str(link / "tests" / "routing")], rootpath=link)
    conftest.pytest_sessionstart(cast(pytest.Session, SimpleNamespace(config=config)))
