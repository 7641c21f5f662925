"""Unpacking msgpack from strangers within bounds. Pure."""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, TypeVar

import msgpack

from rmq.errors import BadBytes, InvalidArgument
from rmq.net.codec.limits import BYTES_A_PART, Limits

T = TypeVar("T", list[Any], dict[Any, Any])

_SMALL_ARRAY = 64  # no hot command has a longer array; nested ones of this length cannot add up to much (S7)
_SMALL_FRAME = 64 * 1024
NODES_TAKE: Final = Limits().max_structured_bytes  # of one request
_VALUES_A_PART: Final = 8  # of a list take as long as one
_unpack_small: Callable[..., Any] = partial(msgpack.unpackb, max_array_len=_SMALL_ARRAY, max_map_len=1024, max_ext_len=0)
_uint16 = Struct(">H").unpack_from


def unpack(frame: bytes, max_structured_bytes: int) -> Any:
    """One msgpack value; raises BadBytes. Never allocates more than a fixed multiple of what was received (S4, S7).

    Arrays allocate by the length they claim. So only short ones are believed at once; longer ones after a walk in C
    has shown that all their elements are there, which allocates nothing.
    """
    is_large = len(frame) > _SMALL_FRAME
    if is_large and _structured_bytes(frame) > max_structured_bytes:
        raise BadBytes(f"more than {max_structured_bytes} bytes of structure in one frame; ask for less at a time")
    try:
        return _unpack_small(frame, **_counting(max_structured_bytes)) if is_large else _unpack_small(frame)
    except (ValueError, RecursionError) as error:
        if "max_array_len" not in str(error):
            raise BadBytes(f"not msgpack: {str(error) or type(error).__name__}") from None
    return _unpack_large(frame, _counting(max_structured_bytes) if is_large else {})


def check_taken(frame: bytes, kind: str) -> None:
    """Raises InvalidArgument for a request that ends the connection at the other side, also for others who use it."""
    if _structured_bytes(frame) > NODES_TAKE:
        raise InvalidArgument(f"{kind}: more than {NODES_TAKE} bytes beside messages: no node takes that; ask for less at a time")


def _counting(max_structured_bytes: int) -> dict[str, Any]:
    """Hooks for one reading of a large frame."""
    counted = _Counted(max_structured_bytes // BYTES_A_PART)
    return {"list_hook": counted, "object_hook": counted}


class _Counted:
    """Called with each list and map of a large frame, until there are too many."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def __call__(self, part: T) -> T:
        self._left -= 1 + len(part) // _VALUES_A_PART
        if self._left < 0:
            raise BadBytes(f"more than {self._most} lists and maps in one frame; ask for less at a time")
        return part


def _unpack_large(frame: bytes, hooks: dict[str, Any]) -> Any:
    walker = msgpack.Unpacker(max_buffer_size=len(frame), strict_map_key=True)
    walker.feed(frame)
    try:
        walker.skip()
        if walker.tell() != len(frame):
            raise BadBytes(f"{len(frame) - walker.tell()} bytes behind the end of the command")
        return msgpack.unpackb(frame, max_ext_len=0, **hooks)
    except (ValueError, msgpack.OutOfData) as error:
        raise BadBytes(f"not msgpack: {str(error) or type(error).__name__}") from None


_SKIP = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xCA: 4, 0xCB: 8}
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bin and str: bytes of their length
BINS = (0xC4, 0xC5, 0xC6)
_MAX_FIELDS: Final = 64  # of one command


def _structured_bytes(frame: bytes) -> int:
    """Length of the frame without the byte strings in its outermost array (which unpack one to one)."""
    at, left = 1, frame[0] & 0x0F if frame[0] & 0xF0 == 0x90 else 0
    if frame[0] == 0xDC:  # of more than 15
        at, left = 3, min(_uint16(frame, 1)[0], _MAX_FIELDS)
    rest = len(frame)
    while left and at < len(frame):
        head, left = frame[at], left - 1
        at += 1
        if head in _SIZED:
            size = int.from_bytes(frame[at : at + _SIZED[head]], "big")
            at += _SIZED[head] + size
            rest -= min(size, len(frame)) if head in BINS else 0
        elif head in _SKIP:
            at += _SKIP[head]
        elif 0xA0 <= head <= 0xBF:
            at += head & 0x1F
        elif 0x80 <= head <= 0xDF:
            break  # an array, a map or an extension: all that follows is structure
    return rest
