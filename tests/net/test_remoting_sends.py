"""Sends in RocketMQ's codec: what becomes a draft record, what is refused, and how they are answered."""

import random
import re

import pytest

from rmq.codes import RequestCode
from rmq.errors import BadBytes, Refusal
from rmq.log.records import fastpath
from rmq.log.records.properties import check_properties
from rmq.log.records.record import Record, iterate
from rmq.net.codec.frames import decode_frame
from rmq.net.commands import Pull, Send, SendAnswer
from rmq.net.commands.replies import SendReply
from rmq.net.remoting.codec import Remoting, RemotingSettings
from rmq.net.remoting.headers import write
from rmq.net.remoting.shapes import Usual
from tests.net import java_peer
from tests.net.inplace import decode_amid
from tests.net.remoting import codec, decode, parts


def records(request: Send) -> list[Record]:
    return list(iterate(request.records))


def properties(record: Record) -> dict[str, str]:
    return dict(entry.split("\x01") for entry in record.properties.decode().split("\x02") if entry)  # type: ignore[misc]


@pytest.mark.parametrize("binary", [False, True])
def test_a_send_becomes_a_draft(binary: bool) -> None:
    request, _, _, _, _ = decode(java_peer.send_frame(1, b"body", binary, h="7", j="2", l="5"))
    assert isinstance(request, Send)
    assert request[:3] == ("PG", "orders", 1)
    assert (request.reconsume_times, request.max_reconsume_times, request.batch) == (2, 5, False)
    (record,) = records(request)
    assert (record.topic, record.body, record.flag, record.reconsume_times) == ("orders", b"body", 7, 2)
    assert record.born_host == bytes([10, 0, 0, 9]) + (4000).to_bytes(4, "big")
    assert record.born_timestamp == 1_700_000_000_000
    assert properties(record) == {
        "UNIQ_KEY": "0A00",
        "TAGS": "red",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "__CRC32#": "0000000000",
    }


def test_long_names_are_the_same_send() -> None:
    """Code 10 [SendMessageRequestHeader]."""
    names = {
        "producerGroup": "PG", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
        "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "UNIQ_KEY\x010A00\x02TAGS\x01red\x02",
        "reconsumeTimes": "0", "unitMode": "false", "bname": "broker-a",
    }  # fmt: skip
    long, *_ = decode(write(False, int(RequestCode.SEND_MESSAGE), 0, 1, "", names, b"body"))
    short, *_ = decode(java_peer.send_frame(1, b"body"))
    assert long == short
    reply, _, _, context, _ = decode(write(False, int(RequestCode.SEND_REPLY_MESSAGE), 0, 1, "", names, b"body"))
    short_reply, *_ = decode(java_peer.send_frame(1, b"body", code=int(RequestCode.SEND_REPLY_MESSAGE_V2)))
    assert reply == short_reply == SendReply(*short[:4])
    header, _ = parts(codec().answer(1, context, SendAnswer(1, 2, 3), ""))
    assert "transactionId" not in header.ext


def test_a_peer_with_an_ipv6_address_is_born_there() -> None:
    request, *_ = decode(java_peer.send_frame(1, b"body", f="48"), ip="fe80::1%eth0")
    (record,) = records(request)
    assert len(record.born_host) == 20
    assert record.sys_flag == 0x10


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("TAGS\x01a\x02POP_CK\x011 2 3\x02UNIQ_KEY\x01K\x02", {"TAGS": "a", "UNIQ_KEY": "K"}),
        (
            "REAL_TOPIC\x01a\x02RMQ_SRC\x01due 1 2\x02TIMER_OUT_MS\x015\x02UNIQ_KEY\x01K\x02RETRY_TOPIC\x01b\x02",
            {"UNIQ_KEY": "K", "RETRY_TOPIC": "b"},
        ),
        ("__CRC32#\x01123\x02UNIQ_KEY\x01K\x02CLUSTER\x01other\x02", {"UNIQ_KEY": "K"}),
        ("UNIQ_KEY\x01K\x02MSG_REGION\x01mars\x02TRACE_ON\x01false", {"UNIQ_KEY": "K"}),
        ("XUNIQ_KEY\x01no\x02UNIQ_KEY\x01K", {"XUNIQ_KEY": "no", "UNIQ_KEY": "K"}),
        ("a\x01CLUSTER\x02UNIQ_KEY\x01K", {"a": "CLUSTER", "UNIQ_KEY": "K"}),
    ],
)
def test_reserved_properties_are_ours(given: str, kept: dict[str, str]) -> None:
    request, _, _, context, _ = decode(java_peer.send_frame(1, b"body", i=given))
    ours = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster", "__CRC32#": "0000000000"}
    assert properties(records(request)[0]) == kept | ours
    header, _ = parts(codec().answer(1, context, SendAnswer(0, 1, 2), ""))
    assert header.ext["transactionId"] == "K"


