"""Cutting frames out of bytes, and telling the codecs apart."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from rmq.errors import BadBytes, Refusal
from rmq.log.records import fastpath
from rmq.net.codec.frames import Received, decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native
from rmq.net.codec.wire import AnswerReader, Reader
from rmq.net.commands import Answer, GetRoute, Pull, PullAnswer, Send, SendAnswer
from rmq.net.remoting.codec import Remoting, RemotingSettings
from tests.net import java_peer

LIMITS = Limits(max_frame_bytes=4096)
NATIVE = Native(1 << 20)
REMOTING_SETTINGS = RemotingSettings(fastpath)


def reader(limits: Limits = LIMITS, remoting: bool = True) -> Reader:
    return Reader(limits, NATIVE, (lambda: REMOTING_SETTINGS.codec(("10.0.0.9", 4000))) if remoting else None)


REQUESTS = [Send("g", "t", 1, b"x" * size) for size in (0, 1, 255, 256, 700)] + [Pull("g", "t", 0, 5), GetRoute("t")]
STREAM = b"".join(NATIVE.request(request, number, False) for number, request in enumerate(REQUESTS))


ANSWERS: list[Answer] = [SendAnswer(2, 70 + number, 9000 + number, 0, "", "") for number in range(5)]
ANSWERS += [SendAnswer(2, 3, 4, 10, "", ""), SendAnswer(2, 3, 4, 0, "handle", ""), SendAnswer(2, 3, 4, 200, "", "")]
ANSWERS += [PullAnswer(8, 1, 9, b"messages"), None]


@given(st.lists(st.sampled_from(ANSWERS), max_size=30), st.lists(st.integers(0, 1000), max_size=5), st.integers(0, 2000))
def test_answers_to_sends_are_read_together_as_they_are_one_by_one(answers: list[Answer], cuts: list[int], flipped: int) -> None:
    stream = bytearray(b"".join(NATIVE.answer(number, None, answer, "") for number, answer in enumerate(answers)))
    if flipped < len(stream):
        stream[flipped] ^= 1
    targets = Reader(LIMITS, NATIVE), AnswerReader(LIMITS, NATIVE)
    one, two = (heard(target, bytes(stream), cuts, _said) for target in targets)
    assert one == two


def heard(target: Reader, stream: bytes, cuts: list[int], say: Callable[[object], object]) -> tuple[list[object], int]:
    """What the reader makes of the stream, cut anywhere, up to bad bytes, and how much it keeps of a begun frame. Its bytes
    show when they are completed: cuts keep them between pieces. `say`: what to compare of a command and of its context."""
    received: list[object] = []
    with suppress(BadBytes):
        edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
        for start, stop in pairwise(edges):
            for thing, call_id, oneway, context, size in target.feed(stream[start:stop]):
                received.append((say(thing), call_id, oneway, say(context), size))
    return received, target.half_frame


class OneByOne(Native):
    """Cuts no sends together."""

    def alike(self, data: bytes, at: int, length: int) -> list[Received]:
        return []


SENDS = [Send("group", topic, queue_id, b"r" * size) for topic in ("t", "u") for queue_id in (0, 3) for size in (300, 301, 700)]
SENDS += [Send("group", "t", 0, b"small"), Send("group", "t", 0, b"\xc5" * 300, batch=True), Pull("g", "t", 0, 5)]


@given(
    st.lists(st.tuples(st.sampled_from(SENDS), st.integers(1, 6)), max_size=8),
    st.lists(st.integers(0, 9000), max_size=4),
    st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 7)),
)
def test_sends_of_one_length_are_read_together_as_they_are_one_by_one(
    runs: list[tuple[Send, int]], cuts: list[int], flipped: tuple[int, int, int]
) -> None:
    """Also with a bit flipped in the head of one: in a length, an id, a route, or in what says how long the records are."""
    sends = [send for send, count in runs for _ in range(count)]
    frames = [bytearray(NATIVE.request(send, number, False)) for number, send in enumerate(sends)]
    number, at, bit = flipped
    if number < len(frames) and at < len(frames[number]):
        frames[number][at] ^= 1 << bit
    stream = b"".join(frames)
    seen = []
    for codec in (Native(1 << 20), OneByOne(1 << 20)):
        for send in SENDS:  # from now on it knows their routes
            frame = codec.request(send, 1, False)
            codec.decode(frame, 4, len(frame))
        seen.append(heard(Reader(LIMITS, codec), stream, cuts, _asked))
    assert seen[0] == seen[1]


class EachAlone(Remoting):
    """Cuts no sends together."""

    __slots__ = ()

    def alike(self, data: bytes, at: int, length: int) -> list[Received]:
        return []


def java_send(number: int, binary: bool, topic: str, queue_id: int, body: bytes, **ext: str) -> bytes:
    said = f"UNIQ_KEY\x017F0000010BAD3E8B27C7{number:04}\x02TAGS\x01TagA\x02KEYS\x01order-{number:04}\x02"
    return java_peer.send_frame(1000 + number, body, binary, **({"b": topic, "e": str(queue_id), "i": said} | ext))


JAVA_SENDS: list[tuple[str, int, bytes, dict[str, str]]] = [
    (topic, queue_id, bytes((65 + queue_id,)) * size, {}) for topic in ("t", "u") for queue_id in (0, 3) for size in (30, 31)
]
JAVA_SENDS += [
    ("t", 0, b"odd" * 10, changed)
    for changed in ({"i": "a\x01\u00e4" + "b" * 80 + "\x02"}, {"g": "170000000000x"}, {"h": str(2**40)})
]
JAVA_SENDS += [
    ("t", 0, b"", {}),
    ("t", 0, b"x" * 30, {"f": "16"}),
    ("t", 0, b"x" * 30, {"i": "without\x01id" + "b" * 64 + "\x02"}),
]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@given(
    st.lists(st.tuples(st.sampled_from(JAVA_SENDS), st.integers(1, 6)), max_size=8),
    st.lists(st.integers(0, 9000), max_size=4),
    st.tuples(st.integers(0, 40), st.integers(0, 500), st.integers(0, 7)),
)
def test_rocketmqs_sends_of_one_length_are_read_together_as_they_are_one_by_one(
    binary: bool,
    keeps: bool,
    runs: list[tuple[tuple[str, int, bytes, dict[str, str]], int]],
    cuts: list[int],
    flipped: tuple[int, int, int],
) -> None:
    """Also with a bit flipped in one; some are refused, some parsed, some have no id of their own, or no body."""
    sends = [send for send, count in runs for _ in range(count)]
    frames = [bytearray(java_send(at, binary, *send[:3], **send[3])) for at, send in enumerate(sends)]
    number, at, bit = flipped
    if number < len(frames) and at < len(frames[number]):
        frames[number][at] ^= 1 << bit
    seen = []
    for kind in (Remoting, EachAlone):
        settings = RemotingSettings(fastpath, keeps_frames=keeps)
        codec = kind(settings.sends, LIMITS, ("10.0.0.9", 4000), keeps)
        for topic, queue_id, body, ext in JAVA_SENDS:  # from now on it knows their shapes, and how long their headers are
            decode_frame(codec, java_send(0, binary, topic, queue_id, body, **ext)[4:])
        target = Reader(LIMITS, NATIVE, lambda codec=codec: codec)
        seen.append(heard(target, b"".join(frames), cuts, _asked))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("binary", [False, True])
def test_rocketmqs_sends_of_one_length_are_cut_by_one_call(binary: bool) -> None:
    codec = RemotingSettings(fastpath, keeps_frames=True).codec(("10.0.0.9", 4000))
    frames = [java_send(number, binary, "t", number % 2, bytes((65 + number,)) * 30) for number in range(6)]
    length = len(frames[0]) - 4
    assert codec.alike(b"".join(frames), 0, length) == []  # nothing is known yet
    alone = [decode_frame(codec, frame[4:]) for frame in frames]
    assert codec.alike(b"".join(frames) + b"rest", 0, length) == alone
    stranger, longer = java_send(3, binary, "z", 0, b"x" * 30), java_send(3, binary, "t", 0, b"x" * 31)
    header_longer = java_send(3, binary, "t", 0, b"x" * 29, d="40")
    assert len(header_longer) == len(frames[0])
    decode_frame(codec, header_longer[4:])
    for odd in (stranger, longer, header_longer):
        assert codec.alike(b"".join((*frames[:3], odd, *frames[4:])), 0, length) == alone[:3]
    assert codec.alike(stranger + frames[0], 0, length) == []


def test_sends_of_one_length_are_cut_by_one_call() -> None:
    codec = Native(1 << 20)
    sends = [Send("group", "t", number % 2, bytes((number,)) * 300) for number in range(6)]
    frames = [codec.request(send, 1000 + number, False) for number, send in enumerate(sends)]
    assert [codec.decode(frame, 4, len(frame))[0] for frame in frames[:2]] == sends[:2]
    received = codec.alike(b"".join(frames) + b"rest", 0, len(frames[0]) - 4)
    assert [(send, call_id) for send, call_id, *_ in received] == [(send, 1000 + number) for number, send in enumerate(sends)]
    stranger = codec.request(Send("group", "z", 0, b"r" * 300), 7, False)
    assert len(codec.alike(b"".join((*frames[:3], stranger, *frames[3:])), 0, len(frames[0]) - 4)) == 3
    assert codec.alike(stranger + frames[0], 0, len(stranger) - 4) == []
    at = frames[3].index(b"\xc5") + 2  # how long the records are
    odd = frames[3][:at] + b"\xff" + frames[3][at + 1 :]
    assert len(codec.alike(b"".join((*frames[:3], odd, *frames[4:])), 0, len(odd) - 4)) == 3


def _asked(thing: object) -> object:
    """A request as it is, and what a send's answer needs; a refusal by its text."""
    return thing if isinstance(thing, tuple) else str(thing) if isinstance(thing, Exception) else type(thing).__name__


