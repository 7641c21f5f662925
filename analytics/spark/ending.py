"""Ends a program that drives Spark where it is when Ctrl-C or SIGTERM comes, as a kill does, and its Java before it."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from analytics.spark.java import remove_wrappers

_JAVA_ENDS_S = 5


@contextmanager
def ending_on_signals(tidy: Callable[[], None] = lambda: None) -> Iterator[None]:
    """In the main thread: an interrupted call to Java would print tracebacks. `tidy` is called behind the end of Java."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, _frame: FrameType | None) -> None:
        with suppress(Exception):  # the next run removes what cannot be removed now
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # threads of Spark's say at length that Java has gone
            _end_java()
            remove_wrappers()
            tidy()
        os._exit(128 + signum)

    before = {signum: signal.signal(signum, end) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _end_java() -> None:
    """It must not write any more when the next run begins. In order, so that it removes its temporary files."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if isinstance(process, subprocess.Popen):
        process.terminate()
        try:
            process.wait(_JAVA_ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_JAVA_ENDS_S)
