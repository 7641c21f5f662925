"""Jobs and flushes: none ends unnoticed, whatever it raises, and a stop waits for what is at work."""

import asyncio
import threading

import pytest

from rmq.broker.replication import flusher
from rmq.broker.replication.flusher import ASYNC_FLUSH_BYTES, Flusher
from rmq.broker.timers import Timers
from rmq.errors import StoreError
from rmq.measures import Histogram
from rmq.testing import TestClock, until


async def test_a_job_that_fails_is_tried_again_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock, runs = TestClock(running=False), list[float]()
    trouble: list[Exception] = [OSError(28, "disk full")] * 3 + [StoreError("disk full"), StoreError("other")]

    def job() -> None:
        runs.append(clock.monotonic())
        if trouble:
            raise trouble.pop(0)

    timers = Timers(clock)
    timers.every(1.0, "saving", job)
    await until(lambda: clock.sleepers)
    await clock.advance(6.5)
    assert runs == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    texts = [record.getMessage() for record in caplog.records]
    assert [text.count("[Errno 28]") for text in texts] == [1, 0, 0, 0]
    assert texts[-1] == "saving: works again"
    await timers.stop()


async def test_a_first_time_may_come_sooner() -> None:
    clock, runs = TestClock(running=False), list[float]()
    timers = Timers(clock)
    timers.every(10.0, "saving", lambda: runs.append(clock.monotonic()), first_s=2.0)
    await until(lambda: clock.sleepers)
    await clock.advance(23.0)
    assert runs == [2.0, 12.0, 22.0]
    await timers.stop()


async def test_a_bug_in_a_job_is_told_with_its_place_and_the_job_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    clock, runs = TestClock(running=False), list[int]()

    async def job() -> None:
        runs.append(1)
        raise KeyError("nobody foresaw this")

    timers = Timers(clock)
    timers.every(1.0, "saving", job)
    await until(lambda: clock.sleepers)
    await clock.advance(2.5)
    assert len(runs) == 2
    assert "KeyError: 'nobody foresaw this'" in caplog.text
    await timers.stop()