def _said(thing: object) -> object:
    """What it says, if it answers a send; refusals of one text are two objects."""
    try:
        return thing.read(Send) if hasattr(thing, "read") else str(thing)
    except (Refusal, BadBytes) as error:
        return str(error)


def feed(target: Reader, stream: bytes, cuts: list[int]) -> list[object]:
    received = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for start, stop in pairwise(edges):
        received += target.feed(stream[start:stop])
    return [one[0] for one in received]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_pieces_give_the_same_commands(cuts: list[int]) -> None:
    target = reader()
    assert feed(target, STREAM, cuts) == REQUESTS
    assert not target.half_frame


def test_byte_by_byte() -> None:
    assert feed(reader(), STREAM, list(range(len(STREAM)))) == REQUESTS


def test_one_read_gives_all_whole_requests_at_once() -> None:
    target = reader()
    assert len(target.feed(STREAM[:-1])) == len(REQUESTS) - 1
    assert len(target.feed(STREAM[-1:])) == 1


@pytest.mark.parametrize("binary", [False, True])
def test_remoting_is_told_from_its_first_bytes(binary: bool) -> None:
    """The kind of header may change from frame to frame, the codec may not."""
    stream = java_peer.request_frame(GetRoute("a"), 1, binary) + java_peer.request_frame(GetRoute("b"), 2, not binary)
    assert feed(reader(), stream, [3, 9, 100]) == [GetRoute("a"), GetRoute("b")]
    with pytest.raises(BadBytes):
        feed(reader(), stream + STREAM, [])
    with pytest.raises(BadBytes, match="neither"):
        feed(reader(remoting=False), stream, [])


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"\x16\x03\x01\x02\x00", "TLS"), (b"PRI * HTTP/2.0", "HTTP/2"), (b"GET / HTTP/1.1", "HTTP"), (b"PROXY TCP4", "PROXY"),
        (b"\x00\x00\x00\x00\x90", "0 bytes"), (b"\xff\xff\xff\xff\x90", "4294967295 bytes"), (b"\x00\x00\x0f\xfd\x90", "4093"),
        (b"\x00\x00\x00\x05\x02", "0x02"), (b"\x00\x00\x00\x05\x80", "0x80"), (b"\x00\x00\x00\x05\xc1", "0xc1"),
    ],
)  # fmt: skip
def test_what_is_neither_codec_is_named(head: bytes, says: str) -> None:
    """S4: zero, negative, oversized and foreign beginnings close the connection before anything is kept of them."""
    target = reader()
    with pytest.raises(BadBytes, match=says):
        target.feed(head)


