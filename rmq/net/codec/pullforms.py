"""Native pulls as our clients write them, so that a reader's next one is cut by one call. Pure.

    DC 00 12 0B CE   id   00 group topic queue_id D3   queue_offset   max_msg_nums sys_flag D3   commit_offset
    suspend_timeout_millis subscription sub_version expression_type max_msg_bytes D3   after   request_source proxy_client_id

What changes from pull to pull (id, queue_offset, commit_offset, after) has a fixed width here. msgpack allows that; pulls with
numbers that are written shorter are read value by value. A form is learnt from a frame that is, byte for byte, what this file
writes for the pull that was read from it, so the same bytes around the four always mean the same.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct, error as PackError
from typing import Any, Final, NamedTuple

import msgpack

from rmq.net.codec.frames import Received
from rmq.net.codec.remembered import Memory, Part
from rmq.net.commands import CODES, Pull

MAX_FORM_BYTES: Final = 1024  # longer ones are not learnt
MAX_LENGTHS: Final = 64  # of frames, whose forms a connection has at hand
_UINT32_MAX: Final = 2**32 - 1
_new = tuple.__new__  # a NamedTuple in half the time
_pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True).pack
HEAD: Final = b"\xdc" + (3 + len(Pull._fields)).to_bytes(2, "big") + _pack(int(CODES[Pull])) + b"\xce"
_WIDE: Final = b"\xd3"  # before eight bytes of a number

Between = tuple[bytes, bytes, bytes, bytes]
"""The bytes behind the id, behind the queue offset, behind the committed offset, and behind `after`."""
Same = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]
"""The fields that stand there."""
PullForms = Memory[Between, Same]


def _same(pull: Pull) -> Same:
    return pull[:3], pull[4:6], pull[7:12], pull[13:]


class _Form(NamedTuple):
    """How pulls with the same other fields are written. `start`: their length and head. `whole`: a frame, `alone`: without its
    length."""

    between: Between
    start: bytes
    whole: Struct
    alone: Struct


@lru_cache(maxsize=4096)
def _form(same: Same) -> _Form:
    route, limits, wanted, source = (b"".join(map(_pack, fields)) for fields in same)
    between = b"\0" + route + _WIDE, limits + _WIDE, wanted + _WIDE, source
    cut = "sI{}sq{}sq{}sq{}s".format(*map(len, between))
    whole, alone = Struct(f">{4 + len(HEAD)}{cut}"), Struct(f">{len(HEAD)}{cut}")
    return _Form(between, alone.size.to_bytes(4, "big") + HEAD, whole, alone)


def pull_frame(pull: Pull, call_id: int) -> bytes | None:
    """The frame of a request, with its length. None if it cannot be written in this form, or is too long for it."""
    if not 0 <= call_id <= _UINT32_MAX or len(pull.subscription) > MAX_FORM_BYTES:
        return None
    try:
        (first, second, third, fourth), start, whole, _ = _form(_same(pull))
        return whole.pack(start, call_id, first, pull.queue_offset, second, pull.commit_offset, third, pull.after, fourth)
    except (OverflowError, PackError):  # a number that does not fit
        return None


class KnownPulls:
    """The forms of one connection, in the memory of its server."""

    __slots__ = ("_forms", "_lately")

    def __init__(self, memory: PullForms) -> None:
        self._forms = Part(memory)
        self._lately: dict[int, _Form] = {}  # by the length of a frame: the form that was learnt last

    def read(self, data: bytes, begin: int, stop: int) -> Received | None:
        """The pull between `begin` and `stop`, without its length. None if its form is not known."""
        form = self._lately.get(stop - begin)
        made = [] if form is None else self._made((form.alone.unpack_from(data, begin),), HEAD, stop - begin)
        return made[0] if made else None

    def read_alike(self, data: bytes, at: int, length: int) -> list[Received]:
        """See `Codec.alike`."""
        form = self._lately.get(length)
        frames = memoryview(data)[at : len(data) - (len(data) - at) % (length + 4)]
        return [] if form is None else self._made(form.whole.iter_unpack(frames), form.start, length)

    def _made(self, cuts: Iterable[tuple[Any, ...]], start: bytes, length: int) -> list[Received]:
        """The pulls of frames that were cut so, up to the first that does not begin with `start`, or has no known form."""
        received: list[Received] = []
        known = self._forms.known
        for head, call_id, first, queue_offset, second, commit_offset, third, after, fourth in cuts:
            same = known.get((first, second, third, fourth))
            if same is None or head != start:
                break
            route, limits, wanted, source = same
            pull = _new(Pull, (*route, queue_offset, *limits, commit_offset, *wanted, after, *source))
            received.append((pull, call_id, False, None, length))
        return received

    def learn(self, frame: bytes, pull: Pull, call_id: int) -> None:
        """Learns the form of `frame`, without its length, which was read as this pull and id."""
        if len(frame) > MAX_FORM_BYTES or pull_frame(pull, call_id) != len(frame).to_bytes(4, "big") + frame:
            return
        same = _same(pull)
        form = _form(same)
        self._forms.learn(form.between, same)
        if len(self._lately) >= MAX_LENGTHS:
            self._lately.clear()
        self._lately[len(frame)] = form
