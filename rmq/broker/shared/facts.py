"""What this node says of itself to RocketMQ's tools (code 28), beside the rates.

The tools parse every key they know, so none may be missing. This broker has no thread pools, no append lock and no timer
wheel: the zeros of those keys say that nothing waits there.
"""

import math
import os
import shutil
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from rmq import __version__
from rmq.clock import Clock
from rmq.errors import StoreError, sayable
from rmq.log.commitlog import CommitLog
from rmq.measures import Histogram

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
        sayable(f"commitLogDiskRatio_{store_dir / 'commitlog'}"): ratio,
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


_PUT_TIMES = (  # upper bounds in seconds, as RocketMQ's statistics label them
    (0.001, "<=0ms"), (0.01, "0~10ms"), (0.05, "10~50ms"), (0.1, "50~100ms"), (0.2, "100~200ms"), (0.5, "200~500ms"),
    (1.0, "500ms~1s"), (2.0, "1~2s"), (3.0, "2~3s"), (4.0, "3~4s"), (5.0, "4~5s"), (10.0, "5~10s"), (math.inf, "10s~"),
)  # fmt: skip


def put_times(commit: Histogram) -> Iterable[tuple[str, object]]:
    """How long appends took until they were answered, a burst counting once, in the ranges where our bounds lie.

    Never `null`, as RocketMQ says before its first minute is over: rocketmq-exporter cannot read that.
    [StoreStatsService.getPutMessageDistributeTimeStringInfo, getPutLatency]
    """
    found = dict.fromkeys((label for _, label in _PUT_TIMES), 0)
    for bound, count in zip((*commit.bounds, math.inf), commit.counts, strict=True):
        found[next(label for most, label in _PUT_TIMES if bound <= most)] += count
    yield "putMessageDistributeTime", "".join(f"[{label}]:{count} " for label, count in found.items())
    for name, share in (("putLatency99", 0.99), ("putLatency999", 0.999)):
        yield name, _within(commit, share) * 1000


def _within(times: Histogram, share: float) -> float:
    """The bound, in seconds, below which that share of them lies; the largest one if it lies beyond."""
    wanted = sum(times.counts) * share
    for bound, count in zip(times.bounds, accumulate(times.counts), strict=False):
        if count >= wanted:
            return bound if wanted else 0.0
    return times.bounds[-1]


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
