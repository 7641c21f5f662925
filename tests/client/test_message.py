"""Messages, ids and their limits."""

import sys
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import lz4.frame
import pytest

from rmq.client import Message, MessageQueue, ReceivedMessage
from rmq.client.admin import pending
from rmq.client.producer.producer import Encoded, cut
from rmq.client.shared.ids import UniqueIds, month_around
from rmq.client.shared.message import RESERVED_PROPERTIES, check_body, message_properties
from rmq.errors import BadBytes, InvalidArgument
from rmq.log.records import record
from rmq.testing import TestClock
from tests import golden

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HOST = record.host_bytes("10.1.2.3", 0)


def received(message: Message, *, sys_flag: int = 0, body: bytes | None = None) -> ReceivedMessage:
    properties = message_properties(message, "ID1")
    draft = record.draft(
        message.topic, body or message.body, properties, flag=message.flag, sys_flag=sys_flag, born_timestamp=5, born_host=HOST
    )
    return ReceivedMessage(record.decode(draft), MessageQueue(message.topic, "a", 0))


def test_a_time_that_is_no_number() -> None:
    """Whoever wrote a store of RocketMQ's may have put anything there: the page of what waits was a bug's."""
    message = received(Message("T", b"x"))
    message.properties["TIMER_OUT_MS"] = "9" * 5000
    assert pending.due_ms(message) == message.store_timestamp


def test_a_message_comes_back_as_it_was_sent() -> None:
    message = received(Message("T", b"body", tags="A", keys=["k1", "k2"], properties={"colour": "rot ü"}, flag=7))
    assert (message.topic, message.body, message.tags, message.keys, message.flag) == ("T", b"body", "A", ["k1", "k2"], 7)
    assert message.message_id == "ID1"
    assert message.properties == {"UNIQ_KEY": "ID1", "TAGS": "A", "KEYS": "k1 k2", "colour": "rot ü"}
    assert message.own_properties == {"colour": "rot ü"}, "what may be sent on"
    assert message.born_timestamp == 5


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_names_of_the_system_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="system's own"):
        message_properties(Message("T", b"x", properties={name: "v"}), "ID1")


@pytest.mark.parametrize(
    ("message", "stored"),
    [
        (Message("T", b"x", delay_level=3), {"DELAY": "3"}),
        (Message("T", b"x", delay_level=19), {"DELAY": "19"}),  # which levels there are is the broker's to say
        (Message("T", b"x", delay_s=1.2345), {"TIMER_DELAY_MS": "1235"}),
        (Message("T", b"x", deliver_at_ms=1_795_231_401_000), {"TIMER_DELIVER_MS": "1795231401000"}),
        (Message("T", b"x", deliver_at_ms=1_795_231_401_000.5), {"TIMER_DELIVER_MS": "1795231401001"}),  # time.time() * 1000
    ],
)
def test_a_message_for_later(message: Message, stored: dict[str, str]) -> None:
    assert record.bytes_to_properties(message_properties(message, "ID1")) == {"UNIQ_KEY": "ID1", **stored}
    assert message.waits


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay_level=2**31),
        Message("T", b"x", delay_level=-1),
        Message("T", b"x", delay_s=-1),
        Message("T", b"x", delay_s=float("inf")),
        Message("T", b"x", delay_s=float("nan")),
        Message("T", b"x", deliver_at_ms=-1),
        Message("T", b"x", deliver_at_ms=float("nan")),
        Message("T", b"x", delay_level=1, delay_s=1),
        Message("T", b"x", properties={"a\x01": "b"}),
        Message("T", b"x", properties={"a": "b\x02"}),
        Message("T", b"x", properties={"": "b"}),
        Message("T", b"x", properties={"a": ""}),
        Message("T", b"x", properties={"a": 5}),  # type: ignore[dict-item]
        Message("T", b"x", tags="A || B"),
        Message("T", b"x", tags=" A"),
        Message("T", b"x", tags="A\x02"),
        Message("T", b"x", keys="order-1"),
        Message("T", b"x", keys=["two words"]),
        Message("T", b"x", keys=[""]),
        Message("T", b"x", message_id="two words"),
        Message("T", b"x", message_id="A\x01"),
    ],
)
def test_what_cannot_be_stored_is_refused(message: Message) -> None:
    with pytest.raises(InvalidArgument):
        message_properties(message, message.message_id or "ID1")