def test_a_message_without_unique_key_gets_one() -> None:
    """4.9.7's broker made none; 5.5.0's does. Two messages of one millisecond get two."""
    keys = set()
    for _ in range(2):
        request, _, _, context, _ = decode(java_peer.send_frame(1, b"body", i="TAGS\x01a\x02"))
        key = properties(records(request)[0])["UNIQ_KEY"]
        assert len(key) == 32
        assert parts(codec().answer(1, context, SendAnswer(0, 1, 2), ""))[0].ext["transactionId"] == key
        keys.add(key)
    assert len(keys) == 2


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("key", ["0A0000014A1C", 'odd "key" \\', "ключ"])
def test_send_answers(binary: bool, key: str) -> None:
    """msgId is the store host and the place; the hand-written form and the usual one say the same."""
    _, call_id, _, context, _ = decode(java_peer.send_frame(77, b"body", binary, i=f"UNIQ_KEY\x01{key}\x02"))
    one, stored = codec(), codec().stored(3, 10)
    told = {"recallHandle": "djE_-0="}
    for answer, recalled in (
        (one.answer(call_id, context, SendAnswer(3, 12, 0x1234, 10), ""), {}),
        (stored(77, context, 12, 0x1234), {}),
        (one.answer(call_id, context, SendAnswer(3, 12, 0x1234, 10, "djE_-0="), ""), told),
        (stored(77, context, 12, 0x1234, "djE_-0="), told),
    ):
        header, body = parts(answer)
        assert (header.code, header.opaque, header.flag, header.version, header.binary, body) == (10, 77, 1, 513, binary, b"")
        assert header.ext == {
            "queueId": "3",
            "queueOffset": "12",
            "msgId": "0A00000100002A9F0000000000001234",
            "transactionId": key,
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            **recalled,
        }


@pytest.mark.parametrize("binary", [False, True])
def test_a_broker_that_wants_no_traces_says_so_in_records_and_answers(binary: bool) -> None:
    """traceOn=false: by the answer Java's producers write no trace, by the record its consumers."""
    one = RemotingSettings(fastpath, traced=False).codec(("10.0.0.9", 1))
    request, call_id, _, context, _ = decode_frame(one, java_peer.send_frame(1, b"x", binary, i="TRACE_ON\x01true\x02")[4:])
    assert properties(records(request)[0])["TRACE_ON"] == "false"
    header, _ = parts(one.answer(call_id, context, SendAnswer(0, 0, 1), ""))
    assert (header.ext["TRACE_ON"], header.ext["MSG_REGION"]) == ("false", "DefaultRegion")


def test_batches() -> None:
    """320, or 310 with m=true: one record each, properties untouched, ids of all in the answer."""
    messages = [(0, b"one", b"UNIQ_KEY\x01A\x02"), (5, b"two", b""), (0, b"three", b"TAGS\x01x\x02")]
    for code, m in ((320, ""), (310, "true")):
        request, call_id, _, context, _ = decode(
            java_peer.send_frame(1, java_peer.batch_body(messages), code=code, m=m, i="UNIQ_KEY\x01BATCH\x02")
        )
        assert request.batch
        stored = records(request)
        assert [(one.flag, one.body, one.properties[:-20]) for one in stored] == messages
        header, _ = parts(codec().stored(0, 0)(call_id, context, 4, 1000))
        places = [1000, 1000 + stored[0].total_size, 1000 + stored[0].total_size + stored[1].total_size]
        assert header.ext["msgId"].split(",") == [f"0A00000100002A9F{place:016X}" for place in places]
        assert header.ext["transactionId"] == "BATCH"


