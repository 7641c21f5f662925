"""Tables saved while commits go on, and filled again: by the snapshot and the records behind its S0."""

import random

import msgpack
import pytest
from click.testing import CliRunner

from rmq.broker.shared.state import Line, lines_of
from rmq.broker.tables import snapshot
from rmq.broker.tables.snapshot import SnapshotService
from rmq.broker.tables.tables import Tables
from rmq.cli import cli
from rmq.delivery.groups import GroupTable
from rmq.delivery.offsets import OffsetTable
from rmq.errors import BadBytes, StoreError
from rmq.log.files.disk import RealDisk
from rmq.log.repair.verify import Verifier
from rmq.model import STATE_TOPIC, GroupConfig, TopicConfig
from rmq.net.commands import DeleteTopic, GetTopicConfig, QueryConsumerOffset, UpdateConsumerOffset, UpdateTopic
from rmq.routing.topics import TopicTable
from rmq.testing import LocalBroker, until
from tests.broker.conftest import Connect
from tests.broker.support import Peer, bodies, send
from tests.log.conftest import Bench


def tables() -> Tables:
    return Tables(TopicTable(), GroupTable(), OffsetTable())


class Live:
    """A store and its tables, changed by random lines as a broker would: appended, committed, applied."""

    def __init__(self, seed: int) -> None:
        self.bench = Bench().begin()
        self.tables = tables()
        self.chance = random.Random(seed)
        self.committed = self.bench.store.log.end

    def change(self) -> None:
        lines = [self._line() for _ in range(self.chance.randrange(1, 4))]
        unit = self.bench.unit(msgpack.packb(lines), STATE_TOPIC)
        self.bench.append(unit)
        self.committed = unit.end
        self.bench.store.dispatcher.advance(unit.end)
        self.tables.apply(lines_of(msgpack.packb(lines)), self.bench.wall_ms, unit.physical_offset)

    def _line(self) -> Line:
        topic, value = f"t{self.chance.randrange(8)}", self.chance.randrange(100)
        kind = self.chance.randrange(10)
        if kind < 3:
            return "topic", topic, list(TopicConfig(topic, value + 1))
        if kind == 3:
            return "topic", topic, None
        if kind == 4:
            return "group", topic, list(GroupConfig(topic, retry_max_times=value))
        if kind == 5:
            return "lock", ["g", topic, self.chance.randrange(3)], self.chance.choice(["one", "two", None])
        return "offset", ["g", topic, self.chance.randrange(3)], value

    def rebuilt(self) -> Tables:
        """What a start would fill its tables with."""
        found = tables()
        snapshot.load(found.by_name, self.bench.store)
        for stored in self.bench.store.state_records():
            found.apply(lines_of(stored.body), stored.store_timestamp, stored.physical_offset)
        return found


def test_cleared_tables_hold_nothing() -> None:
    """As when a node begins anew from its leader's snapshot."""
    live = Live(1)
    for _ in range(60):
        live.change()
    before = content(live.tables)
    assert before["lock"]
    assert before["offset"]
    live.tables.clear()
    assert not any(content(live.tables).values())


def content(found: Tables) -> dict[str, dict[object, object]]:
    return {name: dict(table.committed()) for name, table in found.by_name.items()}