async def test_a_stop_waits_for_the_job_at_work() -> None:
    clock, may_end, log = TestClock(running=False), asyncio.Event(), list[str]()

    async def job() -> None:
        await may_end.wait()
        log.append("saved")

    timers = Timers(clock)
    timers.every(1.0, "saving", job)
    timers.every(1.0, "sleeping", lambda: None)
    await until(lambda: clock.sleepers == 2)
    await clock.advance(1)
    stopping = asyncio.create_task(timers.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    may_end.set()
    await stopping
    assert log == ["saved"]


class Log:
    """What a flusher needs of the log. `gate`: a flush waits there."""

    def __init__(self) -> None:
        self.end = self.durable_end = self.flushes = 0
        self.gate, self.file_made = threading.Event(), threading.Event()
        self.gate.set()
        self.file_made.set()
        self.trouble: Exception | None = None
        self.prepare_trouble: Exception | None = None

    def flush(self) -> int:
        end = self.end
        self.flushes += 1
        self.gate.wait()
        if self.trouble:
            raise self.trouble
        self.durable_end = end
        return end

    def prepare(self) -> None:
        self.file_made.wait()
        if self.prepare_trouble:
            raise self.prepare_trouble


class Bench:
    def __init__(self, gathers: bool = False) -> None:
        self.clock = TestClock(running=False)
        self.log = Log()
        self.flushed = 0
        self.failures: list[StoreError] = []
        self.flusher = Flusher(self.log, self.clock, 0.5, self._count, self.failures.append, Histogram(), gathers)
        self.flusher.start()

    def _count(self) -> None:
        self.flushed += 1

    def append(self, end: int) -> None:
        self.log.end = end
        self.flusher.ask()

    async def flush_once(self, end: int, meanwhile: int = 0) -> None:
        """A flush up to `end`; what is appended up to `meanwhile` comes too late for it."""
        self.log.gate.clear()
        flushes = self.log.flushes
        self.append(end)
        await until(lambda: self.log.flushes > flushes)
        if meanwhile:
            self.append(meanwhile)
        self.log.gate.set()


async def test_appends_during_a_flush_share_the_next_one() -> None:
    bench = Bench()
    bench.log.gate.clear()
    bench.log.end = 10
    bench.flusher.ask()
    await until(lambda: bench.log.flushes == 1)
    for end in (20, 30, 40):
        bench.log.end = end
        bench.flusher.ask()
    bench.log.gate.set()
    await until(lambda: bench.log.durable_end == 40 and bench.flushed == 2)
    assert bench.log.flushes == 2
    await bench.flusher.stop()


async def test_who_sends_again_once_answered_shares_the_flush_of_those_who_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else they would take turns for ever, with two flushes for what one could do."""
    monkeypatch.setattr(flusher, "GATHER_S", 60.0)
    bench = Bench(gathers=True)
    await bench.flush_once(10, meanwhile=20)
    await until(lambda: bench.flushed == 1)
    bench.append(30)
    await until(lambda: bench.log.durable_end == 30 and bench.flushed == 2)
    assert bench.log.flushes == 2
    bench.append(35)
    bench.append(50)
    await until(lambda: bench.log.durable_end == 50 and bench.flushed == 3)
    assert bench.log.flushes == 3, "as much came again as the last one had made durable"
    bench.append(55)
    await bench.flusher.stop()
    bench.append(80)
    assert bench.log.flushes == 3, "one that waits is left to the store's close"


async def test_a_sender_that_is_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "GATHER_S", 60.0)
    bench = Bench(gathers=True)
    await bench.flush_once(10)
    for end in (20, 30, 41):
        await until(lambda: bench.log.durable_end == bench.log.end and bench.flushed == bench.log.flushes)
        bench.append(end)
    await until(lambda: bench.log.durable_end == 41)
    await bench.flusher.stop()


async def test_a_flush_that_waited_in_vain_is_followed_by_many_that_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(gathers=True)
    await bench.flush_once(10, meanwhile=20)
    await until(lambda: bench.flushed == 2)
    monkeypatch.setattr(flusher, "GATHER_S", 60.0)
    for end in range(30, 150, 20):
        await bench.flush_once(end, meanwhile=end + 10)
        await until(lambda: bench.log.durable_end == bench.log.end and bench.flushed == bench.log.flushes)
    await bench.flusher.stop()


async def test_nobody_waits_for_the_next_file() -> None:
    """A sender that waits for its flush does not wait for a new file of 1 GiB, too."""
    bench = Bench()
    bench.log.file_made.clear()
    bench.log.end = 10
    bench.flusher.ask()
    await until(lambda: bench.flushed == 1)
    bench.log.end = 20
    bench.flusher.ask()
    bench.log.file_made.set()
    await until(lambda: bench.flushed == 2)
    bench.log.prepare_trouble = ValueError("a bug")
    bench.log.end = 30
    bench.flusher.ask()
    await until(lambda: bench.failures)
    await bench.flusher.stop()


async def test_the_timer_flushes_what_waits_and_nothing_else() -> None:
    bench = Bench()
    await until(lambda: bench.clock.sleepers)
    await bench.clock.advance(5)
    assert bench.log.flushes == 0
    bench.log.end = 1
    await bench.clock.advance(0.5)
    await until(lambda: bench.flushed == 1)
    bench.log.end += ASYNC_FLUSH_BYTES
    bench.flusher.appended()
    await until(lambda: bench.flushed == 2)
    await bench.flusher.stop()


async def test_what_another_thread_made_durable_is_told_to_who_asks() -> None:
    """Tables are saved behind a flush of the log: an administrator's promote, or a send, that waits for it hears of it."""
    bench = Bench()
    bench.log.end = bench.log.durable_end = 10
    bench.flusher.ask()
    await until(lambda: bench.flushed == 1)
    bench.flusher.ask()
    await until(lambda: bench.clock.sleepers)
    await bench.clock.advance(5)
    assert bench.flushed == bench.log.flushes == 1
    await bench.flusher.stop()


@pytest.mark.parametrize("trouble", [StoreError("disk broken"), OSError(5, "I/O error"), ValueError("a bug")])
async def test_any_failure_of_a_flush_is_final(trouble: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """D4."""
    bench = Bench()
    bench.log.trouble, bench.log.end = trouble, 10
    bench.flusher.ask()
    await until(lambda: bench.failures)
    assert str(trouble) in str(bench.failures[0]) or repr(trouble) in str(bench.failures[0])
    assert "this broker stops writing" in caplog.text
    bench.log.trouble = None
    bench.flusher.ask()
    await bench.flusher.stop()
    assert (bench.flushed, bench.log.flushes, len(bench.failures)) == (0, 1, 1)


async def test_a_stop_waits_for_the_running_flush() -> None:
    threads = {*threading.enumerate()}
    bench = Bench()
    bench.log.gate.clear()
    bench.log.end = 10
    bench.flusher.ask()
    await until(lambda: bench.log.flushes == 1)
    bench.log.end = 20
    bench.flusher.ask()
    stopping = asyncio.create_task(bench.flusher.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    bench.log.gate.set()
    await stopping
    assert (bench.flushed, bench.log.flushes) == (1, 1), "what was asked for meanwhile is left to the store's close"
    bench.flusher.ask()
    await bench.flusher.stop()
    assert bench.log.flushes == 1
    assert {*threading.enumerate()} <= threads
