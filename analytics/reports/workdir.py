"""What a report puts on the disk besides its result, and removes again: a directory of temporary files, and the lock of OUT.

`flock` holds both and ends with the process, however that ends. The next run removes what a killed run left.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from analytics.spark.ending import ending_on_signals
from analytics.spark.folders import made_and_locked, try_lock
from rmq.errors import RmqError, StoreError

_PREFIX = "rmq-report-"
_LOCK = ".lock"


class Busy(RmqError):
    """Another report is writing into this directory."""


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Holds the directory (created if needed) for one report. Raises Busy at once if another one has it, StoreError."""
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"the report cannot be written to {out}: {error}; give another --out") from error
    try:
        if not try_lock(handle):
            who = os.read(handle, 200).decode("utf-8", "replace").strip()
            raise Busy(f"another report writes to {out} ({who or 'just begun'}); wait for its end, or give another --out")
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n".encode())
        try:
            yield
        finally:
            if made and os.listdir(out) == [_LOCK]:  # nothing was written
                shutil.rmtree(out, ignore_errors=True)
            else:
                os.ftruncate(handle, 0)
    finally:
        os.close(handle)


@contextmanager
def work_directory(temp: Path | None) -> Iterator[Path]:
    """A directory for this process and Spark, below `temp` (None: the system's own); removed at the end.

    SIGTERM and SIGINT remove it, too: they end Spark and this process at once (in the main thread). Raises StoreError.
    """
    try:
        made, handle = made_and_locked(_PREFIX, temp)
    except OSError as error:
        raise StoreError(f"no temporary files can be made: {error}; give another directory with --temp") from error
    if "," in str(made):
        os.close(handle)
        shutil.rmtree(made, ignore_errors=True)
        raise StoreError(f"Spark takes {made.parent} for several directories, for its comma; give another one with --temp")
    before = {name: os.environ.get(name) for name in ("TMPDIR", "SPARK_LOCAL_DIRS")}
    os.environ.update(TMPDIR=str(made), SPARK_LOCAL_DIRS=str(made))  # of Spark's own processes
    tempfile.tempdir = str(made)
    try:
        with ending_on_signals(lambda: shutil.rmtree(made, ignore_errors=True)):
            yield made
    finally:
        tempfile.tempdir = None
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        shutil.rmtree(made, ignore_errors=True)
        os.close(handle)
