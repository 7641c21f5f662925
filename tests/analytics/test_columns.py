"""Columns cut out by numpy and Arrow against what the record codec says, record by record."""

import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from rmq.log.records.crc import crc32
from rmq.log.records.record import (
    CRC_MASK,
    MAGIC_V1,
    SYS_INNER_BATCH,
    Record,
    bytes_to_properties,
    encode,
    host_bytes,
    host_text,
    message_id,
)

pa = pytest.importorskip("pyarrow", reason="needs the extra `spark`")
np = pytest.importorskip("numpy", reason="needs the extra `spark`")

from analytics.records.batches import chosen  # noqa: E402 -- needs the extra
from analytics.records.bodies import apart, decompressed, plain  # noqa: E402 -- needs the extra
from analytics.records.columns import MAKERS, Columns  # noqa: E402 -- needs the extra
from analytics.stores.options import Wanted  # noqa: E402 -- needs the extra
from analytics.stores.walk import Block, joined, layout  # noqa: E402 -- needs the extra

V4, V6 = host_bytes("10.1.2.3", 65535), host_bytes("2001:db8::1", 10911)
PROPERTIES = [
    b"",
    b"TAGS\x01a\x02",
    b"KEYS\x01k1 k2\x02TAGS\x01b\x02UNIQ_KEY\x01F00\x02",
    b"a\x01b\x02",
    b"KEYS\x01 k \x02",
    b"KEYS\x01  \x02",
]
ODD = [
    b"TAGS\x01open", b"a\x01\x02TAGS\x01x\x02", b"\x01v\x02", b"a\x011\x02a\x012\x02", b"a\x01b\x01c\x02", b"a\x01\xff\xfe\x02",
    b"\x02\x02", b"nothing", b"KEYS\x01\xc3\xa4 \xe4\xb8\xad\x02", b"TAGS\x01a\x02\x02",
]  # fmt: skip


def record(chance: random.Random, properties: bytes, offset: int, *, v6: bool = False, topic: str = "T", **more: Any) -> Record:
    born, stored = (chance.choice((V4, V6)) if v6 else V4 for _ in range(2))
    body = chance.randbytes(chance.randrange(20))
    made = Record(
        0, MAGIC_V1, crc32(body) & CRC_MASK, chance.randrange(9), -5, chance.randrange(1 << 40), offset,
        (len(born) > 8) << 4 | (len(stored) > 8) << 5, chance.randrange(1 << 41), born, 1_795_000_000_000 + offset, stored,
        chance.randrange(4), 0, body, topic, properties,
    )  # fmt: skip
    return made._replace(magic=MAGIC_V1 + 4 if len(topic) > 127 else MAGIC_V1, **more)


def block_of(records: list[Record]) -> Block:
    raw = [encode(each) for each in records]
    ends = np.cumsum([len(each) for each in raw])
    at = np.concatenate(([0], ends[:-1])).astype(np.int64)
    block, good = layout(b"".join(raw), at, np.array([each.physical_offset for each in records]))
    assert good.all()
    return block


def expected(one: Record) -> dict[str, Any]:
    said = bytes_to_properties(one.properties)
    return {
        "topic": one.topic, "queue_id": one.queue_id, "queue_offset": one.queue_offset, "physical_offset": one.physical_offset,
        "born_host": host_text(one.born_host), "store_host": host_text(one.store_host), "tags": said.get("TAGS"),
        "keys": said.get("KEYS", "").split(), "properties": list(said.items()), "body": one.body, "flag": one.flag,
        "sys_flag": one.sys_flag, "reconsume_times": one.reconsume_times, "broker_name": "b", "uniq_key": said.get("UNIQ_KEY"),
        "msg_id": message_id(one.store_host, one.physical_offset), "value": one.body, "partition": one.queue_id,
        "headers": [{"key": name, "value": value.encode()} for name, value in said.items()], "timestampType": 1,
    }  # fmt: skip


