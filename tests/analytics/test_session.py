"""Ctrl-C while Spark works, and a Java that is killed meanwhile."""

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from analytics.spark import session


def test_the_callers_way_with_ctrl_c_stays() -> None:
    def ours(_number: int, _frame: FrameType | None) -> None: ...

    before = signal.signal(signal.SIGINT, ours)
    try:
        with session.own_interrupts():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark does
        assert signal.getsignal(signal.SIGINT) is ours
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_a_way_of_their_own_callers_get_sparks() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with session.own_interrupts():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


_KILLED = """
from pyspark import SparkContext
from analytics.spark import session

try:
    with session.{kind}:
        SparkContext._gateway.proc.kill()
        SparkContext._gateway.proc.wait()
        SparkContext._active_spark_context.range(1).count()
except session.SparkFailed as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["spark_session('test')", "spark_context('test', {'spark.master': 'local[1]'})"])
def test_a_java_that_is_killed_is_named(kind: str) -> None:
    """As where memory ends: a report said "Connection refused"."""
    command = [sys.executable, "-c", _KILLED.replace("{kind}", kind)]
    found = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False)
    assert found.stdout.startswith("Spark's Java ended in the midst of its work"), found.stderr
