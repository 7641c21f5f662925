"""Temporary files and the lock of a report: gone however the process ends. Real processes."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from analytics.reports.workdir import Busy, locked, work_directory
from rmq.errors import StoreError

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import sys, tempfile
from pathlib import Path
from analytics.reports.workdir import locked, work_directory
temp, out = map(Path, sys.argv[1:])
with locked(out), work_directory(temp):
    handle, name = tempfile.mkstemp()
    print(name, flush=True)
    while sys.stdin.readline():
        pass
"""


def running(temp: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(temp), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(tmp_path: Path, number: int) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    with running(temp, tmp_path / "out") as process:
        assert process.stdin
        assert process.stdout
        made = Path(process.stdout.readline().strip())
        assert made.is_relative_to(temp)
        process.send_signal(number)
        with suppress(BrokenPipeError):  # it may come just before the child waits for a line: then the next line lets it see it
            os.write(process.stdin.fileno(), b"\n")
        assert process.wait(300) == 128 + number
    assert list(temp.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    temp, out = tmp_path / "temp", tmp_path / "out"
    temp.mkdir()
    (temp / "rmq-report-of-somebody-else").mkdir()
    with running(temp, out) as process, running(temp, tmp_path / "other") as living:
        assert process.stdout
        assert living.stdout
        killed, lives = (Path(each.stdout.readline().strip()).parent for each in (process, living) if each.stdout)
        with pytest.raises(Busy, match=rf"another report writes to .*process {process.pid} since"), locked(out):
            pytest.fail("two at a time")
        process.kill()
        process.wait(300)
        assert killed.exists()
        with locked(out), work_directory(temp) as own:
            assert sorted(temp.iterdir()) == sorted([lives, own, temp / "rmq-report-of-somebody-else"])
        living.terminate()


def test_runs_that_begin_at_the_same_time_leave_each_other_their_directories(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from analytics.reports.workdir import work_directory
for _ in range(400):
    with work_directory(Path(sys.argv[1])) as made:
        (made / "something").touch()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=environment) for _ in range(3)]
    assert [each.wait(300) for each in runs] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_made_for_nothing_goes(tmp_path: Path) -> None:
    with locked(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with locked(tmp_path / "old"):
        pass
    assert (tmp_path / "old").exists()


def test_a_directory_with_a_comma_is_refused(tmp_path: Path) -> None:
    """Spark took it for two, made the second one where it ran, and said "Connection refused" where it could not."""
    temp = tmp_path / "a,b"
    temp.mkdir()
    with pytest.raises(StoreError, match=r"a,b for several directories, for its comma; .*--temp"), work_directory(temp):
        pytest.fail("Spark would begin")
    assert list(temp.iterdir()) == []
