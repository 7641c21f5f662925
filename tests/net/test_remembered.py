"""What a server remembers of the frames it read: a client that shows a new form each time fills nothing."""

import sys
from collections.abc import Iterator
from types import FunctionType

import pytest

from rmq.errors import Refusal
from rmq.log.records import fastpath
from rmq.net.codec.frames import decode_frame
from rmq.net.codec.native import Native
from rmq.net.codec.remembered import MAX_REMEMBERED, MAX_REMEMBERED_OF_CONNECTION, Memory, Part
from rmq.net.commands import Hello, Send
from rmq.net.remoting.codec import Remoting, RemotingSettings
from rmq.net.remoting.headers import Header
from tests.net import java_peer
from tests.net.remoting import parts


def decoded(remoting: Remoting, **ext: str) -> object:
    return decode_frame(remoting, java_peer.send_frame(1, b"body", **ext)[4:])[0]


def test_a_connection_forgets_its_own() -> None:
    memory: Memory[bytes, int] = Memory()
    good, greedy = Part(memory), Part(memory)
    good.learn(b"good", 1)
    for number in range(3 * MAX_REMEMBERED_OF_CONNECTION):
        greedy.learn(b"%d" % number, number)
    assert len(memory.known) == MAX_REMEMBERED_OF_CONNECTION + 1
    assert good.known[b"good"] == 1


def test_a_full_memory_begins_anew() -> None:
    memory: Memory[bytes, int] = Memory()
    for connection in range(6):
        part = Part(memory)
        for number in range(MAX_REMEMBERED_OF_CONNECTION):
            part.learn(b"%d-%d" % (connection, number), number)
            assert len(memory.known) <= MAX_REMEMBERED


def test_forms_of_java_producers_are_remembered_for_all_connections() -> None:
    settings = RemotingSettings(fastpath)
    assert settings.sends is not None
    for peer in range(3):
        assert isinstance(decoded(settings.codec(("10.0.0.1", peer))), Send)
    assert len(settings.sends.json_shapes.shapes.known) == 1


@pytest.mark.parametrize("binary", [False, True])
def test_layouts_are_those_of_a_connection_and_bounded(binary: bool) -> None:
    """D18: a header of each length has one; two connections may cut the same length in two ways."""
    settings = RemotingSettings(fastpath)
    one, other = (settings.codec(("10.0.0.1", port)) for port in (1, 2))
    assert settings.sends is not None
    layouts = (settings.sends.binary_shapes if binary else settings.sends.json_shapes).layouts
    for number in range(MAX_REMEMBERED_OF_CONNECTION + 50):
        text = "UNIQ_KEY\x010A\x02KEYS\x01" + "k" * (number + 1) + "\x02"
        assert isinstance(decode_frame(one, java_peer.send_frame(1, b"body", binary, i=text)[4:])[0], Send)
    assert len(layouts.known) == MAX_REMEMBERED_OF_CONNECTION
    for topic, keys in (("Orders", "abc"), ("Order", "abcd")) * 3:
        for remoting, name in ((one, topic), (other, topic[::-1])):
            text = f"UNIQ_KEY\x010A\x02KEYS\x01{keys}\x02"
            sent = decode_frame(remoting, java_peer.send_frame(1, b"body", binary, b=name, i=text)[4:])[0]
            assert isinstance(sent, Send)
            assert (sent.topic, keys.encode() in sent.records) == (name, True)


def test_answers_remember_few_lengths() -> None:
    """D18: of keys and queue offsets, for each queue; 37 is the percent sign, with which templates are filled in."""
    settings = RemotingSettings(fastpath, "c", store_host=("10.0.0.1", 1))
    remoting = settings.codec(("10.0.0.9", 1))
    encode = remoting.stored(3, 0)
    for length in range(1, 128):
        frame = java_peer.send_frame(5, b"body", True, i=f"UNIQ_KEY\x01{'K' * length}\x02")[4:]
        _, call_id, _, context, _ = decode_frame(remoting, frame)
        for offset in (7, 10**9, 10**18):
            answer = parts(encode(call_id, context, offset, 77))[0]
            assert (answer.ext["transactionId"], answer.ext["queueOffset"], answer.opaque) == ("K" * length, str(offset), 5)
    closure = dict(zip(encode.__code__.co_freevars, encode.__closure__, strict=True))
    assert len(closure["in_binary"].cell_contents) <= 8


