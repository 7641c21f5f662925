"""What a benchmark ran on: processor, Python and its build, what else the machine did."""

import os
import platform
import re
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import psutil

from rmq.log.records.crc import crc32

_CALIBRATION = 3_000_000
_PAIRS = re.compile(rb"(?:T=(\w++);|\w++=\w*+;)*").fullmatch
_TEXT = b"UNIQUE=0123456789ABCDEF;T=tag;NAME=value;SUM=0123456789;"
_MATCHES = 20_000
_READ_BYTES = 1 << 20
_MORE_BYTES = 256 << 20


def machine() -> dict[str, object]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version()
        + (" (optimised build)" if _optimised() else " (plain build: up to 1.7 times dearer)"),
        "calibration_ns": calibration_ns(),
        "behind_checksum": behind_checksum(),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
    }


def _optimised() -> bool:
    """Built with profile-guided optimisation: Debian's is, and does not say so."""
    return sys.base_prefix == "/usr" or "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))


def calibration_ns() -> float:
    """CPU of one turn of a loop that calls nothing: with it results of two machines, or two builds, can be compared.

    Of this thread: those that numpy starts spin for a moment, and made this 41 in place of 22 until 26 November 2026.
    """
    began, total = time.thread_time(), 0
    for number in range(_CALIBRATION):
        total += number & 7
    return round((time.thread_time() - began) / _CALIBRATION * 1e9, 1)


def behind_checksum() -> float:
    """What an expression takes behind a checksum, by what it takes before the first one of this process: far above 1 where the
    checksum leaves the processor in a state in which other code is slow (docs/decisions/crc-by-zlib-ng.md)."""
    before = _match_s()
    crc32(bytes(1000))
    return round(_match_s() / before, 2)


def _match_s() -> float:
    """The shortest of several runs: the first ones may be slow for other reasons."""
    took = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(_MATCHES):
            _PAIRS(_TEXT)
        took.append(time.thread_time() - began)
    return min(took)


def fill_page_cache(folder: Path) -> None:
    """Reads an empty file larger than the memory that is free, which takes no space on the disk and stays there: then the page
    cache is full, as on each machine that has run for some days.

    Else a virtual machine whose host takes free memory back pays for each page that it takes anew, in the kernel's time of who
    writes a file: after a few GiB, so what is measured first would look cheapest.
    """
    handle, path = tempfile.mkstemp(prefix="page-cache-", dir=folder)
    os.truncate(path, psutil.virtual_memory().free + _MORE_BYTES)
    buffer = bytearray(_READ_BYTES)
    with open(handle, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
