"""Records and properties: worked examples of the format, what is refused, and that no flipped bit goes unseen."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rmq.codes import ResponseCode
from rmq.errors import BadBytes, InvalidArgument, Refusal
from rmq.log.records import record
from rmq.log.records.checking import check
from rmq.log.records.fastpath import fast_check
from rmq.log.records.properties import MAX_PROPERTIES_BYTES, check_properties, check_thoroughly, fast_given, fast_properties
from rmq.log.records.record import Record
from tests.log.conftest import BORN, HOST, draft

STORED = (1_700_000_000_001).to_bytes(8, "big") + HOST
EXAMPLE = bytes.fromhex(
    "00000073daa320a73610a686000000030000000000000000000000070000000040000000000000000000018bcfe568007f0000010000c350"
    "0000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f01540012544147530154616741024b455953014b3102"
)
V6 = record.host_bytes("::1", 7)


def stamped(data: bytes, offset: int = 1 << 40, number: int = 7) -> bytes:
    run = bytearray(data)
    record.stamp(run, [(0, check(data, record.decode(data).topic).sizes, 3, number)], offset, STORED)
    return bytes(run)


def test_the_worked_example_of_the_format() -> None:
    found = record.decode(EXAMPLE)
    assert (found.topic, found.body, found.queue_id, found.queue_offset, found.physical_offset) == ("T", b"hello", 3, 7, 1 << 30)
    assert record.bytes_to_properties(found.properties) == {"TAGS": "TagA", "KEYS": "K1"}
    assert (record.host_text(found.born_host), record.host_text(found.store_host)) == ("127.0.0.1:50000", "127.0.0.1:10911")
    assert (found.born_timestamp, found.store_timestamp) == (1_700_000_000_000, 1_700_000_000_001)
    assert record.encode(found) == EXAMPLE
    assert record.message_id(found.store_host, found.physical_offset) == "7F00000100002A9F0000000040000000"
    assert record.entry_code(found) == 0x27A807
    assert record.verify(EXAMPLE, 0, 1 << 30, protected=False) == 115


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("order-1", -1207111310),
        ("中文", 646394),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(1 << 31)),
        ("", 0),
    ],
)
def test_javas_string_hash(text: str, value: int) -> None:
    assert record.java_hash(text) == value
    assert record.tags_code(text) == value
    assert record.entry_code(record.decode(draft(TAGS=text) if text else draft())) == value


def test_a_draft_becomes_a_record_whose_every_field_is_where_it_belongs() -> None:
    data = stamped(draft("orders", b"hello", TAGS="TagA"))
    found = record.decode(data)
    assert (found.queue_id, found.queue_offset, found.physical_offset) == (3, 7, 1 << 40)
    assert (found.store_timestamp, found.store_host, found.born_timestamp, found.born_host) == (
        1_700_000_000_001,
        HOST,
        1000,
        BORN,
    )
    assert found.body_crc == zlib.crc32(b"hello") & 0x7FFFFFFF == 907060870
    assert record.has_crc(found)
    assert (
        record.bytes_to_properties(found.properties)["__CRC32#"] == str(zlib.crc32(data[:-20]) & 0x7FFFFFFF).rjust(10, "0")[::-1]
    )
    assert record.store_timestamp(data, 0) == found.store_timestamp
    assert record.has_topic(data, 0, "orders")
    assert not record.has_topic(data, 0, "order")
    assert record.encode(found) == data


def test_several_records_are_numbered_and_placed_one_behind_the_other() -> None:
    burst = draft(body=b"a") + draft(body=b"bb", TAGS="x") + draft(body=b"")
    assert check(burst, "T").tags_codes == (0, record.tags_code("x"), 0)
    found = list(record.iterate(stamped(burst, 5000, 9)))
    assert [one.queue_offset for one in found] == [9, 10, 11]
    assert [one.physical_offset for one in found] == [
        5000,
        5000 + found[0].total_size,
        5000 + found[0].total_size + found[1].total_size,
    ]
    at = 0
    for one in found:
        record.verify(stamped(burst, 5000, 9), at, one.physical_offset, protected=True)
        at += one.total_size


@pytest.mark.parametrize(
    "data",
    [
        draft("T", b"body", TAGS="a", KEYS="k"),
        draft("T", b""),
        draft("%RETRY%" + "g" * 125, b"x" * 30),
        record.draft("T", b"six", b"", born_timestamp=1, born_host=V6, sys_flag=1),
    ],
    ids=["plain", "empty", "version 2", "born IPv6"],
)
def test_every_flipped_bit_is_found(data: bytes) -> None:
    """D7: exhaustively, with the checksum, in all three shapes of a record."""
    whole = bytearray(stamped(data))
    assert record.verify(whole, 0, 1 << 40, protected=True) == len(whole)
    for bit in range(len(whole) * 8):
        whole[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(BadBytes):
            record.verify(whole, 0, 1 << 40, protected=True)
        whole[bit >> 3] ^= 1 << (bit & 7)


def test_bit_flip_removes_crc_property() -> None:
    """Story 49: a record of ours without the property is damaged, not "old"."""
    plain = EXAMPLE
    with pytest.raises(BadBytes, match="missing record checksum"):
        record.verify(plain, 0, 1 << 30, protected=True)


def test_a_record_elsewhere_is_not_this_record() -> None:
    """D9: position is identity."""
    data = stamped(draft(), offset=4096)
    with pytest.raises(BadBytes, match="says it is at 4096"):
        record.verify(data, 0, 8192, protected=True)


def test_a_foreign_record_is_held_to_its_body_checksum() -> None:
    damaged = bytearray(EXAMPLE)
    damaged[88] ^= 1
    with pytest.raises(BadBytes, match="wrong body checksum"):
        record.verify(damaged, 0, 1 << 30, protected=False)


def test_stale_crc_in_foreign_range_is_no_damage() -> None:
    """Story 50: a RocketMQ broker that puts our message again keeps our property."""
    data = bytearray(stamped(draft()))
    struct.pack_into(">q", data, 20, 99)
    assert record.verify(data, 0, 1 << 40, protected=False) == len(data)


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    """S5, for the decoder, the checker and the walker."""
    for read in (lambda: list(record.iterate(data)), lambda: record.verify(data, 0, 0, True), lambda: check(data, "T")):
        with_refusal(read)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=8))
def test_any_damage_to_a_record_decodes_or_is_refused(at: int, junk: bytes) -> None:
    data = bytearray(draft(TAGS="a", KEYS="k"))
    data[at : at + len(junk)] = junk
    with_refusal(lambda: list(record.iterate(data)))
    with_refusal(lambda: check(bytes(data), "T"))


def with_refusal(read: Callable[[], object]) -> None:
    try:
        read()
    except (BadBytes, Refusal):
        return


@given(
    st.text(st.characters(codec="utf-8"), max_size=60).filter(lambda text: len(text.encode()) < 250),
    st.binary(max_size=50),
    st.dictionaries(st.text("abcé 中", min_size=1, max_size=5), st.text("xyz \U0001f600", min_size=1, max_size=5), max_size=4),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.booleans(),
)
def test_what_is_encoded_is_decoded(topic: str, body: bytes, properties: dict[str, str], flag: int, six: bool) -> None:
    raw = record.properties_to_bytes(properties)
    data = record.draft(topic, body, raw, flag=flag, born_timestamp=5, born_host=V6 if six else BORN, reconsume_times=2)
    found = record.decode(data)
    assert (found.topic, found.body, found.flag, found.reconsume_times) == (topic, body, flag, 2)
    assert found.born_host == (V6 if six else BORN)
    assert record.bytes_to_properties(found.properties) == properties | {"__CRC32#": "0000000000"}
    assert record.encode(found) == data
    assert check(data, topic).sizes == (len(data),)
    wide = record.with_store_host(found, V6)
    assert record.decode(record.encode(wide)).store_host == V6
    assert record.decode(record.encode(wide)).body == body
    plain = record.draft(topic, body, raw, flag=flag, born_timestamp=5, born_host=V6 if six else BORN)
    assert record.drafts(topic, V6 if six else BORN)(body, raw, flag, 5) == plain


# --- what a broker does not take ---------------------------------------------------------------------------------------


def changed(field: str, value: Any) -> bytes:
    """A draft with another value in one field of its head."""
    return record.encode(record.decode(draft())._replace(**{field: value}))


def with_properties(raw: bytes) -> bytes:
    one: Record = record.decode(draft())
    return record.encode(one._replace(properties=raw))


CRC = b"__CRC32#\x010000000000\x02"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "needs 91 bytes"),
        (draft()[:60], "needs 91 bytes"),
        (draft() + b"x" * 50, "needs 91 bytes"),
        (draft()[:-1], "are there|properties|size"),
        (changed("magic", 5), "magic"),
        (changed("magic", record.MAGIC_V2), "magic"),
        (changed("sys_flag", 0x8), "a client may set only"),
        (changed("sys_flag", 0xC), "a client may set only"),
        (changed("sys_flag", 0x20), "sysFlag|needs|says"),
        (changed("sys_flag", 0x80), "a client may set only"),
        (changed("prepared_transaction_offset", 5), "preparedTransactionOffset"),
        (changed("topic", "U"), "not the topic of the request"),
        (changed("topic", "Topic"), "not the topic of the request"),
        (changed("body_crc", 5), "wrong body checksum"),
        (with_properties(b""), "must end with a 20-byte"),
        (with_properties(b"KEYS\x01a\x02" * 4), "must end with one __CRC32#"),
        (with_properties(CRC + CRC), "reserved for brokers"),
        (with_properties(CRC + b"A\x01b\x02"), "must end with one"),
        (with_properties(b"A" + CRC), "must end with one"),
        (with_properties(b"A\x01B\x01C\x02D\x02" + CRC), "name, 0x01, value"),
        (with_properties(b"A\x02REAL_TOPIC\x01x\x01B\x02" + CRC), "name, 0x01, value"),
        (with_properties(b"A\x01B" + CRC), "must end with one"),
        (with_properties(b"\x01B\x02" + CRC), "has no name"),
        (with_properties(b"A\x01\xff\x02" + CRC), "not UTF-8"),
    ],
)
def test_what_does_not_fit_is_refused(data: bytes, why: str) -> None:
    """S5; wrong_client_body_crc_refused (story 51)."""
    with pytest.raises(Refusal, match=why) as refused:
        check(data, "T")
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_value_may_contain_the_mark_behind_names() -> None:
    """As RocketMQ reads it: the first one ends the name."""
    said = {"A": "b\x01c", "TAGS": "\x01t", "B": "RMQ_SRC\x01x"}
    check_properties(data := record.properties_to_bytes(said) + CRC, 0, len(data))
    assert record.bytes_to_properties(data) == {**said, "__CRC32#": "0000000000"}
    with pytest.raises(InvalidArgument, match="needs a name without"):
        record.properties_to_bytes({"A\x01B": "c"})


@pytest.mark.parametrize(
    "name",
    [
        "RMQ_SRC",
        "POP_CK",
        "TIMER_OUT_MS",
        "REAL_TOPIC",
        "REAL_QID",
        "INNER_NUM",
        "INNER_BASE",
        "INNER_MULTI_QUEUE_OFFSET",
        "TIMER_ROLL_TIMES",
    ],
)
def test_reserved_properties_are_refused(name: str) -> None:
    with pytest.raises(Refusal, match=f"{name} is reserved"):
        check(draft("T", b"", KEYS="a", **{name: "1"}), "T")
    assert record.strip_reserved(record.properties_to_bytes({"KEYS": "a", name: "1"})) == b"KEYS\x01a\x02"


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "3"},
        {"DELAY": "-1"},
        {"TIMER_DELAY_SEC": "3"},
        {"TIMER_DELAY_MS": "3"},
        {"TIMER_DELIVER_MS": "3"},
        {"TRAN_MSG": "True"},
    ],
)
def test_what_must_not_be_seen_yet_is_told_from_the_rest(properties: dict[str, str]) -> None:
    """C11, C13: such a message is never taken for a plain one, alone or in a batch."""
    data = draft("T", b"", **properties)
    assert fast_check("T")(data) is None
    assert check(data, "T").pending
    assert check(draft("T", b"") + data, "T").pending


def test_the_prepared_flag_is_told_too() -> None:
    """C11"""
    data = changed("sys_flag", 0x4)
    assert fast_check("T")(data) is None
    assert check(data, "T").pending


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "0"},
        {"TRAN_MSG": "false"},
        {"KEYS": "DELAY"},
        {"KEYS": "REAL_TOPIC"},
        {"MY_DELAY": "5"},
        {"TIMER": "1"},
        {"NAME": "ü"},
    ],
)
def test_names_that_only_look_like_them_pass(properties: dict[str, str]) -> None:
    assert not check(draft("T", b"", **properties), "T").pending


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        (b"TAGS\x01a\x02", "a"),
        (b"MYTAGS\x01a\x02", ""),
        (b"TAGS\x01a\x02TAGS\x01b\x02", "b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", "a"),
        (b"KEYS\x01TAGS\x02", ""),
        (b"X\x01TAGS\x02TAGS\x01c\x02", "c"),
    ],
)
def test_the_tag_is_the_one_rocketmq_sees(raw: bytes, tag: str) -> None:
    """The checker and the rebuild from the log agree, or queues would differ after a restart (D10)."""
    data = record.draft("T", b"", raw, born_timestamp=1, born_host=BORN)
    assert check(data, "T").tags_codes == (record.tags_code(tag),)
    assert record.entry_code(record.decode(data)) == record.tags_code(tag)
    assert check_properties(raw + CRC, 0, len(raw + CRC)) == (record.tags_code(tag), False)


PIECES = (
    CRC,
    b"TAGS\x01a\x02",
    b"TAGS\x01\x02",
    b"MYTAGS\x01a\x02",
    b"TAGS",
    b"KEYS\x01k\x02",
    b"DELAY\x01",
    b"TRAN_MSG\x01true\x02",
    b"REAL_TOPIC",
    b"__CRC32#",
    b"\x01",
    b"\x02",
    b"\x00",
    b"x",
    "ü".encode(),
    b"\xff",
)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), st.sampled_from((CRC, b"")))
def test_the_quick_check_of_properties_is_the_thorough_one(raw: bytes, end: bytes) -> None:
    """A slow twin for the clever function."""

    def verdict(look: Callable[[], tuple[int, bool]]) -> tuple[int, bool] | None:
        try:
            return look()
        except Refusal:
            return None

    around = b"TAGS\x01no\x02" + raw + end + b"TAGS\x01no\x02"
    quick = verdict(lambda: check_properties(around, 8, len(around) - 8))
    assert quick == verdict(lambda: check_thoroughly(raw + end))


@pytest.mark.parametrize("look", [fast_properties, fast_given])
@pytest.mark.parametrize("piece", [b"A\x01", b"TAGS\x01a", b"A\x01b\x02", b"K", b"_", b"\x01"])
def test_properties_that_never_match_are_given_up_soon(look: Callable[[bytes], object], piece: bytes) -> None:
    """S10: an expression that could read them in two ways would take longer than the universe has been there."""
    longest = piece * (MAX_PROPERTIES_BYTES // len(piece))
    assert look(longest + b"\x02\x00") is None


def test_properties_have_room_for_the_checksum_and_no_more() -> None:
    fits = b"K\x01" + b"v" * (32_747 - 3) + b"\x02"
    assert check(record.draft("T", b"", fits, born_timestamp=1, born_host=BORN), "T").sizes == (88 + 2 + 2 + 32_767,)
    with pytest.raises(InvalidArgument, match="at most 32747"):
        record.draft("T", b"", fits[:-1] + b"v\x02", born_timestamp=1, born_host=BORN)
    make = record.drafts("T", BORN)
    assert make(b"", fits, 0, 1) == record.draft("T", b"", fits, born_timestamp=1, born_host=BORN)
    with pytest.raises(InvalidArgument, match="at most 32747"):
        make(b"", fits[:-1] + b"v\x02", 0, 1)


def test_a_checksum_that_came_in_is_replaced() -> None:
    data = record.draft("T", b"", CRC + b"A\x01b", born_timestamp=1, born_host=BORN)
    assert record.decode(data).properties == b"A\x01b\x02" + CRC


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"": "b"}])
def test_marks_inside_properties_are_the_callers_mistake(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="0x01 and 0x02"):
        record.properties_to_bytes(properties)


def test_hosts() -> None:
    assert record.host_text(record.host_bytes("10.1.2.3", 80)) == "10.1.2.3:80"
    assert record.host_text(record.host_bytes("fe80::1", 80)) == "[fe80::1]:80"
    for ip, port in (("localhost", 1), ("1.2.3.4", -1), ("1.2.3", 1)):
        with pytest.raises(InvalidArgument, match="IPv4 or IPv6"):
            record.host_bytes(ip, port)


def test_which_records_have_no_queue_entry() -> None:
    one = record.decode(EXAMPLE)
    assert [record.has_queue_entry(one._replace(sys_flag=flag)) for flag in (0, 4, 8, 12, 0xC0)] == [
        True,
        False,
        True,
        False,
        True,
    ]
