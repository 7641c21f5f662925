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
    return Whole(raw, found.queue_id, found.queue_offset, len(found.body), body_at) if found.topic == topic else None


def test_what_it_reads_is_what_the_slow_way_reads() -> None:
    chance, decided, damaged = random.Random(3), 0, 0
    for _ in range(6000):
        topic = chance.choice(TOPICS)
        before = stored(chance, topic)
        data = bytearray(before + stored(chance, topic, sys_flag=chance.choice((0, 0, record.SYS_COMPRESSED))))
        if chance.random() < 0.5:
            data[chance.randrange(len(before), len(data))] ^= 1 << chance.randrange(8)
        whole = fast_read(topic)(bytes(data), len(before))
        if whole is not None:
            decided += 1
            assert whole == slowly(bytes(data), len(before), topic)
        else:
            damaged += slowly(bytes(data), len(before), topic) is None
    assert decided > 1500
    assert damaged > 1500


@pytest.mark.parametrize("data", [b"", bytes(90), bytes(200)])
def test_what_is_no_record_is_not_read(data: bytes) -> None:
    assert fast_read("T")(data, 0) is None


def test_the_unusual_goes_the_slow_way() -> None:
    chance = random.Random(4)
    assert fast_read("T")(stored(chance, "T", born_host=HOST6), 0) is None
    assert fast_read("U")(stored(chance, "T"), 0) is None
    assert fast_read("T")(stored(chance, "T")[:-1], 0) is None
