"""A store tells up to which time nothing is missing in it: a node that is cut off from its group must not."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.stores.look import extent
from analytics.stores.plan import newest_ms
from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import Progress, save_progress
from rmq.net.commands import UpdateTopic
from rmq.testing import TestClock
from tests.analytics.stores import Sent, commit, write_store
from tests.broker.groups import LocalGroup
from tests.broker.support import send

HOUR_MS = 3_600_000


async def test_a_quiet_hour_is_known_to_who_hears_the_others(tmp_path: Path) -> None:
    """The leader and its followers note that nothing came; one whom the others have left notes nothing more."""

    def known_ms(name: str) -> int:
        return extent(tmp_path / name).known_ms

    async with LocalGroup(tmp_path) as group:
        group.clock.jump_wall(-4 * HOUR_MS)  # no store knows of a time to come
        peer = await group.connect(await group.leader())
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await peer.ask(send("T", b"the last message"))
        await group.level()
        group.clock.jump_wall(HOUR_MS)
        quiet_ms = group.clock.wall_ms()
        group.clock.jump_wall(HOUR_MS)
        await group.clock.advance_until(lambda: all(known_ms(name) > quiet_ms for name in group.nodes), timeout_s=300)

        alone, *others = await group.followers()
        await group.stop(*others, await group.leader())
        cut_ms = group.clock.wall_ms()
        await group.clock.advance(10)  # longer than any lease
        group.clock.jump_wall(HOUR_MS)
        progress = tmp_path / alone / "rmq" / "progress"
        for _ in range(3):  # a time is marked by one, and noted by the next
            saved = progress.stat().st_ino, progress.stat().st_mtime_ns
            await group.clock.advance_until(lambda: (progress.stat().st_ino, progress.stat().st_mtime_ns) != saved, timeout_s=300)  # noqa: B023
        assert quiet_ms < known_ms(alone) < cut_ms


class Ahead(TestClock):
    """Of another machine: it counts the same seconds, and its wall clock is 40 minutes ahead."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__()
        self._of = clock

    def monotonic(self) -> float:
        return self._of.monotonic()

    def since_boot(self) -> float:
        return self._of.since_boot()

    def wall_ms(self) -> int:
        return self._of.wall_ms() + 2_400_000

    async def sleep(self, seconds: float) -> None:
        await self._of.sleep(seconds)


async def test_a_follower_whose_clock_is_ahead_knows_no_more_than_its_leader(tmp_path: Path) -> None:
    """It called a day complete of which its leader still stored messages: they were in no report."""
    async with LocalGroup(tmp_path) as group:
        group.clock.jump_wall(-4 * HOUR_MS)  # no store knows of a time to come
        peer = await group.connect(await group.leader())
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        name, _ = await group.followers()
        await group.stop(name)
        usual, group.clock = group.clock, Ahead(group.clock)
        await group.start(name)
        group.clock = usual
        await group.level()

        saved = group.nodes[name].serving.store.saved

        async def noted() -> None:
            for _ in range(3):  # a time is marked by one turn, and noted by the next
                before = saved.settled_ms
                await group.clock.advance_until(lambda: saved.settled_ms != before, timeout_s=300)  # noqa: B023

        await noted()
        await peer.ask(send("T", b"of a clock that is behind"))
        await group.level()
        await noted()
        begun_ms = group.clock.wall_ms()
        for _ in range(10):
            await noted()
        await group.clock.advance_until(lambda: extent(tmp_path / name).known_ms > begun_ms, timeout_s=300)  # though quiet
        assert extent(tmp_path / name).known_ms <= group.clock.wall_ms()


def test_the_newest_message_is_found_at_the_end_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = write_store(tmp_path, [Sent("T", b"x" * 300, time_ms=1_795_230_000_000 + n) for n in range(90)], 1 << 15)
    assert newest_ms(tmp_path) == 1_795_230_000_089
    monkeypatch.setattr("analytics.stores.plan._LAST_BYTES", 2000)
    for last in (3, 60, 89):
        commit(tmp_path, offsets[last])
        assert newest_ms(tmp_path) == 1_795_230_000_000 + last - 1
    monkeypatch.setattr("analytics.stores.plan._LAST_BYTES", 200)  # less than a record
    assert newest_ms(tmp_path) == 1_795_230_000_088


def test_a_clock_that_was_ahead_proves_nothing(tmp_path: Path) -> None:
    """Each day was called cut off while the log began with such a message, and whole to its end where one was the last."""
    now_ms, ahead_ms = 1_795_230_000_000, 4_000_000_000_000
    times = [ahead_ms if number < 2 or number > 10 else now_ms + number for number in range(13)]
    offsets = write_store(tmp_path, [Sent("T", bytes(300), time_ms=ms) for ms in times], 2048)
    (tmp_path / "rmq").mkdir()
    said = Progress(log=offsets[-1], hw=offsets[-1], cq=0, stored_ms=ahead_ms, settled_ms=ahead_ms)
    save_progress(RealDisk(), str(tmp_path / "rmq"), said)
    found = extent(tmp_path)
    assert (found.first_ms, found.known_ms, newest_ms(tmp_path)) == (now_ms + 4, 0, now_ms + 10)


def test_a_leader_whose_clock_is_behind_has_the_last_word(tmp_path: Path) -> None:
    """The one before was half an hour ahead, and its messages of the next day proved that nothing more of this one comes."""
    ahead_ms, behind_ms = 1_795_230_000_000, 1_795_228_200_000
    write_store(tmp_path, [Sent("T", time_ms=ahead_ms), *(Sent("T", time_ms=behind_ms + number) for number in range(3))])
    assert newest_ms(tmp_path) == behind_ms + 2