def test_a_long_or_odd_header_is_not_remembered() -> None:
    """Of a form only what the answer needs is kept, of a long or odd one nothing."""
    settings = RemotingSettings(fastpath)
    remoting = settings.codec(("10.0.0.1", 1))
    assert settings.sends is not None
    for number in range(50):
        decoded(remoting, a="g" * 4000 + str(number))
        decoded(remoting, junk=str(number) * 4000)
        decoded(remoting, g=str(number))  # a born time that is not looked for: it would be learnt anew each time
    assert not settings.sends.json_shapes.shapes.known
    assert not settings.sends.binary_shapes.shapes.known
    decoded(remoting, i="UNIQ_KEY\x010A00\x02KEYS\x01" + "k" * 30_000 + "\x02")
    [(key, read)] = settings.sends.json_shapes.shapes.known.items()
    assert isinstance(key, bytes)
    assert not settings.sends.binary_shapes.shapes.known
    kept = [*_kept(read)]
    assert len(key) + sum(len(part) for part in kept if isinstance(part, bytes)) < 2048
    [header] = [part for part in kept if isinstance(part, Header)]
    assert (header.ext, header.remark) == ({}, "")


def _kept(thing: object) -> Iterator[object]:
    """What an object or a function made for one form knows; those that it knows, too, but for what all forms share."""
    if isinstance(thing, FunctionType):
        parts = [cell.cell_contents for cell in thing.__closure__ or ()]
    else:
        parts = [*thing] if isinstance(thing, tuple) else [getattr(thing, name) for name in getattr(thing, "__slots__", ())]
    for part in parts:
        yield part
        yield from _kept(part)


def test_what_waits_for_its_answer_keeps_no_texts() -> None:
    """25 bytes of memory for each byte of a header with many short fields."""
    remoting = RemotingSettings(fastpath).codec(("10.0.0.1", 1))
    many = {f"{number}": "x" for number in range(1000)}
    for code in (310, 11):
        _, _, _, context, _ = decode_frame(remoting, java_peer.send_frame(1, b"body", code=code, **many)[4:])
        header = context.header  # type: ignore[attr-defined]
        assert sys.getsizeof(header.ext) < 100
        assert not header.ext


def test_a_native_route_is_remembered_for_all_connections() -> None:
    memory: Memory[tuple[str, str, int]] = Memory()
    frame = Native(1 << 20).request(Send("g", "t", 0, b"x" * 300), 1, False)
    for _ in range(3):
        assert isinstance(decode_frame(Native(1 << 20, memory), frame[4:])[0], Send)
    assert list(memory.known.values()) == [("g", "t", 0)]


def test_who_a_client_says_it_is_has_some_length() -> None:
    """It is kept as long as the connection."""
    native = Native(1 << 20)
    for hello in (Hello(1, "x" * 256), Hello(1, "c", "x" * 256)):
        with pytest.raises(Refusal, match="255"):
            native.greet(hello, None)
    remoting = RemotingSettings(fastpath).codec(("10.0.0.1", 1))
    _, _, _, context, _ = decode_frame(remoting, _with_language("x" * 100_000))
    greeting = remoting.greet(None, context)
    assert greeting is not None
    assert greeting.language == "OTHER"


def _with_language(language: str) -> bytes:
    frame = java_peer.send_frame(1, b"body")[4:]
    size = int.from_bytes(frame[:4], "big")
    header = frame[4 : 4 + size].replace(b'"JAVA"', b'"%b"' % language.encode())
    return len(header).to_bytes(4, "big") + header + frame[4 + size :]
