"""CPU time of a node that is measured alone: no load generator, no children."""

import psutil


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time of this process so far, in steps of 10 ms on Linux."""
    times = process.cpu_times()
    return float(times.user + times.system)
