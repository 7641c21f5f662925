"""Learns the shape of a reader's headers, so that its next pulls need not be parsed key by key; and writes their answers.

A reader writes the same JSON header again and again: only the offset that it asks for, the one that it commits and the request's
id change. What is around these three is learnt from a parsed header, as that of sends (`shapes`): with other values there, the
header must parse to the same, except for these values. Pure.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from rmq.net.codec.remembered import Memory, Part
from rmq.net.commands import Pull, PullAnswer
from rmq.net.remoting.headers import ANSWER_FLAG, Ext, Header, bare, write
from rmq.net.remoting.shapes import MAX_SHAPE_BYTES, says

_OFFSET, _COMMIT, _OPAQUE = b'"queueOffset":"', b'"commitOffset":"', b'"opaque":'
_OFFSET_FIELD, _COMMIT_FIELD = map(Pull._fields.index, ("queue_offset", "commit_offset"))
_MAX_OFFSET_DIGITS: Final = 18  # so that it fits in 64 signed bits
_MAX_ID_DIGITS: Final = 9
_new = tuple.__new__  # a NamedTuple in half the time
_NUMBERS_AT = 8  # behind the two lengths of a frame

PullShape = tuple[Header, bool, Pull]
"""What is the same in all pulls of one shape: the header, whether its client wants quoted numbers, the pull."""


class _Cut(NamedTuple):
    """The header without its three values, which are beside it."""

    key: bytes
    offset: bytes
    commit: bytes
    opaque: bytes


class PullShapes:
    """The shapes of one connection, in the memory of its server."""

    __slots__ = ("_get", "_learn")

    def __init__(self, memory: Memory[bytes, PullShape]) -> None:
        part = Part(memory)
        self._get, self._learn = part.known.get, part.learn

    def read(self, frame: bytes) -> tuple[Pull, int, PullShape] | None:
        """The pull and its id, if `frame` has a header of a known shape."""
        cut = _cut(frame)
        if cut is None or (shape := self._get(cut[0])) is None:
            return None
        fields = list(shape[2])
        fields[_OFFSET_FIELD], fields[_COMMIT_FIELD] = int(cut[1]), int(cut[2])
        return _new(Pull, fields), int(cut[3]), shape

    def learn(self, frame: bytes, header: Header, quoted: bool, pull: Pull) -> None:
        """Learns from `frame`, whose header was read as `header`, which means `pull`."""
        cut = _cut(frame)
        if cut is not None and len(cut.key) <= MAX_SHAPE_BYTES and _fits(frame, cut, header):
            self._learn(cut.key, (bare(header)._replace(opaque=0), quoted, pull))


def _cut(frame: bytes) -> _Cut | None:
    """None: it is no pull without a body in JSON, or written in another way."""
    offset_at = frame.find(_OFFSET) + len(_OFFSET)
    if offset_at < len(_OFFSET) or int.from_bytes(frame[:4], "big") != len(frame) - 4:
        return None
    commit_at, opaque_at = frame.find(_COMMIT) + len(_COMMIT), frame.find(_OPAQUE) + len(_OPAQUE)
    offset_end, commit_end = frame.find(b'"', offset_at), frame.find(b'"', commit_at)
    opaque_end = frame.find(b",", opaque_at)
    offset, commit, opaque = frame[offset_at:offset_end], frame[commit_at:commit_end], frame[opaque_at:opaque_end]
    if not (
        offset.isdigit()
        and commit.isdigit()
        and opaque.isdigit()
        and opaque[0] != 0x30
        and len(offset) <= _MAX_OFFSET_DIGITS >= len(commit)
        and len(opaque) <= _MAX_ID_DIGITS
        and commit_at >= len(_COMMIT)
        and opaque_at >= len(_OPAQUE)
    ):
        return None
    places = [(offset_at, offset_end), (commit_at, commit_end), (opaque_at, opaque_end)]
    places.sort()
    (first, after_first), (second, after_second), (third, after_third) = places
    key = b"0".join((frame[:first], frame[after_first:second], frame[after_second:third], frame[after_third:]))
    return _new(_Cut, (key[4:], offset, commit, opaque))


def _fits(frame: bytes, cut: _Cut, header: Header) -> bool:
    """Whether other values at the three places change only the three fields."""
    data = frame[4:]
    for mark, value, other in ((_OFFSET, cut.offset, b"7"), (_COMMIT, cut.commit, b"8"), (_OPAQUE, cut.opaque, b"9")):
        data = data.replace(mark + value, mark + other, 1)
    return says(data, header, {"queueOffset": "7", "commitOffset": "8"}, 9)


def pull_ext(answer: PullAnswer) -> Ext:
    """The text fields of such an answer."""
    return _ext(*map(str, (answer.suggest_which_broker_id, *answer[:3])))


def _ext(suggested: str, next_offset: str, low: str, high: str) -> Ext:
    return {
        "suggestWhichBrokerId": suggested,
        "nextBeginOffset": next_offset,
        "minOffset": low,
        "maxOffset": high,
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def answer_head(call_id: int, answer: PullAnswer, remark: str) -> bytes:
    """The frame of an answer in JSON up to its messages."""
    next_offset, low, high, messages, status, suggested = answer
    text = _form(status, suggested, remark) % (next_offset, low, high, call_id)
    size = len(text)
    return (4 + size + len(messages) << 32 | size).to_bytes(8, "big") + text


@lru_cache(maxsize=256)
def _form(status: int, suggested: int, remark: str) -> bytes:
    """The header of such answers, with places for offsets and id."""
    text = write(False, status, ANSWER_FLAG, 0, remark.replace("%", "%%"), _ext(str(suggested), "%d", "%d", "%d"))[_NUMBERS_AT:]
    return text.replace(b'"opaque":0', b'"opaque":%d', 1)
