"""A Spark of its own in an odd place."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analytics.stores import Sent, commit, write_store

pytest.importorskip("pyspark", reason="needs the extra `spark`")

ROOT = Path(__file__).parents[3]
PROGRAM = """
from analytics.spark.session import spark_context
with spark_context("here", {}) as context:
    print(context._jvm.System.getProperty("java.io.tmpdir"))
"""


def test_java_keeps_its_temporary_files_where_they_are_to_be(tmp_path: Path) -> None:
    """It took /tmp, which was full. With a space in it, `rmq report --temp` ended with "Could not find or load main class"."""
    temp = tmp_path / 'with "some" spaces\\ü'
    temp.mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "JDK_JAVA"))}
    environment = inherited | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temp), "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.stdout.splitlines() == [str(temp)], ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_export_and_its_java_at_once(tmp_path: Path, number: int) -> None:
    """Ctrl-C printed fifty lines of tracebacks; SIGTERM left a directory in TMPDIR."""
    commit(tmp_path / "store", write_store(tmp_path / "store", [Sent("Orders")] * 200)[-1])
    temp, out = tmp_path / "temp", tmp_path / "out"
    temp.mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "JDK_JAVA"))}
    environment = inherited | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temp)}
    command = [sys.executable, "-m", "rmq.cli", "export", str(tmp_path / "store"), "--out", str(out)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert "starting Spark" in process.stderr.readline()
        while not any(temp.glob("spark-*")) and process.poll() is None:
            pass
        process.send_signal(number)
        told = process.stderr.read()  # until Java has ended, too
        assert process.wait(300) == 128 + number
    assert "KeyboardInterrupt" not in told
    assert "socketserver" not in told
    assert not any(temp.glob("rmq-java-*"))
    assert not (out / "current").exists()
