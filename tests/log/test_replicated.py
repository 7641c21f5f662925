"""A leader's bytes on a follower's disk: whole entries, cuts, beginning anew, and what a crash in between leaves."""

import random
from dataclasses import dataclass, field
from typing import Any

import msgpack
import pytest

from rmq.errors import Refusal, StoreError
from rmq.log import replicated, taken
from rmq.log.files import smallfile
from rmq.log.files.epochs import START, EpochEntry, EpochRecord, Voter
from rmq.log.files.memory import MemoryDisk, PowerLoss
from rmq.log.files.snapshot import QUEUES, RECEIVED
from rmq.log.records import record
from rmq.log.replicated import ReplicatedLog, Taken, read_entries
from rmq.log.settings import StoreSettings
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.model import STATE_TOPIC
from tests.log.conftest import HOST, ROOT, draft

SETTINGS = StoreSettings(HOST, segment_bytes=4096, queue_file_entries=50, alone=False)
VOTERS = (Voter("n0", "aa", "x:1"),)
NEWEST = 1000  # epoch that any leader may be in


@dataclass
class Replica:
    """One member's store; `ends` of all entries it appended as leader."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    settings: StoreSettings = SETTINGS
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> "Replica":
        self.store = Store.open(self.disk, ROOT, self.settings)
        self.held = ReplicatedLog(self.store, self.disk, ROOT)
        self.log = self.store.log
        return self

    def lead(self, epoch: int, writer: str = "aa") -> None:
        entry = EpochEntry(epoch, self.log.end, writer)
        self.store.epochs = (*self.store.epochs, entry)
        self.held.append_epoch(EpochRecord(epoch, entry.start, writer, "n0", START, False, VOTERS, self.store.epochs), 1000)
        self.ends.append(self.log.end)

    def write(self, *sizes: int) -> None:
        for size in sizes:
            data = draft("T", b"x" * size, TAGS="a")
            unit = Unit(data, (len(data),), (0,), self.store.queues.get("T", 0))
            before = self.log.end
            self.log.append([unit], 2000)
            if unit.physical_offset != before and unit.start != before:
                self.ends.append(unit.start)  # a roll record came first
            self.ends.append(unit.end)

    def take(self, data: bytes) -> Taken:
        taken = self.held.take(self.log.end, data, NEWEST)
        for found in taken.epochs:
            if not self.store.epochs or found.record.epoch > self.store.epochs[-1].epoch:
                self.store.epochs = (*self.store.epochs, found.record.entry())
        return taken

    def content(self) -> bytes:
        return b"".join(segment.read(segment.base, segment.size) for segment in self.log.segments())


@pytest.fixture
def leader() -> Replica:
    leader = Replica()
    leader.lead(1)
    chance = random.Random(5)
    leader.write(*(chance.choice((0, 30, 300, 1500)) for _ in range(40)))
    leader.lead(4)
    leader.write(10, 1500, 1500, 1500, 20)
    return leader


@pytest.mark.parametrize("max_bytes", [1, 100, 700, 4000, 5000, 1 << 20])
def test_a_follower_becomes_equal_in_pieces_of_any_size(leader: Replica, max_bytes: int) -> None:
    """R3: whole entries only, byte for byte, fillers too; the epoch history comes with them (R13)."""
    follower = Replica()
    while follower.log.end < leader.log.end:
        data = read_entries(leader.log, follower.log.end, max_bytes)
        assert follower.take(data).bad == ""
        assert follower.log.end in leader.ends
    assert follower.content() == leader.content()
    assert follower.store.epochs == leader.store.epochs


@pytest.mark.parametrize("most", [1 << 20, 0])
def test_a_follower_dispatches_what_it_took(leader: Replica, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """From the checked bytes, as long as not too many of them wait; else from the log. Also what came after a cut."""
    monkeypatch.setattr(taken, "MAX_TAKEN_BYTES", most)
    follower = Replica()
    data = read_entries(leader.log, 0, 1 << 20)
    follower.take(data)
    assert bool(follower.log.taken.size) == bool(most)
    cut = leader.ends[20]
    follower.held.cut(cut, follower.store.epochs[:1], False)
    there = [some.end for some in follower.log.taken.from_(0, leader.log.end)]
    assert there[-1:] == ([cut] if most else [])
    follower.store.dispatcher.advance(leader.ends[10])
    follower.take(read_entries(leader.log, cut, 1 << 20))
    units = [unit for store in (follower.store, leader.store) for unit in store.dispatcher.advance(leader.log.end)]
    follower.log.taken.cut(leader.log.end)
    assert not [*follower.log.taken.from_(leader.log.end, leader.log.end)]
    assert not follower.log.taken.size
    queues = [store.queues.get("T", 0) for store in (follower.store, leader.store)]
    assert queues[0].max == queues[1].max == 45
    assert [queues[0].entry(offset)[:2] for offset in range(45)] == [queues[1].entry(offset)[:2] for offset in range(45)]
    assert {queues[0].entry(offset).tags_code for offset in range(45)} == {ord("a")}
    assert sum(len(unit.sizes) for unit in units if unit.queue is queues[0]) == 45 - queues[0].first_at_or_behind(leader.ends[10])
    assert all(sum(unit.sizes) == unit.size for unit in units)


@dataclass
class Many:
    """A leader's bytes, more than one look takes: small records, an epoch record among them, and where a file ends."""

    leader: Replica
    start: int  # the bytes begin there

    def follower(self) -> Replica:
        follower = Replica(settings=self.leader.settings)
        assert follower.take(read_entries(self.leader.log, 0, 1)).bad == ""
        return follower

    def data(self) -> bytes:
        return read_entries(self.leader.log, self.start, 1 << 20)


