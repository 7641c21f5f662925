"""Messages that came and went today and yesterday: over restarts, kills and changes of leader, midnight after midnight."""

import shutil
from pathlib import Path

from rmq.delivery.totals import Totals
from rmq.net.commands import GetRuntimeInfo, UpdateTopic
from rmq.net.commands.peers import TransferLeader
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer, copy_of_running, send

DAY_MS = 86_400_000


async def counts(peer: Peer) -> dict[str, tuple[int, int]]:
    """As clusterList -m reckons: of yesterday, of today."""
    table = (await peer.ask(GetRuntimeInfo())).table
    found = {}
    for word in ("Put", "Get"):
        now, today, yesterday = (int(table[f"msg{word}Total{when}"]) for when in ("TodayNow", "TodayMorning", "YesterdayMorning"))
        found[word] = (today - yesterday, now - today)
    return found


def test_days() -> None:
    first = Totals(10).after(5, 2, 100)
    assert first.on(10) == first.on(9) == first
    second = first.on(11).after(1, 1, 101)
    assert (second.put_yesterday, second.put_today, second.put) == (0, 5, 6)
    assert second.on(12)[2:4] == (6, 5)
    assert second.on(20)[2:4] == (6, 6), "a whole day without a broker: nothing came yesterday"


async def test_of_one_broker(tmp_path: Path) -> None:
    """Killed before anything is written, stopped in order, and over two midnights."""
    async with LocalBroker(store_dir=tmp_path / "store", clock=TestClock()) as broker:
        peer = await Peer.connect(broker.address)
        await peer.send(send("T", count=3))
        await peer.pull("T", 0)
        assert await counts(peer) == {"Put": (0, 3), "Get": (0, 3)}
        await broker.clock.advance(70)
        await peer.send(send("T", count=2))
        assert await counts(peer) == {"Put": (0, 5), "Get": (0, 3)}
        copy = copy_of_running(tmp_path / "store", tmp_path / "copy")
        async with LocalBroker(store_dir=copy, clock=TestClock(wall_ms=broker.clock.wall_ms())) as killed:
            other = await Peer.connect(killed.address)
            assert await counts(other) == {"Put": (0, 5), "Get": (0, 3)}
            await other.close()
        shutil.rmtree(copy)
        await peer.pull("T", 3)
        await peer.close()
        await broker.stop_broker()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        assert await counts(peer) == {"Put": (0, 5), "Get": (0, 5)}
        for yesterday, today in ((5, 1), (1, 0)):
            broker.clock.jump_wall(DAY_MS)
            await broker.clock.advance(15)
            await peer.send(*[send("T")] * today)
            assert (await counts(peer))["Put"] == (yesterday, today)
        await peer.close()


async def test_over_a_change_of_leader(tmp_path: Path) -> None:
    """The new leader goes on where the old one was; the others tell what a leader kept last."""
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        leader = await group.connect(first)
        await leader.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await leader.send(send("T", count=3))
        await leader.pull("T", 0)
        await group.clock.advance(70)
        await leader.send(send("T", count=2))
        await group.level()
        follower = await group.connect((await group.followers())[0])
        await until(lambda: all(node.serving.tables.totals.kept for node in group.nodes.values()))
        assert await counts(follower) == {"Put": (0, 3), "Get": (0, 3)}
        await leader.ask(TransferLeader())
        second = await group.leader(but=first)
        leader = await group.connect(second)
        assert await counts(leader) == {"Put": (0, 5), "Get": (0, 3)}
        await leader.pull("T", 3)
        assert await counts(leader) == {"Put": (0, 5), "Get": (0, 5)}
