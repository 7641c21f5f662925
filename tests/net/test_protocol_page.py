"""docs/protocol.md says what the code does."""

import re

import msgpack

from rmq.net.codec.limits import Limits
from rmq.net.commands import Hello, HelloAnswer, Send, SendAnswer
from tests.net.protocol_page import PAGE, with_tables
from tests.net.support import NATIVE


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, "run: python -m tests.net.protocol_page"


def test_the_bytes_of_the_example_are_ours() -> None:
    """Each line of the worked example says what we send; msgpack may write a number wider than it must."""
    shown = [bytes.fromhex(line) for line in re.findall(r"^ {4}((?:[0-9a-f]{2} )*[0-9a-f]{2})$", PAGE.read_text(), re.MULTILINE)]
    ours = [
        NATIVE.request(Hello(1, "me", "GO"), 1, False),
        NATIVE.answer(1, None, HelloAnswer(1, "C", "broker-a", 0, "10.0.0.1:10911"), ""),
        NATIVE.request(Send("g", "t", 0, b"..."), 2, False),
        NATIVE.answer(2, None, SendAnswer(0, 7, 1024), ""),
    ]
    assert [msgpack.unpackb(frame[4:]) for frame in shown] == [msgpack.unpackb(frame[4:]) for frame in ours]
    assert all(int.from_bytes(frame[:4], "big") == len(frame) - 4 for frame in (*shown, *ours))


def test_the_limits_are_the_defaults() -> None:
    """Every limit that the page tells is a default of `Limits`."""
    page = " ".join(PAGE.read_text().split())
    limits = Limits()
    for text in (
        f"{limits.max_frame_bytes} bytes",
        f"{limits.max_structured_bytes} bytes",
        f"{limits.handshake_seconds:g} s",
        f"{limits.frame_seconds:g} s",
        f"{limits.stall_seconds:g} s",
        f"{limits.idle_seconds:g} s",
    ):
        assert text in page, text