@pytest.fixture(scope="module")
def many() -> Many:
    leader = Replica(settings=SETTINGS._replace(segment_bytes=160 * 1024))
    leader.lead(1)
    start = leader.log.end
    leader.write(*([90] * 300))
    leader.lead(4)
    leader.write(*(20 + number % 150 for number in range(700)))
    assert len(leader.log.segments()) == 2
    return Many(leader, start)


def test_many_records_are_checked_and_dispatched_together(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same log, epoch history and queues as one by one; and most are not looked at one by one (R13, D12)."""
    looked = 0

    def count(*arguments: Any) -> int:
        nonlocal looked
        looked += 1
        return verify(*arguments)

    verify = record.verify
    monkeypatch.setattr(record, "verify", count)
    follower = many.follower()
    assert follower.take(many.data()).bad == ""
    assert looked < 450  # of 1 000: around the epoch record and the file's end, and those at the end
    assert follower.content() == many.leader.content()
    assert follower.store.epochs == many.leader.store.epochs
    assert follower.log.last_stored_ms == many.leader.log.last_stored_ms
    units = follower.store.dispatcher.advance(follower.log.end)
    queue = follower.store.queues.get("T", 0)
    assert sum(len(unit.sizes) for unit in units if unit.queue is queue) == queue.max == 1000
    many.leader.store.dispatcher.advance(many.leader.log.end)
    leaders = many.leader.store.queues.get("T", 0)
    assert [queue.entry(at) for at in range(1000)] == [leaders.entry(at)._replace(tags_code=ord("a")) for at in range(1000)]


def test_damage_among_many_is_found_where_one_by_one_finds_it(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    """D7, D9: of a flipped bit, and of a record at another place."""
    data = many.data()
    chance = random.Random(3)
    broken = []
    for _ in range(40):
        spoilt = bytearray(data)
        spoilt[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        broken.append(bytes(spoilt))
    broken += [data[:5000] + data[5000 + 90 :], data[:-7], data[: len(data) // 2] + bytes(70_000)]
    found = [many.follower().take(one) for one in broken]
    monkeypatch.setattr(replicated, "MANY_BYTES", 1 << 30)
    assert found == [many.follower().take(one) for one in broken]
    assert all(one.bad for one in found)


def test_every_piece_begins_and_ends_with_an_entry(leader: Replica) -> None:
    for start in (0, *leader.ends):
        for max_bytes in (1, 8, 200, 3000, 9000):
            data = read_entries(leader.log, start, max_bytes)
            assert bool(data) == (start < leader.log.end)
            if len(data) > max_bytes:  # the first entry always passes
                assert start + len(data) <= leader.ends[leader.ends.index(start) + 1 if start else 0] + 8 or len(data) < 2100


def test_follower_gets_half_an_entry(leader: Replica) -> None:
    """Story 7: cut anywhere, what is whole is kept."""
    data = read_entries(leader.log, 0, 2000)
    wholes = [end for end in leader.ends if end <= len(data)]
    for cut in range(0, len(data), 37):
        follower = Replica()
        taken = follower.take(data[:cut])
        assert taken.end == max([end for end in wholes if end <= cut], default=0)
        assert bool(taken.bad) == (cut not in (0, *wholes))


def test_follower_damaged_bytes_refetched(leader: Replica) -> None:
    """Story 63, D7: nothing of a damaged entry is kept, nothing behind it either."""
    data = read_entries(leader.log, 0, 1500)
    for bit in range(0, len(data) * 8, 61):
        broken = bytearray(data)
        broken[bit >> 3] ^= 1 << (bit & 7)
        follower = Replica()
        taken = follower.take(bytes(broken))
        assert taken.bad
        assert taken.end <= bit >> 3
        assert follower.take(read_entries(leader.log, taken.end, 1 << 20)).bad == ""
        assert follower.content() == leader.content()


def test_a_foreign_epoch_is_refused(leader: Replica) -> None:
    """An epoch's first record starts where its entry does, and others belong to the last epoch entry."""
    other = Replica()
    other.lead(3, "bb")
    follower = Replica()
    follower.take(read_entries(leader.log, 0, 600))
    other.write(*([30] * 3))
    assert "fit" in follower.take(read_entries(other.log, 0, 1 << 20)).bad or follower.log.end


def test_filler_of_new_leader_belongs_to_new_epoch() -> None:
    """Stories 4, 6: the entry begins at its filler; an old record that stood there is cut with it."""
    one = Replica()
    one.lead(1)
    while 4096 - one.log.end > 300:
        one.write(50)
    shared = one.log.end
    follower = Replica()
    follower.take(read_entries(one.log, 0, 1 << 20))
    one.write(60)  # fits: only the old leader has it
    follower.lead(2, "bb")  # does not fit any more
    assert follower.store.epochs[-1].start == shared
    assert follower.log.end > 4096
    one.held.cut(shared, one.store.epochs, False)
    assert one.take(read_entries(follower.log, shared, 1 << 20)).bad == ""
    assert one.content() == follower.content()
    assert one.store.epochs == follower.store.epochs


def test_cut_across_two_segments_and_preallocated(leader: Replica) -> None:
    """Stories 8, 1: everything behind the cut is zero, also after power loss, and old bytes of equal size are gone."""
    for to in leader.ends[-4::-7]:
        leader.held.cut(to, tuple(entry for entry in leader.store.epochs if entry.start < to), False)
        assert (leader.log.end, leader.log.durable_end) == (to, to)
        last = leader.log.segments()[-1]
        assert not last.read(to, last.end - to).strip(b"\0")
        leader.disk.crash()
        leader.open()
        assert leader.log.end == to
        assert leader.store.recovered.cut_bytes == 0


@pytest.mark.parametrize("torn", [0.0, 0.5, 1.0])
def test_a_crash_anywhere_in_a_cut_leaves_a_prefix(torn: float) -> None:
    """Stories 2, 65, 10: D5, R13. The cut is found again afterwards."""
    step = 0
    while True:
        step += 1
        chance = random.Random(step)
        one = Replica()
        one.lead(1)
        one.write(*([300] * 20))
        one.log.flush()
        to = one.ends[9]
        one.lead(2, "bb")
        one.write(*([200] * 12))
        whole, history = one.content(), one.store.epochs
        one.store.save_progress()
        left = step

        def before(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise PowerLoss

        one.disk.before = before
        try:
            one.held.cut(to, history[:1], False)
        except PowerLoss:
            one.disk.crash(lambda chance=chance: chance.random() < torn)
        else:
            assert step > 5
            return
        one.open()
        assert to <= one.log.end
        assert one.log.end in one.ends
        end = one.log.end
        assert one.content()[:end] == whole[:end]
        assert one.store.epochs == tuple(entry for entry in history if entry.start < end)


def test_a_store_begun_anew(leader: Replica) -> None:
    """Story 46: epoch entries of bytes that are not here yet come with their records, not with the snapshot."""
    follower = Replica()
    start = leader.log.segments()[2].base
    follower.held.reset(start, leader.store.epochs, VOTERS, lambda: None)
    assert (follower.log.start, follower.log.end) == (start, start)
    assert [entry.epoch for entry in follower.store.epochs] == [1]
    assert follower.take(read_entries(leader.log, start, 1 << 20)).bad == ""
    assert follower.content() == leader.content()[start:]
    follower.log.flush()
    follower.disk.crash()
    follower.open()
    assert follower.log.end == leader.log.end
    assert follower.store.epochs == leader.store.epochs


def test_a_log_that_begins_behind_a_filler() -> None:
    """Story 46: retention took the file with the filler that the new epoch began with."""
    leader, follower = Replica(), Replica()
    leader.lead(1)
    while 4096 - leader.log.end > 300:
        leader.write(50)
    leader.lead(2, "bb")  # does not fit any more
    leader.write(50, 50)
    assert leader.store.epochs[-1].start < 4096
    follower.held.reset(4096, leader.store.epochs, VOTERS, lambda: None)
    assert [entry.epoch for entry in follower.store.epochs] == [1, 2]
    assert follower.take(read_entries(leader.log, 4096, 1 << 20)).bad == ""
    follower.log.flush()
    follower.disk.crash()
    follower.open()
    assert follower.log.end == leader.log.end
    assert follower.store.epochs == leader.store.epochs


def test_the_queues_of_a_store_begun_anew(leader: Replica) -> None:
    """Story 46: no entry goes to a queue that was deleted with the old log."""
    follower = Replica()
    start = leader.log.segments()[2].base
    while follower.log.end + len(data := read_entries(leader.log, follower.log.end, 1)) < start:
        follower.take(data)
    follower.store.dispatcher.advance(follower.log.end)  # the next number is the one that comes behind `start`
    follower.held.reset(start, leader.store.epochs, VOTERS, lambda: None)
    follower.take(read_entries(leader.log, start, 1 << 20))
    follower.store.dispatcher.advance(follower.log.end)
    queue = follower.store.queues.find("T", 0)
    assert queue is not None
    assert queue.max == 45


def test_power_lost_while_a_store_begins_anew(leader: Replica) -> None:
    """Story 46: never stands the leader's snapshot beside the old log, whose bytes below its S1 are others."""
    theirs = leader.store.begin_snapshot()
    s1 = leader.log.segments()[1].base
    leader.store.publish_snapshot(theirs, s1, s1)
    data = bytes(leader.disk.content(f"{ROOT}/rmq/snapshot-{s1:020d}"))
    seen = set()
    for stopped_at in range(200):
        follower = Replica()
        follower.lead(1, "cc")
        while follower.log.end < s1 + 4096:
            follower.write(170)
        follower.log.flush()
        follower.disk.put(f"{ROOT}/rmq/{RECEIVED}", data)
        left = stopped_at

        def before(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLoss

        follower.disk.before = before
        try:
            follower.held.reset(8192, leader.store.epochs, VOTERS, follower.store.snapshots.install)
            break
        except PowerLoss:
            pass
        follower.disk.before = lambda operation, path: None
        follower.disk.crash()
        follower.open()
        placed = bool(follower.store.snapshots.kept)
        seen.add((placed, follower.log.end > 0))
        assert not placed or follower.log.end in (0, 8192)
        assert not follower.store.log.damages
    assert stopped_at > 10
    assert seen == {(False, True), (False, False), (True, False), (True, True)}
    assert (follower.log.start, follower.log.end) == (8192, 8192)


def test_no_snapshot_of_a_log_that_is_gone(leader: Replica) -> None:
    """Story 46: one that was being made when another node's was taken over would be loaded over a log it does not fit."""
    follower = Replica()
    writer = follower.store.begin_snapshot()
    theirs = leader.store.begin_snapshot()
    leader.store.publish_snapshot(theirs, 0, 0)
    name = f"{ROOT}/rmq/snapshot-{0:020d}"
    follower.disk.put(f"{ROOT}/rmq/{RECEIVED}", bytes(leader.disk.content(name)))

    def place() -> None:
        follower.store.snapshots.install()

    follower.held.reset(4096, leader.store.epochs, VOTERS, place)
    with pytest.raises(StoreError, match="gone"):
        follower.store.publish_snapshot(writer, 0, 0)
    follower.disk.crash()
    follower.open()
    assert [snapshot.path for snapshot in follower.store.snapshots.kept] == [name]


def test_the_index_of_a_store_begun_anew(leader: Replica) -> None:
    """Story 46: nothing of the old log is found, everything of the new one is."""
    follower = Replica(settings=SETTINGS._replace(index_slots=100, index_entries=400))
    index = follower.store.indexed.index
    assert index is not None
    follower.take(read_entries(leader.log, 0, 1 << 20))
    index.advance(follower.log.end, 1)
    begin = leader.log.segments()[3].base
    follower.held.reset(begin, leader.store.epochs, VOTERS, lambda: None)
    follower.take(read_entries(leader.log, begin, 1 << 20))
    while index.position < follower.log.end:
        index.advance(follower.log.end, 1)
    expected = [one.physical_offset for one in leader.log.scan(begin, leader.log.end) if one.topic == "T"]
    assert sorted(index.find("T", "a", 0, 1 << 60, tag=True)) == expected


def test_queue_numbers_of_the_inherited_tail(leader: Replica) -> None:
    """Stories 31, 32: a new leader numbers on behind what it inherited; what was cut is numbered again."""
    follower = Replica()
    follower.take(read_entries(leader.log, 0, 1 << 20))
    queue = follower.store.queues.get("T", 0)
    assert queue.max == 0
    follower.held.restore_queue_offsets()
    assert queue.next == 45
    to = next(end for end in leader.ends if end > 9000)
    follower.held.cut(to, follower.store.epochs[:1], False)
    follower.held.restore_queue_offsets()
    assert queue.next == sum(one.topic == "T" for one in follower.log.scan(0, to))


def test_a_deletion_in_the_inherited_tail() -> None:
    """Stories 31, 35: a new leader stores nothing for that topic before the line is dispatched, and begins at 0 then."""
    leader, follower = Replica(), Replica()
    leader.lead(1)
    leader.write(10, 10)
    data = record.draft(STATE_TOPIC, msgpack.packb([["topic", "T", None]]), b"", born_timestamp=1, born_host=HOST)
    leader.log.append([Unit(data, (len(data),), (0,), leader.store.queues.get(STATE_TOPIC, 0))], 2000)
    follower.take(read_entries(leader.log, 0, 1 << 20))
    follower.held.restore_queue_offsets()
    follower.lead(2)
    with pytest.raises(Refusal, match="topic T does not exist any more"):
        follower.write(10)
    follower.store.dispatcher.advance(follower.log.end)
    follower.write(10)
    follower.store.dispatcher.advance(follower.log.end)
    assert follower.store.queues.get("T", 0).max == 1


def test_a_snapshot_says_what_was_committed(leader: Replica) -> None:
    """D12: with the saved offset lost, queues are rebuilt to the snapshot's S1 before its numbers are restored."""
    end = leader.log.end
    leader.store.dispatcher.advance(end)
    writer = leader.store.begin_snapshot()
    writer.add(QUEUES, [("T", 0, 45)])
    leader.store.publish_snapshot(writer, end, end)
    leader.write(10)
    leader.log.flush()
    leader.disk.kill()
    for name in ("progress", "queues"):
        leader.disk.unlink(f"{ROOT}/rmq/{name}")
    leader.open()
    assert leader.store.dispatcher.position == end
    leader.store.dispatcher.advance(leader.log.end)
    assert leader.store.queues.get("T", 0).max == 46


@pytest.mark.parametrize("expired", [False, True])
def test_what_is_given_up_is_kept_for_the_operator(leader: Replica, expired: bool) -> None:
    """From the parting on; retention may have come first and taken the older part of it."""
    base = leader.log.segment_bytes
    parted, data = base - 500, leader.content()
    if expired:
        leader.log.drop_before(base)
        parted, data = base, data[base:]
    else:
        data = data[parted:]
    leader.held.keep(base - 500)
    names = [f"{ROOT}/rmq/{name}" for name in leader.disk.listdir(f"{ROOT}/rmq") if name.startswith("lost-4-")]
    names.sort(key=lambda name: int(name.rpartition("-")[2]))
    assert names[0].endswith(f"-{parted}")
    assert b"".join(smallfile.read_file(leader.disk, name) for name in names) == data[: leader.log.end - parted]
