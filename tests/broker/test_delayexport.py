"""What waits as Apache RocketMQ would find it: positions of levels, timercheck, timer wheel and timer log (store-format 10)."""

import json
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pytest

from rmq.broker.pending import delayexport
from rmq.delivery.due import timer_out_ms
from rmq.javahash import java_hash
from rmq.net.commands import GetRuntimeInfo
from rmq.testing import LocalBroker
from tests.broker.support import Peer, everything
from tests.broker.test_delays import delayed

SLOT, ENTRY, CHECK = Struct(">qqqii"), Struct(">iqiqiqiiq"), Struct(">7q")
SLOTS = 2 * 7 * 24 * 3600


class Wheel(NamedTuple):
    """`slots`: second -> (messages less cancels, [(offset in the CommitLog, magic)] by its chain, oldest first)."""

    slots: dict[int, tuple[int, list[tuple[int, int]]]]
    check: tuple[int, ...]
    log_end: int


def read_wheel(root: Path, file_bytes: int = 100 * 1024 * 1024) -> Wheel:
    """As RocketMQ reads it: each slot's chain from its last entry back to its first."""
    files = sorted((root / "timerlog").iterdir())
    assert [(file.name, file.stat().st_size) for file in files] == [
        (f"{number * file_bytes:020d}", file_bytes) for number in range(len(files))
    ]
    wheel, log = (root / "timerwheel").read_bytes(), b"".join(file.read_bytes() for file in files)
    assert len(wheel) == SLOTS * 32
    slots = {}
    for at in range(0, len(wheel), 32):
        second, first, last, count, magic = SLOT.unpack_from(wheel, at)
        if second:
            assert (at // 32, magic) == (second % SLOTS, 0)
            chain, position = [], last
            while position >= 0:
                size, before, kind, written_ms, delay_ms, offset, _, _, zero = ENTRY.unpack_from(log, position)
                assert (size, zero, written_ms + delay_ms) == (52, 0, second * 1000)
                chain.append((offset, kind))
                assert before >= 0 or position == first
                position = before
            slots[second] = count, chain[::-1]
    check = CHECK.unpack_from((root / "config" / "timercheck").read_bytes())
    return Wheel(slots, check, len(log.rstrip(b"\0")))


def positions(path: Path) -> tuple[int, ...]:
    """Of a file that may be away for a moment while it is replaced."""
    try:
        return CHECK.unpack_from(path.read_bytes())[1:4]
    except FileNotFoundError:
        return ()


async def test_a_stop_leaves_positions_and_a_timer_wheel(tmp_path: Path) -> None:
    """Levels: the lowest number that waits. Timers: each in its slot, in log order; a cancel counts against its slot."""
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        at = broker.clock.wall_ms() + 86_400_000
        first, second = [*await peer.send(*[delayed(b"%d" % n, TIMER_DELIVER_MS=at + 1000 * n) for n in (0, 1)])]
        [came] = await peer.send(delayed(b"came", TIMER_DELAY_MS=1100))
        await peer.send(delayed(b"level", DELAY=1), delayed(b"level 2", DELAY=18), delayed(b"level 3", DELAY=18))
        while len(await everything(peer)) < 2:
            await broker.clock.advance(0.2)
        third, cancel = await peer.send(
            delayed(b"2", TIMER_DELIVER_MS=at), delayed(b"stop", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY=b"2".hex())
        )
        facts = (await peer.ask(GetRuntimeInfo())).table
        told = {name: said for name, said in facts.items() if name.startswith("schedule") or name == "timerCongestNum"}
        assert told == {"scheduleMessageOffset_1": "1,1", "scheduleMessageOffset_18": "0,2", "timerCongestNum": "6"}
        await peer.close()
        await broker.stop_broker()
        assert json.loads((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"] == {"1": 1, "18": 0}
        wheel = read_wheel(tmp_path)
        read_ms, log_end, number, masters, *_ = wheel.check
        second_of_first = timer_out_ms(at) // 1000
        assert wheel.slots.pop(second_of_first) == (
            1,
            [(first.physical_offset, 1), (third.physical_offset, 1), (cancel.physical_offset, 5)],
        )
        assert wheel.slots.pop(second_of_first + 1) == (1, [(second.physical_offset, 1)])
        [(marker, (_, chain))] = wheel.slots.items()
        assert marker * 1000 < read_ms < second_of_first * 1000, "nobody reads that slot any more"
        assert chain == [(cancel.physical_offset, 1)], "the last of the queue, behind which RocketMQ goes on"
        assert (log_end - wheel.log_end in range(9), log_end % 52, number, masters) == (True, 0, 5, 5)
        entry = ENTRY.unpack_from((tmp_path / "timerlog" / f"{0:020d}").read_bytes(), 0)
        assert entry[7] == java_hash("T")
        assert came.physical_offset not in {offset for _, slot in wheel.slots.values() for offset, _ in slot}

        await broker.start_broker()
        assert not (tmp_path / "timerwheel").exists(), "it would tell lies about what comes now"
        assert not (tmp_path / "timerlog").exists()
        check = tmp_path / "config" / "timercheck"
        await broker.clock.advance_until(lambda: positions(check) == (0, 0, 0))
        peer = await Peer.connect(broker.address)  # a connection that was idle for as long as a slow disk takes would be closed
        broker.clock.jump_wall(86_460_000)
        while len(await everything(peer)) < 6:
            await broker.clock.advance(0.2)
        await broker.clock.advance(2)
        await peer.close()
        await broker.stop_broker()
        assert json.loads((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"] == {"1": 1, "18": 2}
        assert len(read_wheel(tmp_path).slots) == 1


async def test_timer_files_are_as_long_as_the_configuration_says(tmp_path: Path) -> None:
    """RocketMQ refuses to start on others [mappedFileSizeTimerLog, MappedFileQueue.load]."""
    async with LocalBroker(store_dir=tmp_path, timer_log_file_bytes=4096) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        at = broker.clock.wall_ms() + 86_400_000
        sent = await peer.send(*(delayed(b"%d" % n, TIMER_DELIVER_MS=at + 1000 * (n % 7)) for n in range(200)))
        await peer.close()
        await broker.stop_broker()
        wheel = read_wheel(tmp_path, 4096)
        waiting = {offset for _, chain in wheel.slots.values() for offset, _ in chain}
        assert waiting == {one.physical_offset for one in sent}
        assert len(list((tmp_path / "timerlog").iterdir())) == 3


async def test_positions_of_very_many_are_old_but_never_too_high(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not looked through every few seconds: after a crash RocketMQ may repeat, not lose. A stop is exact."""
    monkeypatch.setattr(delayexport, "MANY", 2)
    async with LocalBroker(store_dir=tmp_path) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(*[delayed(b"came", DELAY=1) for _ in range(3)])
        while len(await everything(peer)) < 3:
            await broker.clock.advance(0.2)

        async def positions_now() -> dict[str, str]:
            facts = (await peer.ask(GetRuntimeInfo())).table
            return {name.rpartition("_")[2]: said for name, said in facts.items() if name.startswith("scheduleMessageOffset")}

        assert await positions_now() == {"1": "3,3"}
        await peer.send(*[delayed(b"waits", DELAY=level) for level in (1, 18, 18, 18)])
        assert await positions_now() == {"1": "3,4", "18": "0,3"}
        while len(await everything(peer)) < 4:
            await broker.clock.advance(0.2)
        assert await positions_now() == {"1": "3,4", "18": "0,3"}, "as it was"
        await peer.close()
        await broker.stop_broker()
        assert json.loads((tmp_path / "config" / "delayOffset.json").read_bytes())["offsetTable"] == {"1": 4, "18": 0}
