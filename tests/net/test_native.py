"""The native codec: round trips, old and new peers, and bytes that are none of it."""

import random
import tracemalloc
from collections.abc import Iterable
from typing import Any, get_type_hints

import msgpack
import pytest
from hypothesis import given, strategies as st

from rmq.errors import BadBytes, InvalidArgument, Refusal
from rmq.model import BrokerAddresses, Route, TopicConfig
from rmq.net.codec.frames import decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native, read_answer
from rmq.net.codec.unpacking import unpack
from rmq.net.commands import (
    ANSWERS,
    REQUESTS,
    GetMaxOffset,
    GetRoute,
    Hello,
    Ping,
    Pull,
    PullAnswer,
    Send,
    SendAnswer,
    UpdateTopics,
)
from rmq.net.commands.peers import FetchLog, FetchLogAnswer
from tests.net.inplace import decode_amid
from tests.net.values import of_class

NATIVE = Native(max_structured_bytes=1 << 20)
ANSWERED = [cls for cls, answer in ANSWERS.items() if answer is not None]


def decode(frame: bytes) -> tuple[Any, int, bool, Any, int]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return decode_frame(NATIVE, frame[4:])


def framed(value: Any) -> bytes:
    body = msgpack.packb(value)
    return len(body).to_bytes(4, "big") + body


@given(st.sampled_from(list(REQUESTS.values())).flatmap(of_class), st.integers(0, 2**63 - 1), st.booleans())
def test_requests_survive(request: Any, call_id: int, oneway: bool) -> None:
    frame = NATIVE.request(request, call_id, oneway)
    assert decode(frame) == (request, call_id, oneway, None, len(frame) - 4)
    assert type(decode(frame)[0]) is type(request)


@given(st.sampled_from(ANSWERED).flatmap(lambda cls: st.tuples(st.just(cls), of_class(ANSWERS[cls]))), st.text())
def test_answers_survive(pair: tuple[type[Any], Any], remark: str) -> None:
    request_type, answer = pair
    frame, call_id, *_ = decode(NATIVE.answer(7, None, answer, remark))
    assert call_id == 7
    assert read_answer(frame, request_type) == answer
    assert type(read_answer(frame, request_type)) is type(answer)


def large(cls: type[Any]) -> Any:
    """With 3 MB in its bytes, which are more than a frame may have of structure."""
    kinds = {str: "x", int: 1, bool: True, float: 1.0, bytes: bytes(3_000_000)}
    return cls(*(kinds.get(kind, []) for kind in get_type_hints(cls).values()))


def with_bytes(classes: Iterable[type[Any]]) -> list[type[Any]]:
    return [cls for cls in classes if bytes in get_type_hints(cls).values()]


@pytest.mark.parametrize("cls", with_bytes(REQUESTS.values()))
def test_large_byte_strings_are_no_structure(cls: type[Any]) -> None:
    assert decode(NATIVE.request(large(cls), 1, False))[0] == large(cls)


@pytest.mark.parametrize("cls", [one for one in ANSWERED if ANSWERS[one] in with_bytes(filter(None, ANSWERS.values()))])
def test_large_byte_strings_of_answers_are_no_structure(cls: type[Any]) -> None:
    """A fetch brought 4 MiB, and 16 values: more than a short array holds. Each leader of a group lost it."""
    assert read_answer(decode(NATIVE.answer(1, None, large(ANSWERS[cls]), ""))[0], cls) == large(ANSWERS[cls])


@pytest.mark.parametrize("call_id", [0, 7, 2**32 - 1, 2**32, 2**62])
def test_answers_of_sends_that_were_stored(call_id: int) -> None:
    frame, read_id, *_ = decode(NATIVE.stored(3, 10)(call_id, None, 12, 2**40))
    assert (read_answer(frame, Send), read_id) == (SendAnswer(3, 12, 2**40, 10), call_id)
    frame, read_id, *_ = decode(NATIVE.stored(3, 10)(call_id, None, 12, 2**40, "handle"))
    assert (read_answer(frame, Send), read_id) == (SendAnswer(3, 12, 2**40, 10, "handle"), call_id)


def test_an_empty_answer() -> None:
    assert read_answer(decode(NATIVE.answer(7, None, None, ""))[0], Ping) is None


