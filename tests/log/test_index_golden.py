"""Index files of Apache RocketMQ: every key is answered from them, and ours, built from the same log, are the same bytes."""

import json
import lzma
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rmq.log.files import epochs
from rmq.log.files.disk import RealDisk
from rmq.log.files.epochs import EpochEntry
from rmq.log.files.memory import MemoryDisk
from rmq.log.index.index import Index, IndexRow, LastRun
from rmq.log.index.indexfile import ENTRY, Shape
from rmq.log.index.query import KeyQuery, by_key, record_at
from rmq.log.reader import read_records, read_segments
from rmq.log.records import record
from rmq.log.records.indexkeys import key_hash
from rmq.log.records.record import Record
from rmq.log.taken import LaidRecords
from tests import archives

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
FOREVER_MS = 2**63 - 1


@cache
def asked() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lzma.decompress((GOLDEN / "keys.json.xz").read_bytes()))
    return found


SETS = sorted(asked())


class Golden:
    """The log of one set, as far as the index and queries read it."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root / name
        self.said = asked()[name]
        self.shape = Shape(self.said["slots"], self.said["entries"])
        segments = read_segments(str(self.root))
        self.start, self.segment_bytes = segments[0].base, segments[0].size
        self.laid = LaidRecords()
        self._data = b"".join(Path(segment.path).read_bytes() for segment in segments)
        self.epochs = (EpochEntry(epochs.ROCKETMQ_EPOCH, 0, ""),)
        self.records: list[Record] = [one for segment in segments for one in read_records(segment)]
        self.end = self.records[-1].physical_offset + self.records[-1].total_size

    def read(self, offset: int, size: int) -> bytes:
        assert self.start <= offset <= offset + size <= self.end
        return self._data[offset - self.start : offset - self.start + size]

    def store_time(self, offset: int) -> int:
        return record.store_timestamp(self.read(offset, 100), 0)

    def theirs(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.root / "index").iterdir())]

    def rebuilt(self) -> tuple[Index, list[bytes]]:
        disk = MemoryDisk()
        index = Index(disk, "/index", self.shape, self, LastRun(None, 0, True))
        while index.position < self.end:
            index.advance(self.end, 1_700_000_000_000)
        index.flush()
        return index, [bytes(disk.content(path)) for path in disk.paths() if path.startswith("/index/")]

    def ask(self, index: Index, topic: str, word: str, *, tag: bool = False) -> list[int]:
        found = by_key(self, index, KeyQuery(topic, word, tag, 64, 0, FOREVER_MS), self.end)
        assert found.complete
        return [record.decode(one).physical_offset for one in found.records]


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden-index")
    for name in SETS:
        archives.unpack(GOLDEN / f"{name}.tar.xz", folder, _of_log_or_index)
    return folder


def _of_log_or_index(member: tarfile.TarInfo) -> bool:
    return member.isfile() and member.name.partition("/")[2].startswith(("commitlog/", "index/"))


@pytest.fixture(params=SETS)
def golden(request: pytest.FixtureRequest, unpacked: Path) -> Golden:
    return Golden(unpacked, request.param)


def entries(golden: Golden, files: list[bytes]) -> list[tuple[int, int]]:
    """(hash, offset) of every entry in order."""
    found: list[tuple[int, int]] = []
    for data in files:
        count = int.from_bytes(data[36:40], "big")
        found += [ENTRY.unpack_from(data, golden.shape.entries_at + 20 * number)[:2] for number in range(1, count)]
    return found


def test_the_index_built_from_the_log_is_that_of_rocketmq_5_5(golden: Golden) -> None:
    """Byte for byte where 5.5.0 wrote it; older releases have no entries for tags."""
    _, ours = golden.rebuilt()
    theirs = golden.theirs()
    if ours == theirs:
        return
    assert "533" in golden.root.name or "497" in golden.root.name
    tags = {(one.topic, record.bytes_to_properties(one.properties).get("TAGS", "")) for one in golden.records}
    hashes = {key_hash(topic, tag, tag=True) for topic, tag in tags}
    untagged = [entry for entry in entries(golden, ours) if entry[0] not in hashes]
    assert untagged == entries(golden, theirs)


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_every_key_is_found(golden: Golden, whose: str) -> None:
    """C16: what RocketMQ's tools were answered, and what the log says, from its files and from ours."""
    index = golden.rebuilt()[0] if whose == "ours" else opened(golden)
    for topic, key, offsets in golden.said["byKey"]:
        assert golden.ask(index, topic, key) == sorted(offsets), key
    for topic, key, offset in golden.said["byUniqueKey"]:
        assert offset is None or offset in golden.ask(index, topic, key)
    tagged = whose == "ours" or not ("533" in golden.root.name or "497" in golden.root.name)
    for (topic, word, tag), offsets in truth(golden).items():
        if tagged or not tag:
            assert golden.ask(index, topic, word, tag=tag) == offsets[-64:], word


def opened(golden: Golden) -> Index:
    names = sorted(path.name for path in (golden.root / "index").iterdir())
    rows = [IndexRow(name, 2**62) for name in names]
    index = Index(RealDisk(), str(golden.root / "index"), golden.shape, golden, LastRun(rows, golden.end, True))
    index.advance(golden.end, 0)
    assert index.position == golden.end
    return index


def truth(golden: Golden) -> dict[tuple[str, str, bool], list[int]]:
    """Offsets by topic, word and whether it is a tag, read from the records one by one."""
    found: dict[tuple[str, str, bool], list[int]] = {}
    for one in golden.records:
        if one.sys_flag & 0xC == 0xC:
            continue
        properties = record.bytes_to_properties(one.properties)
        words = {(word, False) for word in [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")] if word}
        for word, tag in words | {(properties["TAGS"], True)} if "TAGS" in properties else words:
            found.setdefault((one.topic, word, tag), []).append(one.physical_offset)
    return found


def test_message_ids_lead_to_their_records(golden: Golden) -> None:
    for message_id, offset, code, topic, unique in golden.said["byOffsetMsgId"]:
        if code == 0:
            data = record_at(golden, int(message_id[-16:], 16), golden.end)
            assert data is not None
            one = record.decode(data)
            assert (one.physical_offset, one.topic) == (offset, topic)
            assert record.bytes_to_properties(one.properties).get("UNIQ_KEY", unique) == unique


def test_only_the_first_byte_of_a_record_is_a_place(unpacked: Path) -> None:
    """D9: an id that points into a record, behind the end or before the log finds nothing."""
    golden = Golden(unpacked, "s01-plain")
    starts = {one.physical_offset for one in golden.records}
    for offset in range(golden.end + 10):
        assert (record_at(golden, offset, golden.end) is not None) == (offset in starts)
    last = golden.records[-1]
    assert record_at(golden, last.physical_offset, golden.end - 1) is None