@pytest.mark.parametrize("system", [False, True])
def test_topics_are_looked_at_only_where_one_may_be_the_systems(system: bool) -> None:
    """The twin of the quick look: short names, names that begin like the system's, and the last one in a block."""
    chance, wanted = random.Random(7), Wanted(system=system)
    users = ["T", "Orders", "%RETRY%g", "L" * 200, "ü", "TB", "SEL"]
    like = [*users, "rmq_", "rmq_user", "TBW10", "SELF", "OFFSET_MOVED", "BenchmarkTest2", "SCHEDULE_TOPIC"]
    own = ["rmq_sys_EPOCH", "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "SCHEDULE_TOPIC_XXXX"]
    for topics in (users, like, [*users, *own], own, ["T", "TBW102"]):
        names = [chance.choice(topics) for _ in range(60)]
        block = block_of([record(chance, b"", n * 1000, topic=name) for n, name in enumerate(names)])
        assert chosen(block, wanted).tolist() == [wanted.has_topic(name) for name in names]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("v6", [False, True])
def test_columns_say_what_the_codec_says(odd: bool, v6: bool) -> None:
    chance = random.Random(5)
    some = PROPERTIES + ODD * odd
    for count in (1, 2, 50, 200):
        topics = ["T", "Orders", "%RETRY%g", "L" * 200, "ü"]
        records = [record(chance, chance.choice(some), n * 1000, v6=v6, topic=chance.choice(topics)) for n in range(count)]
        columns = Columns(block_of(records), "b")
        for name in expected(records[0]):
            assert columns.make(name).to_pylist() == [expected(each)[name] for each in records], name
        for name, which in (("born_timestamp", "born_timestamp"), ("timestamp", "store_timestamp")):
            assert columns.make(name).cast(pa.int64()).to_pylist() == [getattr(each, which) * 1000 for each in records]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("properties", [*PROPERTIES, *ODD, b"KEYS\x01k\x02a\x01b\x02"])
def test_records_with_the_same_properties(properties: bytes, count: int) -> None:
    """Which take another path than mixed ones."""
    records = [record(random.Random(1), properties, number) for number in range(count)]
    columns = Columns(block_of(records), "b")
    for name in ("properties", "tags", "keys", "uniq_key"):
        assert columns.make(name).to_pylist() == [expected(one)[name] for one in records]


@pytest.mark.parametrize("other", [b"KEYT\x01a\x02TAGS\x01b\x02", b"TAGS\x01a\x02KEYS\x01b\x02", b"KEY\x01a\x02STAGS\x01b\x02"])
def test_one_record_with_other_names_or_another_order(other: bytes) -> None:
    alike = b"KEYS\x01a\x02TAGS\x01b\x02"
    records = [record(random.Random(1), each, number) for number, each in enumerate([alike, alike, other, alike])]
    columns = Columns(block_of(records), "b")
    for name in ("properties", "tags", "keys"):
        assert columns.make(name).to_pylist() == [expected(one)[name] for one in records]


def test_a_long_name_before_many_short_ones_takes_no_room_for_each_of_them() -> None:
    """Repeated for 3000 records it would be 90 MB."""
    said = [b"n" * 30_000 + b"\x01a\x02", *([b"k\x01b\x02"] * 2999)]
    columns = Columns(block_of([record(random.Random(1), each, number) for number, each in enumerate(said)]), "b")
    tracemalloc.start()
    try:
        found = columns.make("properties")
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
    assert found.to_pylist() == [[("n" * 30_000, "a")], *([[("k", "b")]] * 2999)]


@pytest.mark.parametrize("hosts", [[V4], [V4, host_bytes("255.2.3.4", 1)], [V4, V6], [V6]])
def test_hosts(hosts: list[bytes]) -> None:
    """One of all records, several, and those of IPv6."""
    records = []
    for number in range(4):
        host = hosts[number % len(hosts)]
        flags = (len(host) > 8) * 0x30
        records.append(record(random.Random(1), b"", number)._replace(born_host=host, store_host=host, sys_flag=flags))
    columns = Columns(block_of(records), "b")
    for name in ("born_host", "store_host", "msg_id"):
        assert columns.make(name).to_pylist() == [expected(one)[name] for one in records]


@pytest.mark.parametrize("v6", [False, True])
def test_blocks_are_joined(v6: bool) -> None:
    chance = random.Random(8)
    records = [record(chance, chance.choice(PROPERTIES), n * 1000, v6=v6 and n % 3 == 0, topic="T" * (1 + n)) for n in range(30)]
    block = joined([block_of(records[:7]), block_of(records[7:8]), block_of(records[8:])])
    for name, maker in MAKERS.items():
        assert maker(Columns(block, "b")).equals(maker(Columns(block_of(records), "b"))), name


def test_a_block_without_records_has_every_column() -> None:
    block = block_of([record(random.Random(1), b"", 0)]).only(slice(0, 0))
    assert {len(Columns(block, "b").make(name)) for name in MAKERS} == {0}


def compressed(chance: random.Random, body: bytes, offset: int) -> Record:
    stored = zlib.compress(body)
    return record(chance, b"", offset)._replace(body=stored, body_crc=crc32(stored) & CRC_MASK, sys_flag=1)


def test_bodies_are_decompressed_in_pieces_that_fit() -> None:
    chance = random.Random(3)
    small = [compressed(chance, b"%d" % n, n) for n in range(2, 9)]
    large = [compressed(chance, bytes(20 << 20), n) for n in (0, 100)]
    records = [large[0], record(chance, b"", 1), small[0], large[1], *small[1:]]
    pieces = list(plain(block_of(records)))
    assert len(pieces) == 2
    bodies = [body for _, array in pieces for body in array.to_pylist()]
    assert bodies == [zlib.decompress(one.body) if one.sys_flag else one.body for one in records]
    assert sum(len(piece) for piece, _ in pieces) == len(records)


@pytest.mark.parametrize(("codec", "pack"), [(0, zlib.compress), (0x200, lambda body: pa.compress(body, "zstd", asbytes=True))])
def test_a_body_that_does_not_inflate_or_too_far_is_null(codec: int, pack: Callable[[bytes], bytes]) -> None:
    """Anybody may send it: the job goes on."""
    good = record(random.Random(3), b"", 1)._replace(body=pack(b"good" * 9), sys_flag=1 | codec)
    for wrong in (b"no such stream", good.body[:-3], pack(bytes((64 << 20) + 1))):
        ((_, array),) = plain(block_of([good, good._replace(body=wrong)]))
        assert array.to_pylist() == [b"good" * 9, None]
    assert decompressed(pack(bytes(64 << 20)), 1 | codec) == bytes(64 << 20)


def inner(body: bytes, properties: bytes, flag: int) -> bytes:
    head = (22 + len(body) + len(properties), 0, 0, flag, len(body))
    return b"".join(n.to_bytes(4, "big") for n in head) + body + len(properties).to_bytes(2, "big") + properties


def test_an_inner_batch_is_its_messages() -> None:
    chance = random.Random(3)
    body = inner(b"one", b"TAGS\x01a\x02", 7) + inner(b"", b"", 0) + inner(b"three", b"KEYS\x01k\x02", 0)
    batch = record(chance, b"INNER_NUM\x013\x02INNER_BASE\x0140\x02", 500)._replace(body=body, sys_flag=SYS_INNER_BATCH | 0x40)
    ordinary, messages = apart(block_of([record(chance, b"", 1), batch, record(chance, b"", 2)]))
    assert len(ordinary) == 2
    assert messages is not None
    columns = Columns(messages, "b")
    for name, values in {
        "body": [b"one", b"", b"three"],
        "queue_offset": [40, 41, 42],
        "flag": [7, 0, 0],
        "tags": ["a", None, None],
        "keys": [[], [], ["k"]],
        "sys_flag": [0, 0, 0],
        "physical_offset": [500, 500, 500],
    }.items():
        assert columns.make(name).to_pylist() == values
    for wrong in (body[:-1], body[:15], b"x" * 30, b"\x7f" * 90):
        ordinary, messages = apart(block_of([batch._replace(body=wrong), batch]))
        assert (len(ordinary), messages and len(messages)) == (1, 3), "what cannot be taken apart stays one row"