@given(st.integers(1, 3000), st.text(), st.text())
def test_refusals_survive(code: int, remark: str, hint: str) -> None:
    frame, *_ = decode(NATIVE.refusal(1, None, Refusal(code, remark, hint)))
    with pytest.raises(Refusal) as caught:
        read_answer(frame, GetRoute)
    assert (caught.value.code, caught.value.remark, caught.value.hint) == (code, remark, hint)


def test_a_refusal_is_never_taken_for_an_answer() -> None:
    """Code 0 would be a success."""
    frame, *_ = decode(NATIVE.refusal(1, None, Refusal(0, "what")))
    with pytest.raises(Refusal):
        read_answer(frame, Ping)


def test_a_shorter_array_takes_the_defaults() -> None:
    """An old client talks to a new broker."""
    assert decode(framed([11, 5, 0, "group", "topic", 3, 100]))[0] == Pull("group", "topic", 3, 100)


def test_a_longer_array_is_cut() -> None:
    """A new client talks to an old broker."""
    assert decode(framed([30, 5, 0, "topic", 3, "what will be", {"x": []}]))[0] == GetMaxOffset("topic", 3)
    assert read_answer(decode(framed([0, 5, 1, None, 1, 2, 3, 0, "", "", "new"]))[0], Send) == SendAnswer(1, 2, 3)


def test_missing_required_fields_are_refused_by_id() -> None:
    refusal, call_id, *_ = decode(framed([30, 5, 0, "topic"]))
    assert (refusal.code, call_id) == (29, 5)
    assert "queue_id is missing" in refusal.remark


def test_unknown_codes_are_refused_by_id() -> None:
    refusal, call_id, oneway, *_ = decode(framed([4711, 9, 2]))
    assert (refusal.code, call_id, oneway) == (3, 9, True)
    assert refusal.remark == " request type 4711 not supported"


@pytest.mark.parametrize(
    "fields",
    [
        [1, 2], ["t", "2"], ["t", True], ["t", 2.0], [b"t", 2], [None, 2], ["t", None], ["t", [2]], ["t", {"a": 2}], ["t", 2**63],
    ],
)  # fmt: skip
def test_wrong_types_are_refused_by_id(fields: list[Any]) -> None:
    """S5: values are checked against the annotations, numbers against 64 bits."""
    refusal, call_id, *_ = decode(framed([30, 5, 0, *fields]))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, call_id) == (29, 5)


@pytest.mark.parametrize(
    "fields",
    [
        [[["c", "b", {"0": 1}]], []], [[["c", "b", {"x": "h:1"}]], []], [[["c", "b", {b"0": "h:1"}]], []], [["b"], []],
        [[["c"]], []], [{}, []], [[], [["b", 1, 1, 6, "0"]]], [[["c", "b", {"1" * 30: "h"}]], []],
    ],
)  # fmt: skip
def test_wrong_types_inside_an_answer_are_bad_bytes(fields: list[Any]) -> None:
    with pytest.raises(BadBytes):
        read_answer(decode(framed([0, 5, 1, None, *fields]))[0], GetRoute)


def test_numbers_as_keys_travel_as_text() -> None:
    """Only text keys are unpacked: numbers could be chosen to collide (S7)."""
    route = Route([BrokerAddresses("c", "b", {0: "h:1", 12: "h:2"})], [])
    raw = NATIVE.answer(1, None, route, "")
    assert msgpack.unpackb(raw[4:])[4][0][2] == {"0": "h:1", "12": "h:2"}
    with pytest.raises(BadBytes, match="not msgpack"):
        decode(framed([0, 5, 1, None, [["c", "b", {0: "h:1"}]], []]))


@pytest.mark.parametrize(
    "body",
    [
        b"\x01", b"\x90", b"\x91\x01", b"\x92\x01\x02", b"\x93\x01\x02\xa1x", b"\x93\xc3\x01\x00", b"\x93\xc0\xc0\xc0", b"\xc1",
        b"\x80", b"\x93\x01\x02\x03\x04", b"\x93\x01\x02", b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff", b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x94\x01\x02\x00\xa1\xff", b"\x94\x01\x02\x00\xd4\x05\x00",
        b"\x94\x01\x02\x00\xd6\xff\x00\x00\x00\x00", b"\x91" * 3000, b"\x81\xa1a" * 3000,
        b"\x94\x01\x02\x00\xc9\xff\xff\xff\xff\x01",
    ],
)  # fmt: skip
def test_what_is_no_command_closes(body: bytes) -> None:
    """S5, S7: truncated, nested, wrong heads, extensions."""
    with pytest.raises(BadBytes):
        decode_frame(NATIVE, body)


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    """S5: a command, a refusal, an answer, or BadBytes."""
    try:
        thing, *_ = decode_frame(NATIVE, body)
    except BadBytes:
        return
    assert thing is not None


