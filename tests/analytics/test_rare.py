"""Rare topics through their queues: the rows of a scan, without touching the rest of the log."""

from pathlib import Path

import pytest

from rmq.log.files.disk import RealDisk
from rmq.log.records.record import draft, host_bytes, properties_to_bytes
from rmq.log.store import Store, StoreSettings
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC

pa = pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.records.batches import batches  # noqa: E402 -- needs the extra
from analytics.stores import rare  # noqa: E402 -- needs the extra
from analytics.stores.files import Entry  # noqa: E402 -- needs the extra
from analytics.stores.options import Wanted  # noqa: E402 -- needs the extra
from analytics.stores.plan import plan  # noqa: E402 -- needs the extra
from analytics.stores.rare import Places  # noqa: E402 -- needs the extra
from rmq.errors import BadBytes  # noqa: E402 -- needs the extra

HOST = host_bytes("127.0.0.1", 1)
SEGMENT = 16 << 10
NAMES = {"topic": pa.string(), "queue_id": pa.int32(), "queue_offset": pa.int64(), "physical_offset": pa.int64()}
SCHEMA = pa.schema(list(NAMES.items()))
RARE = Wanted(topics=frozenset({"Rare"}))


def append(store: Store, topic: str, queue: int, body: bytes = b"x" * 300) -> None:
    record = draft(topic, body, properties_to_bytes({"TAGS": "a"}), born_timestamp=1, born_host=HOST)
    store.log.append([Unit(record, (len(record),), (0,), store.queues.get(topic, queue))], 1_795_262_400_000)


def settle(store: Store) -> None:
    store.dispatcher.advance(store.log.flush())
    store.save_progress()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An open store: of 300 messages in many files 15 are of a rare topic, in two queues; 20 more are not committed yet."""
    store = Store.open(RealDisk(), str(tmp_path), StoreSettings(HOST, segment_bytes=SEGMENT, queue_file_entries=4))
    store.open_epoch(1_795_262_400_000)
    for number in range(300):
        append(store, *(("Rare", number % 2) if number % 20 == 0 else ("Often", 0)))
        if number == 250:
            settle(store)
    settle(store)
    for _ in range(20):
        append(store, "Rare", 0)
    return store


def rows(path: Path, wanted: Wanted) -> list[dict[str, object]]:
    found = [row for parts in plan(path, wanted) for batch in batches(parts, wanted, SCHEMA, "b") for row in batch.to_pylist()]
    return sorted(found, key=lambda row: str(row["physical_offset"]).zfill(20))


def by_queues(path: Path, wanted: Wanted) -> bool:
    return all(isinstance(part, Places) for parts in plan(path, wanted) for part in parts)


def test_the_rows_are_those_of_a_scan(store: Store, tmp_path: Path) -> None:
    assert by_queues(tmp_path, RARE)
    assert not by_queues(tmp_path, RARE._replace(use_queues=False))
    assert rows(tmp_path, RARE) == rows(tmp_path, RARE._replace(use_queues=False))
    assert len(rows(tmp_path, RARE)) == 15
    for segment in store.cleaning.drop_before(2 * SEGMENT):  # retention
        segment.withdraw()()
    assert by_queues(tmp_path, RARE)
    assert 0 < len(rows(tmp_path, RARE)) < 15
    assert rows(tmp_path, RARE) == rows(tmp_path, RARE._replace(use_queues=False))


def test_nothing_else_is_read(store: Store, tmp_path: Path) -> None:
    """A record of another topic is damaged: a scan meets it, the queues do not lead there."""
    file = tmp_path / "commitlog" / f"{SEGMENT:020}"
    raw = bytearray(file.read_bytes())
    at = raw.index(b"Often")
    raw[at] ^= 1
    file.write_bytes(raw)
    assert len(rows(tmp_path, RARE)) == 15
    with pytest.raises(BadBytes):
        rows(tmp_path, RARE._replace(use_queues=False))


def test_a_queue_file_that_goes_meanwhile_is_no_error(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention takes it between listing and reading: the log is scanned."""
    listed = rare.entries

    def late(directory: Path) -> list[Entry]:
        found = listed(directory)
        (directory / f"{0:020}").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(rare, "entries", late)
    assert not by_queues(tmp_path, RARE)
    assert len(rows(tmp_path, RARE)) == 15


def test_a_topic_that_is_not_rare_is_scanned(store: Store, tmp_path: Path) -> None:
    assert not by_queues(tmp_path, Wanted(topics=frozenset({"Often"})))


def test_a_deleted_topic_is_scanned(store: Store, tmp_path: Path) -> None:
    """Queues made anew know nothing of what was stored before the deletion; the log does."""
    msgpack = pytest.importorskip("msgpack")
    append(store, STATE_TOPIC, 0, msgpack.packb([["topic", "Rare", None]]))
    settle(store)
    append(store, "Rare", 0)
    settle(store)
    assert not by_queues(tmp_path, RARE)


def test_a_unit_that_leads_elsewhere_is_damage(store: Store, tmp_path: Path) -> None:
    queue = tmp_path / "consumequeue" / "Rare" / "0" / f"{0:020}"
    units = queue.read_bytes()
    queue.write_bytes(units[20:40] + units[20:])
    with pytest.raises(BadBytes, match=r"not the record that the queue names \(Rare, queue 0, message 0\).*rareTopics=scan"):
        rows(tmp_path, RARE)
    queue.write_bytes(bytes(20) + units[20:])
    assert not by_queues(tmp_path, RARE), "zeros are no unit: the queue is not to be trusted"


def test_a_damaged_record_is_told(store: Store, tmp_path: Path) -> None:
    offset = rows(tmp_path, RARE)[3]["physical_offset"]
    assert isinstance(offset, int)
    file = tmp_path / "commitlog" / f"{offset - offset % SEGMENT:020}"
    raw = bytearray(file.read_bytes())
    raw[offset % SEGMENT + 60] ^= 1
    file.write_bytes(raw)
    with pytest.raises(BadBytes, match=f"CommitLog at {offset}"):
        rows(tmp_path, RARE)