@pytest.mark.parametrize(
    ("brought", "kept"),
    [
        (b"DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02RMQ_SRC\x01due 1 2\x02", b""),
        (
            b"TIMER_DELAY_SEC\x011\x02TIMER_OUT_MS\x011\x02TIMER_ENQUEUE_MS\x011\x02TIMER_DEQUEUE_MS\x011\x02TIMER_ROLL_TIMES\x011\x02",
            b"",
        ),
        (b"TRAN_MSG\x01true\x02PGROUP\x01p\x02__transactionId__\x01A\x02", b"PGROUP\x01p\x02__transactionId__\x01A\x02"),
        (b"POP_CK\x010 1 2 3 0 b 0 0\x021ST_POP_TIME\x011\x02", b"1ST_POP_TIME\x011\x02"),
    ],
    ids=["delayed", "timed", "committed", "popped"],
)
def test_what_a_consumer_sends_on_in_a_batch_is_stored_without_what_its_broker_wrote(brought: bytes, kept: bytes) -> None:
    key = b"UNIQ_KEY\x01A\x02"
    request, *_ = decode(java_peer.send_frame(1, java_peer.batch_body([(0, b"x", key + brought), (0, b"y", key)]), code=320))
    assert [one.properties[:-20] for one in records(request)] == [key + kept, key]
    for one in records(request):
        assert check_properties(one.properties, 0, len(one.properties)) == (0, False)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x" * 21, java_peer.batch_body([(0, b"", b"")]), java_peer.batch_body([(0, b"a", b"")])[:-1],
        java_peer.batch_body([(0, b"a", b"")]) + b"x", b"\x00\x00\x00\x17" + bytes(12) + b"\x7f\xff\xff\xff" + b"abc",
        b"\x00\x00\x00\x18" + bytes(12) + b"\x00\x00\x00\x01a\xff\xff", java_peer.batch_body([(0, b"a", b"")] * 20_001),
    ],
    ids=["empty", "short", "empty body", "cut", "rest", "long body", "negative properties", "too many"],
)  # fmt: skip
def test_bad_batches_are_refused(body: bytes) -> None:
    """S4, S5"""
    refusal, *_ = decode(java_peer.send_frame(1, body, code=320, m="true"))
    assert isinstance(refusal, Refusal)
    assert refusal.code == 13


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"b": "t" * 300}, 29, "255"), ({"g": ""}, 1, "g (bornTimestamp) is missing"), ({"a": ""}, 1, "a (producerGroup)"),
        ({"e": "x"}, 1, "cannot be read"), ({"h": str(2**31)}, 1, "too large"), ({"g": str(2**63)}, 1, "too large"),
        ({"d": "9" * 30}, 1, "32 bits"), ({"i": "k\x01" + "v" * 40_000 + "\x02UNIQ_KEY\x01a\x02"}, 13, "properties"),
        ({"j": str(2**31)}, 1, "too large"), ({"l": "many"}, 1, "cannot be read"), ({"f": "1.5"}, 1, "cannot be read"),
    ],
)  # fmt: skip
def test_bad_sends_are_answered(change: dict[str, str], code: int, says: str) -> None:
    """S5; refusals of sends carry the fields clients read without looking [MQClientAPIImpl]."""
    refusal, call_id, _, context, _ = decode(java_peer.send_frame(1, b"body", **change))
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert says in refusal.remark
    header, _ = parts(codec().refusal(call_id, context, refusal))
    assert header.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_an_empty_body_is_refused() -> None:
    refusal, *_ = decode(java_peer.send_frame(1, b""))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.remark) == (13, "the message body is empty")


def test_a_nameserver_takes_no_sends() -> None:
    refusal, *_ = decode_frame(RemotingSettings().codec(("10.0.0.9", 1)), java_peer.send_frame(1, b"body")[4:])
    assert isinstance(refusal, Refusal)
    assert refusal.code == 3


def test_lite_pull_is_a_pull() -> None:
    """361 [LITE_PULL_MESSAGE]"""
    pull = Pull("g", "t", 0, 5)
    frame = java_peer.request_frame(pull, 1, False)
    assert decode(frame.replace(b'"code":11', b'"code":361').replace(frame[:8], _longer(frame[:8])))[0] == pull


def _longer(head: bytes) -> bytes:
    """Frame and header one byte longer."""
    return b"".join((int.from_bytes(part, "big") + 1).to_bytes(4, "big") for part in (head[:4], head[4:]))


