"""Halves in a directory of Apache RocketMQ: what it had ended stays so, what was open is asked after here (story 57)."""

from pathlib import Path

import pytest

from rmq.broker.adoption import tables as adopt
from rmq.broker.tables import snapshot
from rmq.broker.tables.tables import Tables
from rmq.delivery.groups import GroupTable
from rmq.delivery.offsets import OffsetTable
from rmq.delivery.transactions import Half
from rmq.log.files.disk import RealDisk
from rmq.log.records import record
from rmq.log.replay import replay
from rmq.log.store import Store, StoreSettings
from rmq.routing.topics import TopicTable
from rmq.testing import LocalBroker
from tests.broker.support import Peer, beat
from tests.broker.test_transactions import asked
from tests.broker.transactions import checks, end, properties, stored
from tests.golden import setting, unpack

HOST = record.host_bytes("127.0.0.1", 1)


def adopted(name: str, folder: Path, *, end: int | None = None, told: bool = True) -> dict[int, Half]:
    """The open halves after the directory was taken over. `end`: as if RocketMQ had been killed there; `told`: its offsets
    were saved."""
    root = unpack(name, folder)
    if end is not None:
        segment = root / "commitlog" / f"{0:020d}"
        content = segment.read_bytes()
        segment.write_bytes(content[:end].ljust(len(content), b"\0"))
        (root / "abort").write_text("1")
    if not told or end is not None:
        for path in (root / "config").glob("consumerOffset.json*"):
            path.unlink()
    settings = StoreSettings(HOST, setting(name, "mappedFileSizeCommitLog"), group="broker-a", queue_file_entries=1000)
    adopt.adopt(RealDisk(), str(root), settings, 1_800_000_000_000)
    store = Store.open(RealDisk(), str(root), settings)
    tables = Tables(TopicTable(), GroupTable(), OffsetTable(), store.log.segment_bytes)
    snapshot.load(tables.by_name, store)
    for one in replay(store):
        tables.note(one)
    store.close()
    return dict(tables.halves.open.rows)


@pytest.mark.parametrize(
    ("name", "end", "told", "expected"),
    [
        ("s07-tx", None, True, []),
        ("s07-tx", None, False, []),  # by the op records, and by what was put aside
        ("s07-tx", 17746, False, [29]),
        ("s07-tx", 18552, False, [31]),  # asked after twice
        ("s07-tx", 14693, False, [24, 25, 26]),
        ("s07-tx", 9781, False, [1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17]),  # committed ones are in their topic already
        ("s08-tx-497", None, True, [29]),
        ("s08-tx-497", None, False, [29]),
    ],
)
def test_what_is_open(name: str, end: int | None, told: bool, expected: list[int], tmp_path: Path) -> None:
    """C11, C12: whether RocketMQ stopped in order, or was killed before it wrote its op records and offsets."""
    found = adopted(name, tmp_path, end=end, told=told)
    assert [half.queue_offset for half in found.values()] == expected
    assert all(first == half.offset and half.group == "PG_tx" for first, half in found.items())


async def test_an_open_half_is_asked_after_and_delivered_once(tmp_path: Path) -> None:
    """C12: a half of RocketMQ 4.9.7; and nothing that was delivered comes again."""
    root = unpack("s08-tx-497", tmp_path)
    settings = {"segment_bytes": setting("s08-tx-497", "mappedFileSizeCommitLog"), "max_message_bytes": 4096}
    async with LocalBroker(store_dir=root, idle_timeout_ms=86_400_000, client_expiry_ms=3_600_000, **settings) as broker:
        peer = await Peer.connect(broker.address)
        before = [await stored(peer, "s8-tx", queue) for queue in range(2)]
        await peer.ask(beat("c")._replace(producers=["PG_tx"]))
        await asked(broker, peer, 1)
        [question] = checks(peer)
        assert record.decode(question.message).body == b"s8 tx last 2"
        await peer.ask(end(question)._replace(producer_group="PG_tx"))
        after = [await stored(peer, "s8-tx", queue) for queue in range(2)]
        assert [len(queue) for queue in after] == [len(before[0]), len(before[1]) + 1]
        assert (after[1][-1].body, properties(after[1][-1])["n"]) == (b"s8 tx last 2", "last2")
        await broker.clock.advance(100)
        assert len(checks(peer)) == 1
        await peer.close()
    async with LocalBroker(store_dir=root, **settings) as broker:
        peer = await Peer.connect(broker.address)
        assert [len(await stored(peer, "s8-tx", queue)) for queue in range(2)] == [len(queue) for queue in after]
        await peer.close()
