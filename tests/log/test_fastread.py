"""The fast way to read a stored record against its slow twin: where it decides, it decides the same."""

import random

import pytest

from rmq.log.records import record
from rmq.log.records.fastread import Whole, fast_read

HOST, HOST6 = bytes([10, 0, 0, 9, 0, 0, 15, 160]), bytes(range(20))
TOPICS = ("T", "orders", "%RETRY%" + "g" * 130)


def stored(chance: random.Random, topic: str, born_host: bytes = HOST, sys_flag: int = 0) -> bytes:
    body, properties = chance.randbytes(chance.randrange(40)), chance.choice((b"", b"TAGS\x01a\x02", b"KEYS\x01k 1\x02"))
    draft = bytearray(record.draft(topic, body, properties, sys_flag=sys_flag, born_timestamp=7, born_host=born_host))
    record.stamp(draft, [(0, [len(draft)], chance.randrange(9), chance.randrange(99))], 5000, bytes(8) + HOST)
    return bytes(draft)


def slowly(data: bytes, at: int, topic: str) -> Whole | None:
    """What is whole and exact; None otherwise."""
    try:
        found = record.decode(data, at)
        record.verify(data, at, found.physical_offset, True)
    except record.BadBytes:
        return None
    raw = data[at : at + found.total_size]
    body_at = -1 if found.sys_flag & record.SYS_COMPRESSED else raw.index(found.body, 88)
    return (raw, found.queue_offset, len(found.body), body_at) if found.topic == topic else None


def quickly(data: bytes, at: int, topic: str) -> Whole | None:
    """The record there, of any queue and offset."""
    queue_id = int.from_bytes(data[at + 12 : at + 16], "big", signed=True)
    found, stop = fast_read(topic)(data, at, queue_id, -(2**63), 2**63 - 1)
    assert stop == at + sum(len(whole[0]) for whole in found)
    return found[0] if found else None


def test_what_it_reads_is_what_the_slow_way_reads() -> None:
    chance, decided, damaged = random.Random(3), 0, 0
    for _ in range(6000):
        topic = chance.choice(TOPICS)
        before = stored(chance, topic)
        data = bytearray(before + stored(chance, topic, sys_flag=chance.choice((0, 0, record.SYS_COMPRESSED))))
        if chance.random() < 0.5:
            data[chance.randrange(len(before), len(data))] ^= 1 << chance.randrange(8)
        whole = quickly(bytes(data), len(before), topic)
        if whole is not None:
            decided += 1
            assert whole == slowly(bytes(data), len(before), topic)
        else:
            damaged += slowly(bytes(data), len(before), topic) is None
    assert decided > 1500
    assert damaged > 1500


@pytest.mark.parametrize("data", [b"", bytes(90), bytes(200)])
def test_what_is_no_record_is_not_read(data: bytes) -> None:
    assert quickly(data, 0, "T") is None


def test_the_unusual_goes_the_slow_way() -> None:
    chance = random.Random(4)
    assert quickly(stored(chance, "T", born_host=HOST6), 0, "T") is None
    assert quickly(stored(chance, "T"), 0, "U") is None
    assert quickly(stored(chance, "T")[:-1], 0, "T") is None


def test_it_reads_up_to_what_is_not_to_come_here() -> None:
    chance = random.Random(5)

    def record_of(queue_id: int, queue_offset: int) -> bytes:
        draft = bytearray(record.draft("T", chance.randbytes(9), b"", born_timestamp=7, born_host=HOST))
        record.stamp(draft, [(0, [len(draft)], queue_id, queue_offset)], 5000, bytes(8) + HOST)
        return bytes(draft)

    read = fast_read("T")
    good = record_of(3, 7) + record_of(3, 8) + record_of(3, 11)
    for last in (record_of(2, 12), record_of(3, 11), record_of(3, 20), record_of(3, 12)[:-1], b"x"):
        found, stop = read(good + last, 0, 3, 7, 20)
        assert [whole[1] for whole in found] == [7, 8, 11]
        assert stop == len(good)
    assert read(good, 0, 3, 8, 20) == ([], 0), "the first one is below"