def test_a_frame_of_exactly_the_limit_is_waited_for() -> None:
    """Frames count their length [NettyDecoder]: one byte more closes at once."""
    target = reader()
    assert target.feed((4092).to_bytes(4, "big") + b"\x94") == []


def test_a_claimed_length_allocates_nothing() -> None:
    """S7: only what was received is kept."""
    target = reader(Limits())
    assert target.feed((16 * 1024 * 1024 - 4).to_bytes(4, "big") + b"\x94") == []
    assert target.half_frame == 5


@given(st.lists(st.one_of(st.integers(1, 9), st.integers(4000, 4200), st.integers(5000, 20_000)), min_size=1, max_size=40))
def test_a_large_frame_comes_in_pieces_of_any_size(sizes: list[int]) -> None:
    body = bytes(range(251)) * 400
    stream, target, received = NATIVE.request(Send("g", "t", 0, body), 1, oneway=False), reader(Limits()), list[object]()
    at = 0
    for size in [*sizes, len(stream)]:
        received += [one[0] for one in target.feed(stream[at : at + size])]
        at += size
        assert target.half_frame == (at if at < len(stream) else 0)
    assert received == [Send("g", "t", 0, body)]


def test_a_frame_that_comes_byte_by_byte_takes_no_more_memory_than_it_has() -> None:
    """S7: 200 000 bytes in as many pieces, few large ones among them."""
    target, piece = reader(Limits()), bytes(5000)
    target.feed((1 << 20).to_bytes(4, "big") + b"\x94")
    tracemalloc.start()
    for number in range(200_000):
        target.feed(piece if number % 20_000 == 0 else piece[:1])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert target.half_frame == 5 + 199_990 + 10 * 5000
    assert taken < 2 * target.half_frame