@pytest.mark.parametrize("binary", [False, True])
def test_a_send_that_looks_like_an_earlier_one_is_read_the_same(binary: bool) -> None:
    """The twin of the long way: whatever a known shape decides, parsing the header decides too."""
    chance = random.Random(3)
    settings = RemotingSettings(fastpath, "DefaultCluster", store_host=("10.0.0.1", 10911))
    assert settings.sends is not None
    known = settings.codec(("10.0.0.9", 4000))
    frames = [
        java_peer.send_frame(n, b"body %d" % n, binary, b=f"T{n % 3}", e=str(n % 4), g=str(1_700_000_000_000 + n), i=text)
        for n in range(1, 200, 7)
        for text in (
            "UNIQ_KEY\x010A\x02TAGS\x01red\x02",
            "KEYS\x01a\\b\x02",
            "",
            "UNIQ_KEY\x010B\x02KEYS\x01\u00e4\x02",
            "POP_CK\x01x",
            "UNIQ_KEY\x010A\x02k\x01" + "v" * n + "\x02",
        )
    ]
    for frame in frames * 2:
        assert _read(known, frame[4:]) == _read(codec(), frame[4:])
    known_shapes = [memory.shapes.known for memory in (settings.sends.json_shapes, settings.sends.binary_shapes)]
    assert sorted(map(len, known_shapes)) == [0, 12], "one for each topic and queue"
    for _ in range(8000):
        frame = chance.choice(frames)
        end = chance.randrange(5, len(frame)) if chance.random() < 0.3 else len(frame)
        damaged = bytearray(frame[4:end])
        damaged[chance.randrange(len(damaged))] = chance.choice(b'"\\,:{}019aegi\x00\x01\xff')
        if not re.search(rb'"opaque":0[0-9]', damaged):  # which is no JSON, and read all the same
            behind = frame[end:] or chance.choice(frames)
            assert _read(known, bytes(damaged), behind) == _read(codec(), bytes(damaged)), bytes(damaged)


@pytest.mark.parametrize("piece", [b"A\\u0001", b"TAGS\\u0001a", b"A\\u0001b\\u0002", b"K", b"\\u0002"])
def test_properties_in_json_that_never_end_are_given_up_soon(piece: bytes) -> None:
    """S10: an expression that could read them in two ways would take longer than the universe has been there."""
    look = Usual(fastpath.given_pairs, fastpath.fast_given).in_json
    longest = piece * (60_000 // len(piece))
    assert look(longest + b"\x00") is None
    assert look(longest + b'"') is not None


def _read(one: Remoting, frame: bytes, behind: bytes | None = None) -> object:
    """What a frame says, alone or with those bytes `behind`, without an id that we gave to the message."""
    try:
        request, call_id, oneway, _, size = decode_frame(one, frame) if behind is None else decode_amid(one, frame, behind)
    except BadBytes:
        return None
    if isinstance(request, Refusal):
        return request.code, call_id
    fields = [re.sub(rb"0A0000012A9F[0-9A-F]{20}", b"", one) if isinstance(one, bytes) else one for one in request[:9]]
    return fields, call_id, oneway, size


@pytest.mark.parametrize("last", ["x", "y", "UNIQ_KEY\\u000177\\u0002"])
def test_properties_or_an_id_that_come_twice_are_not_learnt(last: str) -> None:
    """The last of two counts, whatever it is."""

    def frame(properties: str, opaque: int, last_opaque: int) -> bytes:
        header = (
            '{"code":310,"extFields":{"a":"PG","b":"orders","c":"TBW102","d":"4","e":"1","f":"0","g":"1700000000000","h":"0",'
            f'"i":"{properties}","j":"0","i":"{last}"}},"flag":0,"language":"JAVA","opaque":{opaque},"opaque":{last_opaque},"version":513}}'
        ).encode()
        return len(header).to_bytes(4, "big") + header + b"body"

    settings = RemotingSettings(fastpath)
    for last_opaque in (8, 9):
        learnt = settings.codec(("10.0.0.9", 4000))
        for properties, opaque in (("UNIQ_KEY\\u000111\\u0002", 5), ("UNIQ_KEY\\u000122\\u0002", 6)):
            data = frame(properties, opaque, last_opaque)
            found, plain = (decode_frame(one, data) for one in (learnt, RemotingSettings(fastpath).codec(("10.0.0.9", 4000))))
            assert found[1] == plain[1] == last_opaque
            assert found[0][:3] == plain[0][:3]  # type: ignore[index]
            assert properties_sent(found[0]) == properties_sent(plain[0])


def properties_sent(request: object) -> list[list[bytes]]:
    """Without an id that the broker gave, which is long."""
    assert isinstance(request, Send)
    return [[entry for entry in record.properties.split(b"\x02") if len(entry) < 20] for record in records(request)]
