"""What this node says of itself to RocketMQ's tools (code 28), beside the rates.

The tools parse every key they know, so none may be missing. This broker has no thread pools, no append lock and no timer
wheel: the zeros of those keys say that nothing waits there.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rmq import __version__
from rmq.clock import Clock
from rmq.errors import StoreError
from rmq.log.commitlog import CommitLog

_POOLS = ("send", "pull", "query", "litePull", "ack")
POOL_CAPACITY = 10_000


class StartTime(NamedTuple):
    """When this node started: wall clock in ms, monotonic in s."""

    wall_ms: int
    monotonic: float


def earliest_ms(log: CommitLog) -> int:
    """Store time of the first record; -1: there is none, or it is damaged."""
    try:
        return log.store_time(log.start) if log.end > log.start else -1
    except StoreError:
        return -1


def runtime_facts(
    store_dir: Path, log: CommitLog, committed: int, start_time: StartTime, clock: Clock
) -> Iterable[tuple[str, object]]:
    """Names and values."""
    usage = shutil.disk_usage(store_dir)
    ratio = round(usage.used / max(usage.used + usage.free, 1), 4)  # [UtilAll.getDiskPartitionSpaceUsedPercent]
    yield from {
        "brokerVersionDesc": "V5_5_0",
        "brokerVersion": 513,
        "rmqVersion": __version__,
        "pid": os.getpid(),
        "brokerActive": "true",
        "bootTimestamp": start_time.wall_ms,
        "startAcceptSendRequestTimeStamp": 0,
        "runtime": _duration(clock.monotonic() - start_time.monotonic),
        "storeDamaged": str(log.damages),
        "clockSteppedBack": log.clock_stepped_back,
        "commitLogMinOffset": log.start,
        "commitLogMaxOffset": log.end,
        "commitLogDirCapacity": f"Total : {_size(usage.total)}, Free : {_size(usage.free)}.",
        "commitLogDiskRatio": ratio,
        f"commitLogDiskRatio_{store_dir / 'commitlog'}": ratio,
        "consumeQueueDiskRatio": ratio,
        "dispatchBehindBytes": log.end - committed,
        "dispatchMaxBuffer": 0,
        "remainHowManyDataToFlush": _size(log.end - log.durable_end),
        "remainTransientStoreBufferNumbs": 2**31 - 1,
        "earliestMessageTimeStamp": earliest_ms(log),
        "pageCacheLockTimeMills": 0,
        "putMessageEntireTimeMax": 0,
        "getMessageEntireTimeMax": 0,
        "putMessageFailedTimes": 0,
        "putMessageDistributeTime": "null",
        "putLatency99": 0.0,
        "putLatency999": 0.0,
        "timerReadBehind": 0,
        "timerOffsetBehind": 0,
        "timerCongestNum": 0,
        "timerEnqueueTps": 0.0,
        "timerDequeueTps": 0.0,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": POOL_CAPACITY,
    }.items()
    for pool in _POOLS:
        yield f"{pool}ThreadPoolQueueSize", 0
        yield f"{pool}ThreadPoolQueueCapacity", POOL_CAPACITY
        yield f"{pool}ThreadPoolQueueHeadWaitTimeMills", 0


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"[ {days} days, {hour} hours, {minute} minutes, {second} seconds ]"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