@given(st.binary(max_size=600), st.lists(st.integers(0, 600), max_size=5))
def test_any_bytes(stream: bytes, cuts: list[int]) -> None:
    """S5: commands, refusals or BadBytes."""
    with suppress(BadBytes):
        feed(reader(), stream, cuts)


@given(st.booleans(), st.lists(st.binary(min_size=1, max_size=9), max_size=9), st.binary(max_size=9))
@example(True, [b"\x90"], bytes(3))
@example(False, [b"\0"], bytes(3))
def test_short_frames(native: bool, frames: list[bytes], rest: bytes) -> None:
    """S5: of a peer that is known, alike or not, with the beginning of another behind them: BadBytes or commands."""
    known = STREAM if native else java_peer.request_frame(GetRoute("a"), 1, False)
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames) + rest
    with suppress(BadBytes):
        feed(reader(), known + stream, [len(known)])


@given(st.integers(0, 400), st.binary(min_size=1, max_size=4), st.booleans())
def test_damaged_remoting_frames(at: int, change: bytes, binary: bool) -> None:
    """S5: any damage to a good send gives a send, a refusal that can be answered, or BadBytes."""
    frame = bytearray(java_peer.send_frame(1, b"body", binary))
    at %= len(frame)
    frame[at : at + len(change)] = change
    try:
        received = reader().feed(bytes(frame))
    except BadBytes:
        return
    for thing, call_id, _, context, _ in received:
        if isinstance(thing, Refusal):
            assert REMOTING_SETTINGS.codec(("10.0.0.9", 1)).refusal(call_id, context, thing)
