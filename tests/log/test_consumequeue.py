"""The ConsumeQueue: finding, searching, its files, and that memory and files say the same."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from rmq.codes import ResponseCode
from rmq.errors import InvalidArgument, Refusal, StoreError
from rmq.log.files.memory import MemoryDisk
from rmq.log.queues.consumequeue import ENTRY, LOWER, MAX_SCANNED, UPPER, ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from tests.compared import Name

SIZE = 100


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def queues(disk: MemoryDisk) -> ConsumeQueues:
    return ConsumeQueues(disk, "/q", 50, 50)


def put(queue: ConsumeQueue, count: int, code: int = 7) -> None:
    for _ in range(count):
        queue.put_many(queue.max, queue.max * 1000, (SIZE,), (code,))


@pytest.fixture(params=["in memory", "in files", "in both"])
def queue(queues: ConsumeQueues, request: pytest.FixtureRequest) -> ConsumeQueue:
    """120 entries; every tenth has code 10."""
    queue = queues.get("T", 3)
    for number in range(120):
        queue.put_many(number, number * 1000, (SIZE,), (10 if number % 10 == 0 else 7,))
        if number == 80 and request.param == "in both":
            queues.flush()
            queues.trim()
    if request.param == "in files":
        queues.flush()
        queues.trim()
    return queue


@given(
    count=st.integers(1, 60),
    sizes=st.sampled_from([[SIZE], [SIZE, 101], [2**31 - 2]]),
    codes=st.sampled_from([[7], [0], [-(2**31)], [7, 8], [1 << 40]]),
    offset=st.integers(0, 1 << 62),
)
def test_records_put_together_have_the_entries_of_each(count: int, sizes: list[int], codes: list[int], offset: int) -> None:
    """Also where numpy makes them, as all are alike."""
    queue = ConsumeQueues(MemoryDisk(), "/q", 50, 50).get("T", 0)
    own = [sizes[number % len(sizes)] for number in range(count)], [codes[number % len(codes)] for number in range(count)]
    queue.put_many(3, offset, *own)
    entries, place = b"", offset
    for size, code in zip(*own, strict=True):
        entries += ENTRY.pack(place, size, code)
        place += size
    assert (queue.min, queue.max) == (3, 3 + count)
    assert b"".join(ENTRY.pack(*queue.entry(number)) for number in range(3, 3 + count)) == entries


def test_a_pull_gets_the_next_records_and_where_to_go_on(queue: ConsumeQueue) -> None:
    found = queue.find(5, 32, 1 << 18, None)
    assert found.spans == [(number * 1000, SIZE) for number in range(5, 37)]
    assert (found.next_offset, found.examined) == (37, 32)
    assert queue.find(110, 32, 1 << 18, None).next_offset == 120
    assert queue.find(120, 32, 1 << 18, None) == (120, [], 0)
    assert queue.find(500, 32, 1 << 18, None) == (500, [], 0)


def test_bytes_are_limited_but_the_first_record_always_passes(queue: ConsumeQueue) -> None:
    assert queue.find(0, 32, 350, None) == (3, [(0, SIZE), (1000, SIZE), (2000, SIZE)], 3)
    assert queue.find(0, 32, 1, None) == (1, [(0, SIZE)], 1)


def test_a_tag_passes_over_the_others(queue: ConsumeQueue) -> None:
    found = queue.find(1, 3, 1 << 18, frozenset((10,)))
    assert found.spans == [(10_000, SIZE), (20_000, SIZE), (30_000, SIZE)]
    assert found.next_offset in (31, 40)
    nothing = queue.find(1, 3, 1 << 18, frozenset((99,)))
    assert nothing == (120, [], 119)


def test_a_pull_examines_at_most_800_entries(queues: ConsumeQueues) -> None:
    queue = queues.get("T", 0)
    put(queue, 1000)
    assert queue.find(100, 32, 1 << 18, frozenset((99,))) == (900, [], MAX_SCANNED)
    assert queue.find(0, 900, 1 << 30, frozenset((99,))).examined == 900


def test_an_entry_outside_is_the_callers_mistake(queue: ConsumeQueue) -> None:
    assert queue.entry(119) == (119_000, SIZE, 7)
    for number in (-1, 120):
        with pytest.raises(InvalidArgument, match="messages 0 to 119"):
            queue.entry(number)


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(-5, 0, 0), (0, 0, 1), (1, 2, 1), (2, 2, 3), (118, 118, 119), (119, 120, 119), (999, 120, 119)],
)
def test_by_time(queue: ConsumeQueue, timestamp: int, lower: int, upper: int) -> None:
    """Two messages share each even time."""

    def stored(offset: int) -> int:
        return offset // 2000 * 2

    assert queue.search(timestamp, LOWER, stored) == lower
    assert queue.search(timestamp, UPPER, stored) == upper


@given(st.lists(st.integers(0, 30), max_size=60).map(sorted), st.integers(-2, 32))
def test_by_time_is_what_a_slow_search_finds(times: list[int], timestamp: int) -> None:
    queue = ConsumeQueues(MemoryDisk(), "/q", 50, 50).get("T", 0)
    put(queue, len(times))

    def stored(offset: int) -> int:
        return times[offset // 1000]

    at_or_after = [number for number, time in enumerate(times) if time >= timestamp]
    at_or_before = [number for number, time in enumerate(times) if time <= timestamp]
    assert queue.search(timestamp, LOWER, stored) == (at_or_after[0] if at_or_after else len(times))
    assert queue.search(timestamp, UPPER, stored) == (at_or_before[-1] if at_or_before else 0)


def test_the_files_are_rocketmqs(queues: ConsumeQueues, disk: MemoryDisk) -> None:
    put(queues.get("T", 3), 60)
    queues.flush()
    assert disk.paths() == ["/q/consumequeue/T/3/00000000000000000000", "/q/consumequeue/T/3/00000000000000001000"]
    assert [disk.size(path) for path in disk.paths()] == [1000, 1000]
    second = bytes(disk.content(disk.paths()[1]))
    assert second == b"".join(ENTRY.pack(number * 1000, SIZE, 7) for number in range(50, 60)) + bytes(800)
    disk.crash()
    assert len(disk.paths()) == 2


def test_a_queue_that_begins_above_zero_has_blank_entries_before(queues: ConsumeQueues, disk: MemoryDisk) -> None:
    queue = queues.get("T", 0)
    queue.put_many(53, 9000, (SIZE, SIZE), (1, 2))
    assert (queue.min, queue.max) == (53, 55)
    assert queue.find(0, 32, 1 << 18, None) == (55, [(9000, SIZE), (9100, SIZE)], 2)
    queues.flush()
    content = bytes(disk.content("/q/consumequeue/T/0/00000000000000001000"))
    assert content[:60] == ENTRY.pack(0, 0x7FFFFFFF, 0) * 3
    queues.trim()
    assert queue.entry(54) == (9100, SIZE, 2)


def test_only_what_is_durable_leaves_memory(queues: ConsumeQueues, disk: MemoryDisk) -> None:
    queue = queues.get("T", 0)
    put(queue, 5000)
    assert queue.flushed == 0
    assert not disk.paths()
    queue.trim()
    assert queue.entry(0) == (0, SIZE, 7)
    queues.flush()
    put(queue, 1)
    opened = len(disk.paths())
    assert queue.entry(10) == (10_000, SIZE, 7)
    assert queue.entry(4999) == (4_999_000, SIZE, 7)
    assert len(disk.paths()) == opened == 100


def test_keeping_more_than_there_is_drops_nothing(queues: ConsumeQueues) -> None:
    queue = queues.get("T", 0)
    put(queue, 3)
    queues.flush()
    queue.trim(8)
    put(queue, 1)
    assert [queue.entry(number).offset for number in range(4)] == [0, 1000, 2000, 3000]


def test_a_full_disk_is_said_so_and_tried_again(queues: ConsumeQueues, disk: MemoryDisk) -> None:
    """D14: queues keep answering from memory while their files cannot grow."""
    queue = queues.get("T", 0)
    put(queue, 10)
    disk.short_write_bytes = 50
    with pytest.raises(StoreError, match="free space"):
        queues.flush()
    assert queue.find(0, 32, 1 << 18, None).next_offset == 10
    queues.flush()
    assert queue.flushed == 10
    assert bytes(disk.content("/q/consumequeue/T/0/00000000000000000000"))[:200] == b"".join(
        ENTRY.pack(number * 1000, SIZE, 7) for number in range(10)
    )


@pytest.mark.parametrize("topic", ["", "..", ".", "a/b", "a\\b", "a\0b", "a b", "é", "/etc", "a" * 256, "a.b", "a\n"])
def test_no_name_leaves_the_directory(queues: ConsumeQueues, disk: MemoryDisk, topic: str) -> None:
    """S9: one directory for each topic, whatever it is called; deleting it removes no other one."""
    for name in ("T", topic):
        queues.get(name, 0).put_many(0, 0, (SIZE,), (7,))
    queues.flush()
    mine, other = [path for path in disk.paths() if "/T/0/" not in path], [path for path in disk.paths() if "/T/0/" in path]
    assert [path.count("/") for path in mine] == [5]
    assert mine[0].startswith("/q/")
    assert all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in mine[0].split("/")[1:])
    queues.delete(topic)
    queues.flush()
    assert disk.paths() == other


def test_a_negative_queue_is_none(queues: ConsumeQueues) -> None:
    with pytest.raises(InvalidArgument):
        queues.get("T", -1)


def test_deleting_a_topic_takes_its_queues_and_no_others(queues: ConsumeQueues, disk: MemoryDisk) -> None:
    for topic, queue_id in (("T", 0), ("T", 1), ("TT", 0)):
        put(queues.get(topic, queue_id), 3)
    queues.flush()
    put(queues.get("T", 0), 3)
    queues.delete("T")
    queues.flush()
    assert disk.paths() == ["/q/consumequeue/TT/0/00000000000000000000"]
    assert queues.of_topic("T") == []
    assert queues.find("T", 0) is None
    assert queues.get("T", 0).max == 0


def test_deleting_a_topic_waits_for_no_file(queues: ConsumeQueues, disk: MemoryDisk) -> None:
    """One request deletes a topic: the loop waits neither for a flush under way nor for files to go. A new life of the topic
    meets nothing of the old one."""
    put(queues.get("T", 0), 120)
    queues.flush()
    put(queues.get("T", 0), 3)
    begun, go_on = threading.Event(), threading.Event()

    def slow(handle: int) -> None:
        begun.set()
        go_on.wait(10)

    disk.fdatasync = slow  # type: ignore[method-assign]
    flushing = threading.Thread(target=queues.flush)
    flushing.start()
    begun.wait(10)
    before = disk.paths()
    queues.delete("T")
    put(queues.get("T", 0), 2)
    assert disk.paths() == before
    assert not go_on.is_set()
    go_on.set()
    flushing.join()
    queues.flush()
    queues.trim()
    assert disk.paths() == ["/q/consumequeue/T/0/00000000000000000000"]
    assert queues.get("T", 0).max == 2
    assert disk.content("/q/consumequeue/T/0/00000000000000000000")[40:] == bytes(50 * 20 - 40)


def test_reading_while_another_thread_flushes(queues: ConsumeQueues) -> None:
    """Puts and trims on one side, flushes and searches on the other: both always see what was put."""
    queue = queues.get("T", 0)
    stop, failures = threading.Event(), []

    def beside() -> None:
        while not stop.is_set():
            queues.flush()
            if queue.max:
                number = queue.max // 2
                if queue.entry(number) != (number * 1000, SIZE, 7):
                    failures.append(number)

    thread = threading.Thread(target=beside)
    thread.start()
    for _ in numbers():
        put(queue, 40)
        queue.trim(8)
        assert queue.find(queue.max - 20, 20, 1 << 20, None).spans[0] == ((queue.max - 20) * 1000, SIZE)
    stop.set()
    thread.join()
    assert not failures
    queues.flush()
    queue.trim()
    assert queue.find(0, 10_000, 1 << 30, None).spans == [(number * 1000, SIZE) for number in range(queue.max)]


def numbers() -> Iterator[int]:
    yield from range(100)


class CountingDisk(MemoryDisk):
    """`opened`: how often a file was."""

    opened = 0

    def open(self, path: str) -> int:
        self.opened += 1
        return super().open(path)


def test_old_entries_are_read_from_the_file_once_for_many_reads() -> None:
    """Whoever reads a queue from its beginning opens its file every 512 entries, not at every pull; the answers are the same."""
    disk = CountingDisk()
    queue = ConsumeQueue(disk, "/cq/T/0", "T", 0, 3000)
    for number in range(7000):
        queue.put_many(number, number * 100, (100,), (number % 5,))
    queue.flush()
    queue.trim()
    disk.opened, number = 0, 0
    while number < 6990:
        assert queue.is_at_hand(number, 32)
        found = queue.find(number, 32, 1 << 20, None)
        assert found.spans == [(n * 100, 100) for n in range(number, min(number + 32, 7000))]
        number = found.next_offset
    assert disk.opened <= 7000 // 512 + 10  # a few more where a file ends


def test_readers_at_several_places_of_a_queue_do_not_read_its_file_for_each_other() -> None:
    disk = CountingDisk()
    queue = ConsumeQueue(disk, "/cq/T/0", "T", 0, 10_000)
    for number in range(7000):
        queue.put_many(number, number * 100, (100,), (0,))
    queue.flush()
    queue.trim()
    disk.opened = 0
    for step in range(0, 512, 32):
        for reader in (0, 2000, 4000, 6000):
            found = queue.find_now(reader + step, 32, 1 << 20, None)
            assert found is not None
            assert found.spans == [((reader + step + n) * 100, 100) for n in range(32)]
    assert disk.opened == 4


def test_a_topic_that_is_deleted_while_a_thread_reads_it_is_refused(queues: ConsumeQueues) -> None:
    """The thread has the queue in its hands already; its files are gone."""
    queue = queues.get("T", 0)
    put(queue, 120)
    queues.flush()
    queues.trim()
    queues.end("T")
    queues.delete("T")
    queues.flush()
    with pytest.raises(Refusal) as refused:
        queue.entry(5)
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_the_queues_of_a_topic_are_looked_up(queues: ConsumeQueues) -> None:
    """All queues of the broker were looked at, twice for a deleted topic, and for each compacted one: 30 ms of 200 000."""
    for number in range(1000):
        for queue_id in (5, 0):
            queues.get(Name(f"t{number}"), queue_id)
    Name.compared = 0
    assert [queue.queue_id for queue in queues.of_topic(Name("t7"))] == [5, 0]
    queues.end(Name("t8"))
    queues.delete(Name("t8"))
    assert queues.of_topic(Name("t8")) == []
    assert Name.compared < 100
    assert queues.restart(queues.get("t7", 5)) is queues.of_topic("t7")[0]
    queues.delete_all()
    assert queues.of_topic("t7") == []
