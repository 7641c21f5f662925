"""Requests that look like earlier ones are read without parsing, alone or together, and mean the same."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rmq.errors import BadBytes, Refusal
from rmq.net.codec.frames import Received, decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native
from rmq.net.codec.remembered import Memory
from rmq.net.codec.wire import Reader
from rmq.net.commands import Pull
from rmq.net.commands.pop import Ack
from rmq.net.commands.transactions import EndTransaction
from rmq.net.remoting.codec import Remoting, RemotingSettings
from rmq.net.remoting.headers import read
from rmq.net.remoting.known import MAX_LENGTHS, VALUES, KnownRequests
from tests.net.test_wire import heard

PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": "3", "queueOffset": "128", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip
ACK = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "2",
    "extraInfo": "7 1732617600123 60000 3 0 broker-a 2 7",
    "offset": "7",
    "bname": "broker-a",
}
END = {
    "producerGroup": "p", "tranStateTableOffset": "5", "commitLogOffset": "7000", "commitOrRollback": "8",
    "fromTransactionCheck": "false", "msgId": "7F00000100002A9F0000000000001B58", "transactionId": "7F0000010BAD", "topic": "T",
}  # fmt: skip
KINDS: dict[type[Any], tuple[int, dict[str, str]]] = {Pull: (11, PULL), Ack: (200051, ACK), EndTransaction: (37, END)}
EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
NUMBERS = ("queueOffset", "commitOffset", "queueId", "offset", "tranStateTableOffset", "commitLogOffset")
TEXTS = ("extraInfo", "msgId", "transactionId")


def frame(
    code: int, fields: dict[str, str], opaque: object = 7, flag: int = 0, order: random.Random | None = None, **more: Any
) -> bytes:
    """Without its length."""
    names = list(fields)
    header = {"code": code, "extFields": {}, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 513, **more}
    keys = list(header)
    if order is not None:
        order.shuffle(names)
        order.shuffle(keys)
    header["extFields"] = {name: fields[name] for name in names}
    text = json.dumps({key: header[key] for key in keys}, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "big") + text


def whole(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def codec(keeps_frames: bool = False) -> Remoting:
    return RemotingSettings(keeps_frames=keeps_frames).codec(("127.0.0.1", 1))


class EachParsed:
    """A codec that knows no shape."""

    def __init__(self, keeps_frames: bool = False) -> None:
        self._keeps_frames = keeps_frames

    def decode(self, data: bytes, begin: int, stop: int) -> Received:
        return codec(self._keeps_frames).decode(data, begin, stop)

    def alike(self, data: bytes, at: int, length: int) -> list[Received]:
        return []


def said(thing: Any) -> object:
    """What to compare of a command, or of its context."""
    if thing is None or isinstance(thing, Refusal):
        return str(thing)
    return thing if isinstance(thing, tuple) else (thing.header._replace(opaque=0), thing.quoted, thing.frame)


def meant(received: Received) -> tuple[object, ...]:
    thing, call_id, oneway, context, size = received
    return said(thing), call_id, oneway, said(context), size


def seen(one: Remoting, data: bytes) -> object:
    try:
        return meant(decode_frame(one, data))
    except BadBytes as error:
        return str(error)


def changed(fields: dict[str, str], chance: random.Random) -> dict[str, str]:
    """Other values, usual and odd ones, in those fields that change from request to request."""
    numbers = (0, 5, 10**17, 10**18, 10**19, -1, "007", chance.randrange(10**6))
    texts = ("", "x", "a b c 7", 'a"b', "a\\b", "\u00e4", "\x7f", '","offset":"9', str(chance.randrange(10**6)))
    made = {name: str(chance.choice(numbers)) for name in NUMBERS} | {name: chance.choice(texts) for name in TEXTS}
    return fields | {name: made[name] for name in made if name in fields and chance.random() < 0.7}


@EACH
@pytest.mark.parametrize("seed", range(30))
def test_they_mean_what_they_mean_to_one_who_never_saw_such(kind: type[Any], seed: int) -> None:
    """Whatever the order of the fields, which is another one for each client."""
    chance = random.Random(seed)
    code, fields = KINDS[kind]
    fields = fields | chance.choice(({}, {"liteTopic": "lite"}, {"topic": 'a"queueOffset":"5" || "offset":"5","opaque":5,'}))
    learnt, order = codec(), chance.randrange(1000)
    for _ in range(20):
        opaque = chance.choice((1, -1, 0, 10**8, 2**31 - 1))
        data = frame(code, changed(fields, chance), opaque, chance.choice((0, 2)), random.Random(order))
        assert seen(learnt, data) == seen(codec(), data)


@EACH
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), max_size=2), st.integers(0, 10**6), st.integers(0, 10**6))
def test_one_that_is_as_long_as_a_known_one_means_what_it_says(
    kind: type[Any], flips: list[tuple[int, int]], number: int, opaque: int
) -> None:
    """Bits are flipped, and lengths are wrong."""
    learnt, (code, fields) = codec(), KINDS[kind]
    name = next(name for name in NUMBERS if name in fields)
    for value in (7, 77, 7_777):
        for more in ({}, {"topic": "TT"}, {"topic": ""}):
            decode_frame(learnt, frame(code, fields | more | {name: str(value)}, value))
    data = bytearray(frame(code, fields | {name: str(number)}, opaque))
    for at, bit in flips:
        if at < len(data):
            data[at] ^= 1 << bit
    assert seen(learnt, bytes(data)) == seen(codec(), bytes(data))


@given(
    st.lists(st.tuples(st.sampled_from(list(KINDS)), st.integers(1, 5), st.integers(0, 2**32)), max_size=6),
    st.lists(st.integers(0, 9000), max_size=4),
    st.tuples(st.integers(0, 30), st.integers(0, 400), st.integers(0, 7)),
    st.booleans(),
)
def test_they_are_read_together_as_they_are_one_by_one(
    runs: list[tuple[type[Any], int, int]], cuts: list[int], flipped: tuple[int, int, int], keeps_frames: bool
) -> None:
    """Also with a bit flipped in one, wherever, and where the frames are kept."""
    learnt = codec(keeps_frames)
    for code, fields in KINDS.values():
        decode_frame(learnt, frame(code, fields))
    frames = []
    for kind, count, seed in runs:
        chance, (code, fields) = random.Random(seed), KINDS[kind]
        fields = fields if seed % 2 else changed(fields, chance)
        frames += [bytearray(whole(frame(code, fields, chance.randrange(1, 10), 2 * (seed % 7 == 0)))) for _ in range(count)]
    number, at, bit = flipped
    if number < len(frames) and at < len(frames[number]):
        frames[number][at] ^= 1 << bit
    stream = b"".join(frames)
    readers = [Reader(Limits(), Native(1 << 20), lambda one=one: one) for one in (learnt, EachParsed(keeps_frames))]  # type: ignore[misc]
    found = [heard(reader, stream, cuts, said) for reader in readers]
    assert found[0] == found[1]


@EACH
def test_those_of_one_length_are_cut_by_one_call(kind: type[Any]) -> None:
    code, fields = KINDS[kind]
    learnt, first = codec(), frame(code, fields, 10)
    length = len(first)
    assert learnt.alike(whole(first) * 3, 0, length) == []  # not learnt yet
    decode_frame(learnt, first)
    frames = [whole(frame(code, fields, 10 + number)) for number in range(6)]
    received = learnt.alike(b"".join(frames) + b"rest", 0, length)
    assert [meant(one) for one in received] == [meant(decode_frame(codec(), one[4:])) for one in frames]
    for odd in (whole(frame(code, fields | {"topic": "Z"}, 10)), whole(frame(310, {"a": "x" * 300}, 10))):
        assert len(learnt.alike(b"".join((*frames[:3], odd, *frames[4:])), 0, length)) == 3
    assert learnt.alike(whole(frame(code, fields | {"topic": "Z"}, 10)) + frames[0], 0, length) == []


@EACH
def test_what_is_known_is_not_parsed_again(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    code, fields = KINDS[kind]
    learnt = codec()
    decode_frame(learnt, frame(code, fields, 1))
    monkeypatch.setattr("rmq.net.remoting.codec.read_header", None)
    for opaque in range(2, 10):
        assert decode_frame(learnt, frame(code, fields, opaque))[1] == opaque
    monkeypatch.undo()
    decode_frame(learnt, frame(code, fields, 10))  # another length of a known shape
    monkeypatch.setattr("rmq.net.remoting.known.says", None)
    decode_frame(learnt, frame(code, fields, 100))


def test_of_two_shapes_of_one_length_none_is_taken_for_the_other() -> None:
    """What is between the values of one, with a 0 in their places, is also that of the other; but they are elsewhere."""
    learnt = codec()
    wanted = PULL | {"queueOffset": "10", "commitOffset": "0", "subVersion": "100"}
    for fields in (
        wanted,
        wanted | {"queueOffset": "0", "commitOffset": "10"},
        wanted | {"queueOffset": "100", "subVersion": "10"},
    ):
        for opaque in (1, 10, 100):
            data = frame(11, fields, opaque)
            assert seen(learnt, data) == seen(codec(), data)


@pytest.mark.parametrize("digits", [1, 18, 19, 30])
def test_a_number_is_of_64_bits_where_another_shape_has_a_text(digits: int) -> None:
    """The places of one, whose second value is a text and may be long, fit the other, whose second value is a number."""
    learnt, rest = codec(), {"queueId": "2"}
    a_text = {"consumerGroup": "g", "topic": "TTTT", "offset": "7", "": "", "extraInfo": "7" * digits, **rest}
    a_number = {"consumerGroup": "g", "topic": "T", "extraInfo": "7", "abc": "", "offset": "7", **rest}
    long = frame(200051, a_number | {"offset": "7" * digits})
    assert len(long) == len(frame(200051, a_text))
    for data in (frame(200051, a_number), frame(200051, a_text), long):
        assert seen(learnt, data) == seen(codec(), data)


@EACH
@pytest.mark.parametrize("last", ["2", "7", "8"])
def test_a_field_that_comes_twice_is_not_learnt(kind: type[Any], last: str) -> None:
    """Whatever its last value is, which counts."""
    code, fields = KINDS[kind]
    for name in (name for name in (*NUMBERS, *TEXTS) if name in fields):
        learnt = codec()
        data = frame(code, fields | {name: last}).replace(b'"topic"', b'"%b":"5","topic"' % name.encode())
        data = (len(data) - 4).to_bytes(4, "big") + data[4:]
        for value in (b"5", b"6", b"7", b"9"):
            other = data.replace(b'"5","topic"', b'"' + value + b'","topic"')
            assert seen(learnt, other) == seen(codec(), other)


@EACH
def test_a_field_that_is_left_out_changes_nothing(kind: type[Any]) -> None:
    """Old clients leave some out."""
    code, fields = KINDS[kind]
    for left_out in fields:
        learnt = codec()
        for opaque in (1, 2, 30):
            data = frame(code, {name: value for name, value in fields.items() if name != left_out}, opaque)
            assert seen(learnt, data) == seen(codec(), data)


def test_only_so_much_is_kept() -> None:
    shapes = KnownRequests(Memory(), lambda header, quoted, frame: frame)
    pull = Pull("g", "T", 3, 128)

    def learn(topic: str) -> bytes:
        data = frame(11, PULL | {"topic": topic})
        shapes.learn(data, read(data, 1 << 20)[0], True, pull._replace(topic=topic))
        return data

    first = learn("T")
    assert shapes.read(first, 0, len(first), False) == (pull, 7, False, b"", len(first))
    assert shapes.read(first, 0, len(first), True) == (pull, 7, False, first, len(first))
    for data in (learn("T" * 3000), frame(11, PULL | {"topic": "U"})):
        assert shapes.read(data, 0, len(data), False) is None
    for size in range(MAX_LENGTHS):
        learn("T" * (size + 2))
    assert shapes.read(first, 0, len(first), False) is None  # its length was forgotten


def test_the_values_are_fields_of_their_commands() -> None:
    for kind, (numbers, texts) in VALUES.items():
        assert set(numbers + texts) <= set(kind._fields)
        for field in numbers + texts:
            assert kind.__annotations__[field] is (int if field in numbers else str)
