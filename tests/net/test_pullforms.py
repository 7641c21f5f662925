"""Native pulls whose form is known are cut by one call, and mean what they mean to one who unpacks each."""

import msgpack
import pytest
from hypothesis import given, strategies as st

from rmq.net.codec.frames import Received, decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native
from rmq.net.codec.pullforms import MAX_FORM_BYTES, MAX_LENGTHS, KnownPulls, pull_frame
from rmq.net.codec.remembered import Memory
from rmq.net.codec.wire import Reader
from rmq.net.commands import Pull, Send
from tests.net.test_wire import heard

LIMITS = Limits()
INT64 = st.integers(-(2**63), 2**63 - 1)
PULLS = [
    Pull("group", "t", 0, 5),
    Pull("group", "u", 7, 5, after=1 << 40),
    Pull("grup", "topic", 200, -1, 16, 1, 1 << 33, 0, "a || b", 3, "TAG", 9),
    Pull("group", "\u00e4", 0, 0, subscription="x" * 40, request_source=2, proxy_client_id="proxy"),
]


class EachUnpacked(Native):
    """Knows no form."""

    def decode(self, data: bytes, begin: int, stop: int) -> Received:
        return self._decode(data[begin:stop])

    def alike(self, data: bytes, at: int, length: int) -> list[Received]:
        return []


def frame_of(pull: Pull, call_id: int) -> bytes:
    return Native(1 << 20).request(pull, call_id, False)


def learnt(*pulls: Pull) -> Native:
    codec = Native(1 << 20)
    for pull in pulls:
        frame = frame_of(pull, 9)
        assert codec.decode(frame, 4, len(frame))[0] == pull
    return codec


def said(thing: object) -> object:
    return thing if isinstance(thing, tuple) else str(thing) if isinstance(thing, Exception) else type(thing).__name__


@given(
    st.lists(st.tuples(st.sampled_from(PULLS), st.integers(1, 5), st.tuples(INT64, INT64, INT64)), max_size=6),
    st.lists(st.integers(0, 3000), max_size=4),
    st.tuples(st.integers(0, 30), st.integers(0, 150), st.integers(0, 7)),
)
def test_pulls_are_read_together_as_they_are_one_by_one(
    runs: list[tuple[Pull, int, tuple[int, int, int]]], cuts: list[int], flipped: tuple[int, int, int]
) -> None:
    """Also with a bit flipped in one, wherever."""
    wanted = [
        pull._replace(queue_offset=offset, commit_offset=commit, after=after)
        for pull, count, (offset, commit, after) in runs
        for _ in range(count)
    ]
    frames = [bytearray(frame_of(pull, number)) for number, pull in enumerate(wanted)]
    number, at, bit = flipped
    if number < len(frames) and at < len(frames[number]):
        frames[number][at] ^= 1 << bit
    stream = b"".join(frames)
    seen = [heard(Reader(LIMITS, codec), stream, cuts, said) for codec in (learnt(*PULLS), EachUnpacked(1 << 20))]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("pull", PULLS)
def test_a_pull_is_written_so_that_anybody_can_unpack_it(pull: Pull) -> None:
    frame = frame_of(pull, 77)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert msgpack.unpackb(frame[4:]) == [11, 77, 0, *pull]
    assert len(frame_of(pull._replace(queue_offset=1 << 60, commit_offset=0, after=-1), 2**32 - 1)) == len(frame)


def test_pulls_of_one_length_are_cut_by_one_call() -> None:
    first = Pull("group", "t", 0, 5)
    codec, stranger = learnt(first), Pull("group", "z", 0, 5)
    wanted = [first._replace(queue_offset=10 * number, after=number) for number in range(6)]
    frames = [frame_of(pull, 1000 + number) for number, pull in enumerate(wanted)]
    length = len(frames[0]) - 4
    received = codec.alike(b"".join(frames) + b"rest", 0, length)
    assert received == [(pull, 1000 + number, False, None, length) for number, pull in enumerate(wanted)]
    for odd in (frame_of(stranger, 3), frame_of(Pull("group", "tt", 0, 5), 3), frame_of(Send("g", "t", 0, b"r" * 300), 3)):
        assert codec.alike(b"".join((*frames[:3], odd, *frames[4:])), 0, length) == received[:3]
    assert codec.alike(frame_of(stranger, 3) + frames[0], 0, length) == []


def test_what_cannot_be_written_so_is_written_as_anything_else() -> None:
    for pull in (Pull("g", "t", 0, 2**63), Pull("g", "t", 0, 0, subscription="x" * (MAX_FORM_BYTES + 1))):
        assert pull_frame(pull, 1) is None
        assert msgpack.unpackb(frame_of(pull, 1)[4:]) == [11, 1, 0, *pull]
    assert pull_frame(Pull("g", "t", 0, 0), 2**32) is None
    oneway = Native(1 << 20).request(Pull("g", "t", 0, 0), 1, True)
    assert decode_frame(learnt(*PULLS), oneway[4:])[2]


def test_only_what_is_written_so_is_learnt_and_only_so_much() -> None:
    known = KnownPulls(Memory())
    pull = Pull("g", "t", 0, 0)
    frame = frame_of(pull, 1)[4:]
    known.learn(frame + b"\0", pull, 1)
    known.learn(frame, pull, 2)
    known.learn(frame, pull._replace(topic="u"), 1)
    assert known.read(frame, 0, len(frame)) is None
    long = Pull("g", "t", 0, 0, subscription="x" * MAX_FORM_BYTES)
    known.learn(long_frame := frame_of(long, 1)[4:], long, 1)
    assert known.read(long_frame, 0, len(long_frame)) is None
    known.learn(frame, pull, 1)
    assert known.read(frame, 0, len(frame)) == (pull, 1, False, None, len(frame))
    for size in range(MAX_LENGTHS):
        other = pull._replace(topic="t" * (size + 2))
        known.learn(frame_of(other, 1)[4:], other, 1)
    assert known.read(frame, 0, len(frame)) is None  # its length was forgotten