@pytest.mark.parametrize(("body", "about"), [(b"", "empty"), ("text", "bytes"), (bytes(11), "at most 10"), (None, "bytes")])
def test_bodies_outside_the_limits_are_refused(body: object, about: str) -> None:
    with pytest.raises(InvalidArgument, match=about):
        check_body(body, 10)


COMPRESS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (0x001, zlib.compress),
    (0x301, zlib.compress),
    (0x101, lz4.frame.compress),
    (0x201, zstd.compress),
]
LIMIT = 4 * 1024 * 1024


@pytest.mark.parametrize(("kind", "compress"), COMPRESS)
def test_a_compressed_body_is_inflated_up_to_the_limit(kind: int, compress: Callable[[bytes], bytes]) -> None:
    """S8: what claims to be 64 MiB is not inflated beyond it."""
    for body in (b"long " * 1000, bytes(LIMIT)):
        assert received(Message("T", b"-"), sys_flag=kind, body=compress(body)).body == body
    tracemalloc.start()
    for size in (LIMIT + 1, 64 * 1024 * 1024):
        bomb = compress(bytes(size))
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with pytest.raises(BadBytes, match="more than 4194304"):
            received(Message("T", b"-"), sys_flag=kind, body=bomb).body  # noqa: B018
        assert tracemalloc.get_traced_memory()[1] - before < 24 * 1024 * 1024
    tracemalloc.stop()


@pytest.mark.parametrize("kind", [0x001, 0x101, 0x201, 0x301, 0x401])
def test_a_body_that_does_not_inflate_says_so(kind: int) -> None:
    compress = dict(COMPRESS).get(kind, zlib.compress)
    for body in (b"junk", compress(b"a" * 100)[:-6], compress(b"a" * 1000)[:8]):
        with pytest.raises(BadBytes):
            received(Message("T", b"-"), sys_flag=kind, body=body).body  # noqa: B018


def test_bodies_that_rocketmqs_clients_compressed_are_inflated(tmp_path: Path) -> None:
    """Set s13: a Java client of 5.5.0 with each of its three ways."""
    kinds = set()
    sent = {(one["result"]["queueId"], one["result"]["queueOffset"]): one for one in golden.told("s13-compress")["sent"]}
    for stored in golden.all_records(golden.unpack("s13-compress", tmp_path)):
        if stored.sys_flag & 1:
            message = ReceivedMessage(stored, MessageQueue(stored.topic, "a", 0))
            assert _follows(message.body, sent[stored.queue_id, stored.queue_offset]["body"]["rule"])
            kinds.add(stored.sys_flag & 0x700)
    assert kinds == {0x100, 0x200, 0x300}


def _follows(body: bytes, rule: str) -> bool:
    """`rep:words:size`: these words again and again. Others have a size only."""
    kind, words, size = rule.split(":")
    return len(body) == int(size) and (kind != "rep" or body == (words.encode() * int(size))[: int(size)])


def test_ids_are_unique_and_in_rocketmqs_form() -> None:
    begin = datetime(2026, 11, 1)
    clock = TestClock(running=False, wall_ms=int(begin.timestamp() * 1000) + 258)
    ids = UniqueIds(clock, HOST[:-4], 0x12345, 0xAABBCCDD)
    assert ids.next() == "0A010203" + "2345" + "AABBCCDD" + "00000102" + "0001"
    assert len({ids.next() for _ in range(10_000)}) == 10_000
    assert len(UniqueIds(clock, bytes(16), 1, 1).next()) == 56


async def test_ids_start_again_with_the_month() -> None:
    end = int(datetime(2027, 1, 1).timestamp() * 1000)
    clock = TestClock(running=False, wall_ms=end - 1)
    ids = UniqueIds(clock, HOST[:-4], 1, 1)
    ids.next()
    await clock.advance(0.002)
    assert ids.next()[20:28] == "00000001"
    assert month_around(end) == (end, int(datetime(2027, 2, 1).timestamp() * 1000))


def encoded(number: int, topic: str, size: int) -> Encoded:
    return Encoded(number, Message(topic, b"x"), str(number), bytes(size))


def test_batches_are_cut_by_size_and_topic_in_order() -> None:
    batch = [encoded(0, "A", 40), encoded(1, "B", 40), encoded(2, "A", 60), encoded(3, "A", 1), encoded(4, "B", 200)]
    assert [[each.number for each in piece] for piece in cut(batch, 100)] == [[0, 2], [1], [3], [4]]
    assert cut([]) == []
