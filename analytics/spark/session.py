"""A Spark session on this machine: finds Java, runs workers on this Python, logs little, uses UTC, knows the format "rmq"."""

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analytics.spark.java import prepare_environment
from analytics.spark.source import register
from rmq.errors import RmqError

_FOLDER_BYTES = 40  # a socket's whole path takes 107, its name here about 50
_LOGGING = Path(__file__).with_name("log4j2.properties")


class SparkFailed(RmqError):
    """Spark did not start; its own words say why (memory, a user without a name, ports). Or its Java ended in the midst."""


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """The active session, or a local one on all cores that ends with the block.

    Raises JavaMissing, SparkFailed. Under spark-submit (or with PYSPARK_SUBMIT_ARGS) the master and the settings given there win.
    """
    active = SparkSession.getActiveSession()
    if active is None:
        _local_context(name, {})
    session = active or SparkSession.builder.getOrCreate()
    try:
        register(session)
        yield session
    finally:
        if active is None:
            _stop(session)


@contextmanager
def spark_context(name: str, settings: Mapping[str, str]) -> Iterator[SparkContext]:
    """The active context, or a local one with these settings that ends with the block; `spark_session` without Spark's SQL."""
    active = SparkContext._active_spark_context
    context = active or _local_context(name, settings)
    try:
        yield context
    finally:
        if active is None:
            _stop(context)


def _stop(spark: SparkSession | SparkContext) -> None:
    """Raises SparkFailed: whatever failed before, Java's end is why."""
    try:
        spark.stop()
    except (OSError, Py4JError) as error:
        raise SparkFailed(
            "Spark's Java ended in the midst of its work: did the system lack memory, and kill it (`dmesg`)?"
        ) from error


def _local_context(name: str, own: Mapping[str, str]) -> SparkContext:
    prepare_environment()
    cores = os.cpu_count() or 1
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * cores),  # the default of 200 is for clusters
        **own,
    }
    options = (f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", _java_temporary(), own.get("spark.driver.extraJavaOptions", ""))
    settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))
    try:
        with own_interrupts():
            # Java first: SparkConf then knows the settings of spark-submit (which started it), PYSPARK_SUBMIT_ARGS, or ours.
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
            conf = SparkConf()
            for key, value in settings.items():
                conf.setIfMissing(key, value)
            if conf.get("spark.master", "").startswith("local"):  # else its Java may be elsewhere
                for key, value in _near_sockets().items():
                    conf.setIfMissing(key, value)
            return SparkContext.getOrCreate(conf)
    except (Py4JError, PySparkException) as error:
        why = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        raise SparkFailed(f"Spark does not start: {why}") from error


def _java_temporary() -> str:
    """Java takes /tmp, whatever TMPDIR says, which may be full, or no place for the libraries that it unpacks there (noexec)."""
    folder = tempfile.gettempdir()
    if "," in folder:  # Spark would take it for several
        return ""
    escaped = re.sub(r'(["\\])', r"\\\1", folder)
    return f'"-Djava.io.tmpdir={escaped}"'


def _near_sockets() -> dict[str, str]:
    """Python and Java talk over sockets of the machine, which cost less than TCP, where it has them and a short folder."""
    folder = tempfile.gettempdir()
    if sys.platform != "linux" or len(folder) > _FOLDER_BYTES:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keeps the caller's handler of Ctrl-C, if there is one: Spark replaces it with one that prints tracebacks."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
