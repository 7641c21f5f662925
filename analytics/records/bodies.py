"""Bodies as their producers wrote them: decompressed, and inner batches of RocketMQ taken apart. No files, no Spark."""

import zlib
from collections.abc import Iterator
from struct import Struct, error as StructError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analytics.records.arrays import flags
from analytics.records.columns import slices
from analytics.stores.walk import Block, Flags, layout
from rmq.errors import BadBytes
from rmq.log.records.crc import crc32
from rmq.log.records.record import CRC_MASK, SYS_COMPRESSED, SYS_INNER_BATCH, Record, bytes_to_properties, decode, encode

LARGEST_BODY = 64 << 20  # decompressed
_ENOUGH_BYTES = 32 << 20  # of decompressed bodies in one batch
_CODEC_MASK = 0x700
_CODECS = {0x100: "lz4", 0x200: "zstd"}  # 0 and 0x300 are zlib [CompressionType]
_UNWRAP = 0x40
_inner_head, _inner_length = Struct(">iiiii").unpack_from, Struct(">H").unpack_from


def plain(block: Block) -> Iterator[tuple[Block, pa.Array]]:
    """The block in one or more pieces, with the bodies of each: null for one that cannot be decompressed.

    A producer may claim anything about its bodies, and one message must not stop a job.
    """
    done, bodies, room = 0, list[bytes | None](), _ENOUGH_BYTES
    compressed = block.head["sys_flag"] & SYS_COMPRESSED != 0
    for index in np.flatnonzero(compressed).tolist():
        body = decompressed(block.data[block.body[index] : block.body_end[index]], int(block.head["sys_flag"][index]))
        bodies.append(body)
        room -= len(body or b"")
        if room < 0:
            yield _piece(block, compressed, slice(done, index + 1), bodies)
            done, bodies, room = index + 1, [], _ENOUGH_BYTES
    if done < len(block):
        yield _piece(block, compressed, slice(done, len(block)), bodies)


def _piece(block: Block, compressed: Flags, which: slice, bodies: list[bytes | None]) -> tuple[Block, pa.Array]:
    piece = block.only(which)
    stored = slices(piece, piece.body, piece.body_end)
    if bodies:
        stored = pc.replace_with_mask(stored, flags(compressed[which]), pa.array(bodies, pa.binary()))
    return piece, stored


def decompressed(body: bytes, sys_flag: int) -> bytes | None:
    """The body; None if it is not compressed as its flags say, or is larger than 64 MiB."""
    codec = _CODECS.get(sys_flag & _CODEC_MASK)
    try:
        if codec is None:
            inflater = zlib.decompressobj()
            found = inflater.decompress(body, LARGEST_BODY + 1)
            return found if inflater.eof and len(found) <= LARGEST_BODY else None
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            found = stream.read(LARGEST_BODY + 1)
            return found if len(found) <= LARGEST_BODY else None
    except (zlib.error, OSError):
        return None


def apart(block: Block) -> tuple[Block, Block | None]:
    """The ordinary records, and the messages of inner batches as records of their own (None if there are none).

    A batch that cannot be taken apart stays one record.
    """
    inner = block.head["sys_flag"] & SYS_INNER_BATCH != 0
    found: list[Record] = []
    for index in np.flatnonzero(inner).tolist():
        try:
            found += [*_messages(decode(block.data, int(block.at[index])))]  # all messages of the batch or none
        except (BadBytes, StructError, ValueError):
            inner[index] = False
    if not found:
        return block, None
    data = b"".join(map(encode, found))
    ends = np.cumsum([len(encode(one)) for one in found], dtype=np.int64)
    at = np.concatenate(([0], ends[:-1])).astype(np.int64)
    offsets = np.array([one.physical_offset for one in found], np.int64)
    return block.only(~inner), layout(data, at, offsets)[0]


def _messages(batch: Record) -> Iterator[Record]:
    """The messages of an inner batch. Raises BadBytes, ValueError or struct.error if it is malformed.

    [MessageDecoder.decodeMessages]
    """
    said = bytes_to_properties(batch.properties)
    body = decompressed(batch.body, batch.sys_flag) if batch.sys_flag & SYS_COMPRESSED else batch.body
    if body is None:
        raise BadBytes(f"the inner batch at {batch.physical_offset} cannot be decompressed")
    at, queue_offset = 0, int(said.get("INNER_BASE", batch.queue_offset))
    flags = batch.sys_flag & ~(SYS_INNER_BATCH | _UNWRAP | SYS_COMPRESSED | _CODEC_MASK)
    while at < len(body):
        total, _, _, flag, length = _inner_head(body, at)
        if length < 0 or at + 20 + length > len(body):
            raise BadBytes(f"the inner batch at {batch.physical_offset}: a body of {length} bytes at {at}")
        (more,) = _inner_length(body, at + 20 + length)
        if total != 22 + length + more or at + total > len(body):
            raise BadBytes(f"the inner batch at {batch.physical_offset}: its parts do not add up at {at}")
        text, properties = body[at + 20 : at + 20 + length], body[at + 22 + length : at + total]
        yield batch._replace(
            flag=flag,
            queue_offset=queue_offset,
            body=text,
            properties=properties,
            sys_flag=flags,
            body_crc=crc32(text) & CRC_MASK,
        )
        at, queue_offset = at + total, queue_offset + 1