SIMPLE = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
VALUES = st.recursive(SIMPLE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(st.sampled_from(list(REQUESTS)) | st.integers(), st.lists(VALUES, max_size=12))
def test_any_fields(code: int, fields: list[Any]) -> None:
    """S5: any fields give a valid command or a refusal that can be answered."""
    if not -(2**63) <= code < 2**64:
        return
    thing, call_id, *_ = decode(framed([code, 3, 0, *fields]))
    assert call_id == 3
    if not isinstance(thing, Refusal):
        assert decode(NATIVE.request(thing, 1, False))[0] == thing


def bombs() -> list[bytes]:
    """Frames that claim, or are, far more than their bytes."""
    claims = b"\xdd\x00\x0f\xff\xff" * 1000
    nested = b"\xdc\xff\xff" * 20_000
    empty_lists = b"\xdd\x00\x10\x00\x00" + b"\x90" * (1 << 20)
    tree = b"\x9f" * 5 + b"\x90" * (1 << 21)
    maps = b"\xde\xff\xff" * 10_000
    strings = b"\x94\x01\x02\x00" + b"\xdb\x7f\xff\xff\xff"
    hidden = b"\x94\x01\x02\x00\xdd\x00\x20\x00\x00" + b"\x90" * (1 << 21)
    behind = b"\x95\xcd\x01\x36\x02\x00\xc6\x00\x00\x00\x05hello\xdd\x00\x20\x00\x00" + b"\x90" * (1 << 21)
    lying_bin = b"\x95\xcd\x01\x36\x02\x00\xc6\xff\xff\xff\xff" + b"\x90" * (1 << 21)
    return [claims, nested, empty_lists, tree, maps, strings, hidden, behind, lying_bin]


BOMBS = ["claims", "nested", "empty", "tree", "maps", "strings", "hidden", "behind", "lying"]


@pytest.mark.parametrize("bomb", bombs(), ids=BOMBS)
def test_bombs_allocate_little(bomb: bytes) -> None:
    """S7, S4: what is allocated is bounded by the limit of structured bytes, whatever is claimed."""
    tracemalloc.start()
    try:
        with pytest.raises(BadBytes):
            unpack(bomb, 256 * 1024)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * 1024 * 1024


SMALL_PARTS = {"lists": b"\x90", "maps": b"\x80", "rows": b"\x91\xa0", "numbers": b"\x01", "texts": b"\xa0"}


@pytest.mark.parametrize("part", SMALL_PARTS.values(), ids=SMALL_PARTS.keys())
@pytest.mark.parametrize("nested", [False, True])
def test_many_small_parts_are_not_read(part: bytes, nested: bool) -> None:
    """S7: a heartbeat of 2 MiB with a million groups took 3 s, in which nobody else was served."""
    count = (1 << 20) // len(part)
    parts = b"\xdd%b%b" % (count.to_bytes(4, "big"), part * count)
    if nested:
        parts = b"\xdc%b%b" % ((count // 60).to_bytes(2, "big"), (b"\xdc\0\x3c" + part * 60) * (count // 60))
    with pytest.raises(BadBytes, match="lists and maps in one frame"):
        unpack(b"\x94\x22\x01\x00" + parts, 1 << 21)


def test_a_request_that_no_node_takes_is_not_made() -> None:
    """It would end the connection, and with it what others asked there."""
    with pytest.raises(InvalidArgument, match="GetRoute: more than 2097152 bytes beside messages"):
        NATIVE.request(GetRoute("T" * (2 << 20)), 1, False)
    longest = GetRoute("T" * ((2 << 20) - 40))
    frame = NATIVE.request(longest, 1, False)
    assert Native(Limits().max_structured_bytes).decode(frame, 4, len(frame))[0] == longest
    NATIVE.request(Send("g", "t", 0, bytes(4 << 20)), 1, False)


def test_long_lists_and_large_records_are_no_bombs() -> None:
    """10 000 brokers of a nameserver, the longest list of topics that a command takes, and a batch of 4 MiB pass."""
    many = UpdateTopics([TopicConfig(f"t{number:05}") for number in range(40_000)])
    frame = NATIVE.request(many, 1, False)
    assert Native(Limits().max_structured_bytes).decode(frame, 4, len(frame))[0] == many
    route = Route([BrokerAddresses("c", f"broker-{number}", {0: "10.0.0.1:10911"}) for number in range(10_000)], [])
    assert read_answer(decode(NATIVE.answer(1, None, route, ""))[0], GetRoute) == route
    send = Send("g", "t", 0, bytes(4 << 20))
    assert decode(NATIVE.request(send, 1, False))[0] == send
    answer = PullAnswer(1, 2, 3, bytes(1 << 20))
    assert read_answer(decode(NATIVE.answer(1, None, answer, ""))[0], Pull) == answer


@pytest.mark.parametrize("size", [0, 16_384, 16_385, 65_536, 1 << 20])
def test_a_leaders_bytes_are_written_as_any_answer(size: int) -> None:
    """Twin of msgpack: large ones are copied less often."""
    answer = FetchLogAnswer(0, 7, "n1", 1 << 40, bytes(size), 5, 6, 0, 1.5, place=1, request="x")
    for call_id, remark in ((1, ""), (1 << 33, "why")):
        frame = NATIVE.answer(call_id, None, answer, remark)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert msgpack.unpackb(frame[4:]) == [0, call_id, 1, remark or None, *answer]
    assert read_answer(decode(NATIVE.answer(1, None, answer, ""))[0], FetchLog) == answer


def test_a_peer_introduces_itself_first() -> None:
    """Version 1 and later are spoken; ping needs no introduction."""
    assert NATIVE.greet(Ping(), None) is None
    greeting = NATIVE.greet(Hello(3, "me", "GO", 7), None)
    assert greeting == ("me", "GO", 7)
    for first in (GetRoute("t"), Hello(0)):
        with pytest.raises(Refusal) as caught:
            NATIVE.greet(first, None)
        assert caught.value.code == 15


def test_a_send_that_looks_like_an_earlier_one_is_read_the_same() -> None:
    """The twin of `Native._decode`: what was learnt from one send must not change what another frame means."""
    native, chance = Native(1 << 20), random.Random(7)
    sends = [Send("g" * n, "T", n % 3, bytes(chance.randbytes(chance.choice((0, 200, 300, 70_000))))) for n in range(1, 40)]
    frames = [native.request(send, 1 << n % 32, False)[4:] for n, send in enumerate(sends)]
    for frame in frames * 2:
        assert decode_frame(native, frame) == decode_frame(Native(1 << 20), frame)
    for frame in frames:
        for _ in range(200):
            end = chance.randint(0, len(frame)) if chance.random() < 0.3 else len(frame)
            damaged = bytearray(frame[:end])
            if damaged:
                damaged[chance.randrange(min(len(damaged), 60))] = chance.randrange(256)
            assert _outcome(native, bytes(damaged), frame[end:]) == _outcome(Native(1 << 20), bytes(damaged))


def _outcome(native: Native, frame: bytes, behind: bytes = b"") -> object:
    try:
        request, *rest = decode_amid(native, frame, behind)
    except BadBytes as error:
        return str(error)
    return (str(request) if isinstance(request, Refusal) else request, *rest)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 700, 65_535, 65_536])
def test_a_send_is_written_as_msgpack_writes_it(size: int) -> None:
    """The quick way to write a send against the packer."""
    send = Send("group", "topic", 3, b"r" * size)
    frame = Native(1 << 24).request(send, 77, False)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert msgpack.unpackb(frame[4:]) == [310, 77, 0, "group", "topic", 3, b"r" * size]
    assert decode_frame(Native(1 << 24), frame[4:])[0] == send


def test_the_answer_to_a_send_is_read_alike_in_both_ways() -> None:
    answer = SendAnswer(3, 2**40, 2**50, 10)
    frame = Native(1 << 20).answer(77, None, answer, "")[4:]
    quick, call_id, *_ = decode_frame(Native(1 << 20), frame)
    slow = decode_frame(Native(1 << 20), msgpack.packb((0, 77, 1, None, *answer)))[0]
    assert type(quick) is not type(slow)
    assert call_id == 77
    assert read_answer(quick, Send) == read_answer(slow, Send) == answer
    with pytest.raises(BadBytes):
        read_answer(quick, Pull)
    with pytest.raises(BadBytes):
        read_answer(slow, Pull)
