"""A Spark of its own in an odd place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