@pytest.mark.parametrize("seed", range(20))
async def test_fuzzy_snapshot_replayed_exact(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Story 44: lines committed between the slices, whatever they change, come out right; also after a kill."""
    monkeypatch.setattr(snapshot, "SLICE_ROWS", 3)
    live = Live(seed)
    for _ in range(60):
        live.change()
    service = SnapshotService(live.tables.by_name, live.bench.store, lambda: live.committed)
    during = 0

    def change(operation: str, path: str) -> None:
        nonlocal during
        if path.endswith("/snapshot.new") and operation == "pwrite":  # in the writer's thread: the loop waits for it
            live.change()
            during += 1

    live.bench.disk.before = change
    await service.take()
    assert during > 10
    live.bench.disk.before = lambda operation, path: None
    newest = live.bench.store.snapshots.newest
    assert newest is not None
    assert newest.s0 < newest.s1
    for _ in range(5):
        live.change()
    assert content(live.rebuilt()) == content(live.tables)
    versions = [table.data_version.counter for table in live.tables.by_name.values()]
    assert [table.data_version.counter for table in live.rebuilt().by_name.values()] >= versions
    live.bench.disk.kill()
    live.bench.open()
    assert content(live.rebuilt()) == content(live.tables)


async def test_nothing_new_needs_no_new_one() -> None:
    live = Live(1)
    service = SnapshotService(live.tables.by_name, live.bench.store, lambda: live.committed)
    await service.take()
    before = len(live.bench.disk.operations)
    await service.take()
    assert len(live.bench.disk.operations) == before


async def test_where_nothing_more_is_committed_both_are_of_the_same_place() -> None:
    """So that the log before it may go. Each of them is whole, after a new start as well, and the next one takes its turn."""
    live = Live(1)
    service = SnapshotService(live.tables.by_name, live.bench.store, lambda: live.committed)
    for _ in range(2):
        live.change()
        await service.take()
    kept = live.bench.store.snapshots
    assert kept.covered < live.committed
    await service.take()
    assert kept.covered == live.committed
    assert len({one.path for one in kept.kept}) == 2
    before = len(live.bench.disk.operations)
    await service.take()
    assert len(live.bench.disk.operations) == before
    for path in [one.path for one in kept.kept]:
        good = bytes(live.bench.disk.content(path))
        live.bench.disk.put(path, good[:-1])
        live.bench.disk.kill()
        live.bench.open()
        assert [one.s0 for one in live.bench.store.snapshots.kept] == [live.committed]
        assert content(live.rebuilt()) == content(live.tables)
        live.bench.disk.put(path, good)
    live.bench.begin()
    live.change()
    await SnapshotService(live.tables.by_name, live.bench.store, lambda: live.committed).take()
    assert len([path for path in live.bench.disk.paths() if "/snapshot-" in path]) == 2


async def test_a_table_of_a_newer_release_is_not_passed_over() -> None:
    """D17."""
    live = Live(1)
    more = {**live.tables.by_name, "lease": OffsetTable()}
    await SnapshotService(more, live.bench.store, lambda: live.committed).take()
    with pytest.raises(BadBytes, match="lease.*newer"):
        live.rebuilt()


async def test_settings_outlive_the_records_that_made_them(broker: LocalBroker, connect: Connect, peer: Peer) -> None:
    """The first segment is gone, and every file that could be rebuilt from it: topics, groups and offsets are there."""
    await peer.ask(UpdateTopic("N", read_queue_nums=3, write_queue_nums=3))
    await peer.ask(UpdateTopic("Gone", read_queue_nums=1, write_queue_nums=1))
    await peer.send(send("N", b"x", count=4))
    await peer.ask(UpdateConsumerOffset("g", "N", 0, 3))
    snapshots = broker.store_dir / "rmq"
    await broker.clock.advance(61)
    await until(lambda: list(snapshots.glob("snapshot-0*")))
    await peer.ask(DeleteTopic("Gone"))
    await peer.ask(UpdateConsumerOffset("g", "N", 0, 4))
    first = broker.store_dir / "commitlog" / f"{0:020d}"
    while len(list(first.parent.iterdir())) < 2:
        await peer.send(send("T", b"x" * 4_000_000))
    await broker.stop_broker()
    assert len(list(snapshots.glob("snapshot-0*"))) == 2
    first.unlink()
    (snapshots / "queues").unlink()
    await broker.start_broker()
    again = await connect(broker)
    assert (await again.ask(GetTopicConfig("N"))).read_queue_nums == 3
    assert await again.refusal(GetTopicConfig("Gone")) == 17
    assert (await again.ask(QueryConsumerOffset("g", "N", 0))).offset == 4
    assert (await again.send(send("N", b"new")))[0].queue_offset == 4
    assert bodies(await again.pull("N", 4)) == [b"new"]


@pytest.mark.parametrize("gone", [True, False])
async def test_a_node_that_cannot_know_its_tables_does_not_start(
    broker: LocalBroker, connect: Connect, peer: Peer, gone: bool
) -> None:
    """The log's first segment is deleted, and no snapshot is whole: it would serve without topics, groups and offsets, and lose
    what waits. It says so, and so does `rmq store verify`."""
    await peer.ask(UpdateTopic("N", read_queue_nums=3, write_queue_nums=3))
    await peer.send(send("N", b"x", count=4))
    await peer.ask(UpdateConsumerOffset("g", "N", 0, 3))
    first = broker.store_dir / "commitlog" / f"{0:020d}"
    while len(list(first.parent.iterdir())) < 2:
        await peer.send(send("T", b"x" * 4_000_000))
    await broker.stop_broker()
    first.unlink()
    kept = {path: path.read_bytes() for path in (broker.store_dir / "rmq").glob("snapshot-0*")}
    assert kept
    for path, data in kept.items():
        path.unlink() if gone else path.write_bytes(data[:-1])
    with pytest.raises(StoreError, match=r"begins at \d+, and no whole snapshot .* restore a backup"):
        await broker.start_broker()
    found = Verifier(RealDisk(), str(broker.store_dir), 5_000_000).run().findings
    assert any(one.damage and "no whole snapshot says" in one.what for one in found)
    if gone:  # no backup either: what was exported is there
        words = ["store", "repair", str(broker.store_dir), "--yes"]
        for said in ("as they were exported last, from config/ (", "there is nothing to repair"):
            assert said in CliRunner().invoke(cli, words, catch_exceptions=False).output
    else:
        for path, data in kept.items():
            path.write_bytes(data)
    assert not any("snapshot" in one.what for one in Verifier(RealDisk(), str(broker.store_dir), 5_000_000).run().findings)
    await broker.start_broker()
    again = await connect(broker)
    assert (await again.ask(GetTopicConfig("N"))).read_queue_nums == 3
    assert (await again.ask(QueryConsumerOffset("g", "N", 0))).offset == 3
    await broker.stop_broker()
    await broker.start_broker()
    assert "N" in broker.serving.tables.topics.committed()
