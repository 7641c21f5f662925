"""Learns the shape of a reader's headers, so that its next pulls need not be parsed key by key; and writes their answers.

A reader writes the same JSON header again and again: only the offset that it asks for, the one that it commits and the request's
id change. What is around these three is learnt from a parsed header, as that of sends (`shapes`): with other values there, the
header must parse to the same, except for these values. A header as long as an earlier one is cut at the same places by one call.
Pure.
"""

from functools import lru_cache
from itertools import chain, pairwise
from struct import Struct
from typing import Final

from rmq.net.codec.remembered import Memory, Part
from rmq.net.commands import Pull, PullAnswer
from rmq.net.remoting.headers import ANSWER_FLAG, Ext, Header, bare, write
from rmq.net.remoting.shapes import MAX_SHAPE_BYTES, says

# The first of them tells who has to be looked at: nothing else but pulls has it.
_MARKS = MARK, _COMMIT, _OPAQUE = b'"queueOffset":"', b'"commitOffset":"', b'"opaque":'
_OFFSET_FIELD, _COMMIT_FIELD = map(Pull._fields.index, ("queue_offset", "commit_offset"))
_MAX_OFFSET_DIGITS: Final = 18  # so that it fits in 64 signed bits
_MAX_ID_DIGITS: Final = 9
MAX_LENGTHS: Final = 64  # of frames, whose layouts a connection keeps
_new = tuple.__new__  # a NamedTuple in half the time
_NUMBERS_AT = 8  # behind the two lengths of a frame

Key = tuple[bytes, bytes, bytes, bytes]
"""What is before, between and behind the three values; with how long the header is."""
PullShape = tuple[Header, bool, Pull, tuple[int, int, int]]
"""What is the same in all pulls of one shape: the header, whether its client wants quoted numbers, the pull; and where among the
seven pieces of its header the offset, the committed one and the id are."""


class PullShapes:
    """The shapes of one connection, in the memory of its server. A frame is without its length here."""

    __slots__ = ("_get", "_layouts", "_learn")

    def __init__(self, memory: Memory[Key, PullShape]) -> None:
        part = Part(memory)
        self._get, self._learn = part.known.get, part.learn
        self._layouts: dict[int, Struct] = {}  # by the length of a frame: its seven pieces

    def read(self, frame: bytes) -> tuple[Pull, int, PullShape] | None:
        """The pull and its id, if `frame` has a header of a known shape."""
        if not _is_bare(frame):
            return None
        layout = self._layouts.get(len(frame))
        found = None if layout is None else self._read(layout, frame)
        if found is None and (layout := _cut(frame)) is not None and (found := self._read(layout, frame)) is not None:
            self._keep(layout, len(frame))
        return found

    def _read(self, layout: Struct, frame: bytes) -> tuple[Pull, int, PullShape] | None:
        pieces = layout.unpack(frame)
        shape = self._get(pieces[::2])
        if shape is None:
            return None
        at, commit_at, opaque_at = shape[3]
        offset, commit, opaque = pieces[at], pieces[commit_at], pieces[opaque_at]
        if not (offset.isdigit() and commit.isdigit() and opaque.isdigit() and opaque[0] != 0x30):
            return None
        fields = list(shape[2])
        fields[_OFFSET_FIELD], fields[_COMMIT_FIELD] = int(offset), int(commit)
        return _new(Pull, fields), int(opaque), shape

    def learn(self, frame: bytes, header: Header, quoted: bool, pull: Pull) -> None:
        """Learns from `frame`, whose header was read as `header`, which means `pull`."""
        layout = _cut(frame) if _is_bare(frame) and len(frame) <= MAX_SHAPE_BYTES else None
        if layout is None:
            return
        pieces = layout.unpack(frame)
        offset, commit, opaque = (next(at for at in (1, 3, 5) if pieces[at - 1].endswith(mark)) for mark in _MARKS)
        if _fits(pieces, (offset, commit, opaque), header):
            self._learn(pieces[::2], (bare(header)._replace(opaque=0), quoted, pull, (offset, commit, opaque)))
            self._keep(layout, len(frame))

    def _keep(self, layout: Struct, length: int) -> None:
        if len(self._layouts) >= MAX_LENGTHS:
            self._layouts.clear()
        self._layouts[length] = layout


def _is_bare(frame: bytes) -> bool:
    """Whether it is a header in JSON and nothing else."""
    return int.from_bytes(frame[:4], "big") == len(frame) - 4


def _cut(frame: bytes) -> Struct | None:
    """Cuts a bare `frame` into the three values and what is around them. None: it is no pull, or is written in another way."""
    places = []
    for mark, end, most in (
        (MARK, b'"', _MAX_OFFSET_DIGITS),
        (_COMMIT, b'"', _MAX_OFFSET_DIGITS),
        (_OPAQUE, b",", _MAX_ID_DIGITS),
    ):
        at = frame.find(mark) + len(mark)
        value = frame[at : frame.find(end, at)]
        if at < len(mark) or not value.isdigit() or len(value) > most or (mark is _OPAQUE and value[0] == 0x30):
            return None
        places.append((at, at + len(value)))
    edges = (0, *chain.from_iterable(sorted(places)), len(frame))
    return _layout(*(stop - start for start, stop in pairwise(edges)))


@lru_cache(maxsize=1024)
def _layout(*sizes: int) -> Struct:
    return Struct("".join(f"{size}s" for size in sizes))


def _fits(pieces: tuple[bytes, ...], where: tuple[int, ...], header: Header) -> bool:
    """Whether other values at the three places change only the three fields."""
    others = list(pieces)
    for at, other in zip(where, (b"7", b"8", b"9"), strict=True):
        others[at] = other
    data = b"".join(others)[4:]
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
