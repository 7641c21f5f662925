"""Native pulls as our clients write them, so that a reader's next one is cut by one call. Pure.

    DC 00 12 0B CE   id   00 group topic queue_id D3   queue_offset   max_msg_nums sys_flag D3   commit_offset
    suspend_timeout_millis subscription sub_version expression_type max_msg_bytes D3   after   request_source proxy_client_id

What changes from pull to pull (id, queue_offset, commit_offset, after) has a fixed width here. msgpack allows that; pulls with
numbers that are written shorter are read value by value. A form is learnt from a frame that is, byte for byte, what this file
writes for the pull that was read from it, so the same bytes around the four always mean the same.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct, error as PackError
from typing import Any, Final

import msgpack

from rmq.net.codec.frames import Received
from rmq.net.codec.remembered import Memory, Part
from rmq.net.commands import CODES, Pull

MAX_FORM_BYTES: Final = 1024  # longer ones are not learnt
MAX_LENGTHS: Final = 64  # of frames, whose layouts a connection keeps
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


def _between(same: Same) -> Between:
    route, limits, wanted, source = (b"".join(map(_pack, fields)) for fields in same)
    return b"\0" + route + _WIDE, limits + _WIDE, wanted + _WIDE, source


def _layout(between: Between, more: str) -> Struct:
    first, second, third, fourth = map(len, between)
    return Struct(f">{more}{len(HEAD)}sI{first}sq{second}sq{third}sq{fourth}s")


@lru_cache(maxsize=4096)
def _writer(same: Same) -> Callable[[int, int, int, int], bytes]:
    """A function that writes such pulls: of an id, and the three numbers."""
    between = first, second, third, fourth = _between(same)
    layout = _layout(between, "I")
    pack, length = layout.pack, layout.size - 4

    def write(call_id: int, queue_offset: int, commit_offset: int, after: int) -> bytes:
        return pack(length, HEAD, call_id, first, queue_offset, second, commit_offset, third, after, fourth)

    return write


def pull_frame(pull: Pull, call_id: int) -> bytes | None:
    """The frame of a request, with its length. None if it cannot be written in this form, or is too long for it."""
    if not 0 <= call_id <= _UINT32_MAX or len(pull.subscription) > MAX_FORM_BYTES:
        return None
    try:
        return _writer(_same(pull))(call_id, pull.queue_offset, pull.commit_offset, pull.after)
    except (OverflowError, PackError):  # a number that does not fit
        return None


class KnownPulls:
    """The forms of one connection, in the memory of its server."""

    __slots__ = ("_forms", "_layouts")

    def __init__(self, memory: PullForms) -> None:
        self._forms = Part(memory)
        self._layouts: dict[int, tuple[Struct, Struct]] = {}  # by the length of a frame: of one alone, and with its length

    def read(self, data: bytes, begin: int, stop: int) -> Received | None:
        """The pull between `begin` and `stop`, without its length. None if its form is not known."""
        layouts = self._layouts.get(stop - begin)
        if layouts is None:
            return None
        head, call_id, first, queue_offset, second, commit_offset, third, after, fourth = layouts[0].unpack_from(data, begin)
        same = self._forms.known.get((first, second, third, fourth))
        if same is None or head != HEAD:
            return None
        route, limits, wanted, source = same
        pull = _new(Pull, (*route, queue_offset, *limits, commit_offset, *wanted, after, *source))
        return pull, call_id, False, None, stop - begin

    def read_alike(self, data: bytes, at: int, length: int) -> list[Received]:
        """See `Codec.alike`."""
        layouts = self._layouts.get(length)
        if layouts is None:
            return []
        received: list[Received] = []
        known, said = self._forms.known, data[at : at + 4]
        frames = memoryview(data)[at : len(data) - (len(data) - at) % (length + 4)]
        for size, head, call_id, first, queue_offset, second, commit_offset, third, after, fourth in layouts[1].iter_unpack(
            frames
        ):
            same = known.get((first, second, third, fourth))
            if size != said or same is None or head != HEAD:
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
        between = _between(same)
        self._forms.learn(between, same)
        if len(self._layouts) >= MAX_LENGTHS:
            self._layouts.clear()
        self._layouts[len(frame)] = _layout(between, ""), _layout(between, "4s")
