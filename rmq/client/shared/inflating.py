"""Inflates compressed bodies: zlib, LZ4 frames and ZSTD, as RocketMQ's clients write them
[ZlibCompressor, Lz4Compressor, ZstdCompressor]. A few bytes may claim to be gigabytes: each is inflated up to a bound only (S8).
"""

import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from rmq.errors import BadBytes
from rmq.log.records.record import Record

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # [maxMessageSize]
COMPRESSED: Final = 0x1  # sysFlag bits [MessageSysFlag]
_TYPE: Final = 0x700


def _lz4() -> Any:
    from lz4.frame import LZ4FrameDecompressor  # when the first one comes: few programs need it

    return LZ4FrameDecompressor()


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor
    else:
        from backports.zstd import ZstdDecompressor
    return ZstdDecompressor()


_DECOMPRESSORS: Mapping[int, Callable[[], Any]] = {
    0x000: zlib.decompressobj,
    0x100: _lz4,
    0x200: _zstd,
    0x300: zlib.decompressobj,
}
"""By their bits in sysFlag; RocketMQ 4 sets none."""


def inflated(stored: Record) -> bytes:
    """At most MAX_MESSAGE_BYTES. Raises BadBytes."""
    kind = stored.sys_flag & _TYPE
    if kind not in _DECOMPRESSORS:
        raise BadBytes(f"the body at {stored.physical_offset} is compressed in a way that is not known (sysFlag {kind:#x})")
    decompressor = _DECOMPRESSORS[kind]()
    try:
        body: bytes = decompressor.decompress(stored.body, MAX_MESSAGE_BYTES + 1)
    except Exception as error:  # each library has errors of its own: zlib.error, RuntimeError, ZstdError
        raise BadBytes(f"the body at {stored.physical_offset} does not inflate: {error}") from error
    if len(body) > MAX_MESSAGE_BYTES:
        raise BadBytes(f"the body at {stored.physical_offset} inflates to more than {MAX_MESSAGE_BYTES} bytes")
    if not decompressor.eof:
        raise BadBytes(f"the body at {stored.physical_offset} is cut short")
    return body
