"""A store is read while its broker writes, rolls and retains: no false alarm, and no gap that is not told.

The broker is a real one with small segments; its own retention takes them, because its clock runs ahead.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from rmq.broker.node import Broker
from rmq.log import reader
from rmq.log.files.disk import RealDisk
from rmq.net.commands import UpdateTopic
from rmq.testing import TestClock
from tests.broker.support import Peer, send, small_node

pa = pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.records.batches import batches  # noqa: E402 -- needs the extra
from analytics.stores import walk as walking  # noqa: E402 -- needs the extra
from analytics.stores.options import Wanted  # noqa: E402 -- needs the extra
from analytics.stores.plan import plan  # noqa: E402 -- needs the extra
from analytics.stores.rare import Places  # noqa: E402 -- needs the extra
from analytics.stores.segments import Part, find_parts  # noqa: E402 -- needs the extra
from analytics.stores.walk import Block, SegmentGone, walk  # noqa: E402 -- needs the extra

SCHEMA = pa.schema([("queue_offset", pa.int64())])
OFTEN, RARE = Wanted(topics=frozenset({"T"})), Wanted(topics=frozenset({"Rare"}))


class Live:
    """A broker whose messages are kept for an hour."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.clock = TestClock()
        settings = small_node(
            store,
            stop_grace_ms=100,
            segment_bytes=20_000,
            max_message_bytes=1000,
            delete_hours=tuple(range(24)),
            reserved_hours=1,
            idle_timeout_ms=86_400_000,
        )
        self.broker = Broker(settings, self.clock, RealDisk())

    async def start(self) -> None:
        await self.broker.start()
        self.peer = await Peer.connect(self.broker.address)
        for topic in ("T", "Rare"):
            await self.peer.ask(UpdateTopic(topic, read_queue_nums=1, write_queue_nums=1))

    async def write(self, count: int) -> None:
        for number in range(count):
            await self.peer.ask(send("T" if number % 20 else "Rare", b"x" * 900))

    async def saved(self) -> None:
        """Until all but the newest messages are noted as committed."""
        await self.clock.advance_until(lambda: (reader.committed_end(str(self.store)) or 0) >= int(self.files()[-1]), 5.0, 300.0)

    async def age(self) -> None:
        """Until retention has taken, some at a time, what was there; there is something behind that."""
        last = self.files()[-1]
        await self.write(60)  # rolls
        self.clock.jump_wall(3_590_000)  # less than the hour by which a clock may be wrong
        async with asyncio.timeout(300):
            while self.files()[0] <= last:
                await self.write(1)  # so that there is a snapshot behind what goes
                await self.clock.advance(10)
        await self.saved()

    def files(self) -> list[str]:
        return sorted(each.name for each in (self.store / "commitlog").iterdir())

    async def stop(self) -> None:
        await self.peer.close()
        await self.broker.stop()


@asynccontextmanager
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    node = Live(tmp_path / "store")
    await node.start()
    try:
        await node.write(400)
        await node.saved()
        yield node
    finally:
        await node.stop()


def numbers(tasks: list[list[Part | Places]], wanted: Wanted) -> Iterator[int]:
    for parts in tasks:
        for batch in batches(parts, wanted, SCHEMA, "b"):
            yield from batch.column(0).to_pylist()


def run_again(store: Path, wanted: Wanted) -> list[int]:
    """What a job finds that is run again, as its error asks, while retention goes on: each time there is less to take."""
    for _ in range(20):
        with suppress(SegmentGone):
            return list(numbers(plan(store, wanted), wanted))
    raise AssertionError("retention was there 20 times")


def without_gap(found: list[int]) -> bool:
    return sorted(found) == list(range(min(found), max(found) + 1))


async def test_reading_all_the_time(tmp_path: Path) -> None:
    """Every read ends with all numbers from its first to its last, or says that retention was there."""
    done = threading.Event()
    read: list[list[int]] = []
    gone: list[str] = []

    def keep_reading(store: Path) -> None:
        while not done.is_set():
            for wanted in (OFTEN, RARE):
                try:
                    read.append(list(numbers(plan(store, wanted), wanted)))
                except SegmentGone as error:
                    gone.append(str(error))

    async with live(tmp_path) as node:
        reading = asyncio.create_task(asyncio.to_thread(keep_reading, node.store))
        try:
            await node.age()
        finally:
            done.set()
            await reading
        assert int(node.files()[0]) > 0, "retention took nothing: the test proves nothing"
    assert read or gone
    assert all(map(without_gap, filter(None, read)))
    assert all("run the job again" in each for each in gone)


@pytest.mark.parametrize("wanted", [OFTEN, RARE], ids=["scan", "queues"])
async def test_retention_takes_what_a_job_reads(tmp_path: Path, wanted: Wanted) -> None:
    """A file that is gone when its turn comes is told, or left out if that is allowed; the job that is run again has no gap."""
    wanted = wanted._replace(least_parts=10)
    async with live(tmp_path) as node:
        tasks = plan(node.store, wanted)
        assert all(isinstance(part, Places) == (wanted.topics == RARE.topics) for parts in tasks for part in parts)
        expected = list(numbers(tasks, wanted))
        assert without_gap(expected)
        running = numbers(tasks, wanted)
        begun = [next(running)]
        await node.age()
        with pytest.raises(SegmentGone, match="retention removed it after the job began"):
            begun.extend(running)
        assert begun == expected[: len(begun)]
        assert list(numbers(tasks, wanted._replace(fail_on_loss=False))) == []
        again = run_again(node.store, wanted)
        assert without_gap(again)
        assert again[0] > expected[0]


async def test_retention_takes_the_file_that_a_task_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read to its end."""
    monkeypatch.setattr(walking, "BLOCK_BYTES", 4096)
    async with live(tmp_path) as node:
        first, *_ = find_parts(node.store)
        whole = [found.head["physical_offset"].tolist() for found in walk(first) if isinstance(found, Block)]
        assert len(whole) > 2
        running = walk(first)
        begun = [next(running)]
        await node.age()
        assert Path(first.path).name not in node.files()
        assert [found.head["physical_offset"].tolist() for found in [*begun, *running] if isinstance(found, Block)] == whole
