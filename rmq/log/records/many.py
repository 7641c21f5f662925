"""What a broker does to each record of a batch, for all of them at once, with numpy: `checking.check`, `record.draft` and
`record.stamp` for the usual kind (`fastpath` says what is usual). Only nodes import this. Pure.

Nothing here refuses anything: None means that the step-by-step way has to look.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from rmq.log.records import columns
from rmq.log.records.checking import Checked
from rmq.log.records.columns import Flags, Ints
from rmq.log.records.crc import crc32
from rmq.log.records.properties import CRC_BYTES, CRC_NAME, MAX_PROPERTIES_BYTES, code_of, fast_pairs
from rmq.log.records.record import CRC_MASK, EMPTY_CRC, MAGIC_V1, SYS_BORN_V6, topic_field_of

MANY = 48
"""Records, from which on numpy pays."""
_MOST = 1 << 14  # messages of a batch: how many are too many is said elsewhere
_I4, _U2 = np.dtype(">i4"), np.dtype(">u2")
_HEAD = np.dtype([
    ("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("places", "V16"),
    ("sys_flag", ">i4"), ("born_ms", ">i8"), ("born_host", "V8"), ("store", "V16"), ("reconsume_times", ">i4"),
    ("prepared", ">i8"), ("length", ">i4"),
])  # fmt: skip
"""All before the body, between IPv4 hosts."""
_SIZES = slice(0, 4), slice(16, 20)  # of a message in RocketMQ's batches, and of its body
_ITEM_BYTES = 20  # of a message in RocketMQ's batches before its body: size, magic, checksum, flag, length of the body
_MAGIC = MAGIC_V1.to_bytes(4, "big", signed=True)
_ALIKE = slice(36, 40), slice(76, 88)  # sys_flag, prepared and length of the body
_WORDS = (12, 8, 4)  # where those of the checksum begin, before the end of a record
_STAMPS = np.dtype(
    {
        "names": ["queue_id", "queue_offset", "physical_offset", "stored_ms", "store_host"],
        "formats": [">i4", ">i8", ">i8", "V8", "V8"],
        "offsets": [12, 20, 28, 56, 64],
        "itemsize": 72,
    }
)


_LEAST, _MOST_ABOVE = np.uint8(3), np.uint8(0x7C)  # bytes of a usual value: 3 to 0x7f
_FIXED = frozenset({b"TAGS", CRC_NAME})


def _alike(texts: npt.NDArray[np.uint8], properties_at: int) -> Flags:
    """For each byte whether it is as it must be for its row to have the same names, lengths and tags as the first one, and else
    values as usual records have."""
    first, free = texts[0].tobytes(), bytearray(texts.shape[1])
    for pair in columns.each_pair(first, properties_at):
        if pair[1] not in _FIXED:
            begin, end = pair.span(2)
            free[begin:end] = b"\x01" * (end - begin)
    found, count = texts.reshape(-1), len(texts)  # one long row: numpy takes as long for a short one as for a hundred bytes
    right: Flags = np.frombuffer(free * count, np.bool_) & (found - _LEAST <= _MOST_ABOVE)
    right |= found == np.frombuffer(first * count, np.uint8)
    return right.reshape(texts.shape)


def _are_alike(rows: npt.NDArray[np.uint8], fields: Sequence[slice], text: slice, properties_at: int) -> bool:
    """Whether that holds for the `text` of all rows, and whether their `fields` are as in the first one."""
    parts = [rows[:, part] for part in (*fields, text)]
    before = sum(part.shape[1] for part in parts[:-1])
    return bool(_alike(np.concatenate(parts, axis=1), before + properties_at).all())


# --- checking ---------------------------------------------------------------------------------------------------------


def check_many(records: bytes, tag_of: Callable[[bytes], int | None]) -> Checked | None:
    """As `check`, for `MANY` records or more, all of the usual kind. `tag_of`: `fastpath.fast_check` of their topic."""
    one_size, count = columns.of_one_size(records)
    if count >= MANY and count * one_size == len(records) and (checked := _check_alike(records, one_size, tag_of)) is not None:
        return checked
    at, end = columns.starts(records)
    if len(at) < MANY or end != len(records):
        return None
    first = records[: at[1]]
    code = tag_of(first)
    head = columns.window(records, at, _HEAD.itemsize).view(_HEAD)[:, 0]
    if code is None or head["magic"][0] != MAGIC_V1:
        return None
    size, length, topic_at = head["size"].astype(np.int64), head["length"].astype(np.int64), 88 + int(head["length"][0])
    width = len(first) - topic_at  # of all behind the body
    right = _alike(columns.window(records, at + size - width, width), first[topic_at] + 3)
    usual: Flags = np.logical_and.reduce(right, axis=1)
    usual &= (length == size - 88 - width) & (length >= 0) & (head["magic"] == MAGIC_V1)
    usual &= (head["sys_flag"] == 0) & (head["prepared"] == 0)
    codes = np.full(len(at), code)
    for index in np.flatnonzero(~usual).tolist():
        other = tag_of(records[at[index] : at[index] + size[index]])
        if other is None:
            return None
        codes[index] = other
    body = at[usual] + 88
    if (head["body_crc"][usual] != columns.crcs(records, body, body + length[usual])).any():
        return None
    return Checked(tuple(size.tolist()), tuple(codes.tolist()))


def _check_alike(records: bytes, size: int, tag_of: Callable[[bytes], int | None]) -> Checked | None:
    """The same for records of one size and magic, where all are alike: with bodies of one length, the same names, and the same
    tag."""
    rows = np.frombuffer(records, np.uint8).reshape(-1, size)
    code, length = tag_of(records[:size]), int.from_bytes(records[84:88], "big")
    if code is None:
        return None
    topic_at = 88 + length
    if records[4:8] != _MAGIC or not _are_alike(rows, _ALIKE, slice(topic_at, None), records[topic_at] + 3):
        return None
    count = len(rows)
    if (np.ndarray((count,), _I4, records, 8, (size,)) != columns.crcs_in_rows(records, 88, count, size, length)).any():
        return None
    return Checked((size,) * count, (code,) * count)


# --- drafting ---------------------------------------------------------------------------------------------------------


def draft_many(
    topic: str, batch: bytes, born_timestamp: int, born_host: bytes, reconsume_times: int
) -> tuple[bytes, list[int], list[int]] | None:
    """The records of a batch as RocketMQ's clients send it [MessageDecoder.decodeMessages], back to back, their sizes, and the
    hashes of their tags; as `draft` makes each. None unless it has `MANY` messages or more, all of the usual kind."""
    magic, topic_field = topic_field_of(topic)
    if len(born_host) != 8 or not 0 <= reconsume_times < 1 << 31 or not 0 <= born_timestamp < 1 << 63:
        return None
    head = np.zeros((), _HEAD)
    head["magic"], head["born_ms"], head["born_host"] = magic, born_timestamp, np.void(born_host)
    head["reconsume_times"] = reconsume_times
    if (alike := _draft_alike(topic_field, batch, head)) is not None:
        return alike
    at = _items(batch)
    if not MANY <= len(at) <= _MOST:
        return None
    length, total = columns.ints(batch, at + 16, _I4), columns.ints(batch, at, _I4)
    body = at + _ITEM_BYTES
    body_end = body + length
    if (length <= 0).any() or (body_end + 2 > at + total).any():
        return None
    properties, end = body_end + 2, at + total
    if (properties + columns.ints(batch, body_end, _U2) != end).any():
        return None
    texts = [_closed(batch[start:stop]) for start, stop in zip(properties.tolist(), end.tolist(), strict=True)]
    widths = [len(text) + CRC_BYTES for text in texts]
    codes = _codes(batch, body_end, end, texts) if max(widths) <= MAX_PROPERTIES_BYTES + CRC_BYTES else None
    if codes is None:
        return None
    bodies = [batch[start:stop] for start, stop in zip(body.tolist(), body_end.tolist(), strict=True)]
    several = np.full(len(at), head)
    several["size"] = sizes = _HEAD.itemsize + length + len(topic_field) + 2 + np.array(widths)
    several["flag"], several["length"] = columns.ints(batch, at + 12, _I4), length
    several["body_crc"] = np.fromiter(map(crc32, bodies), np.int64, len(at)) & CRC_MASK
    raw, width = several.tobytes(), _HEAD.itemsize
    heads = [raw[place : place + width] for place in range(0, len(raw), width)]
    middles = {width: topic_field + width.to_bytes(2, "big") for width in set(widths)}
    parts = zip(heads, bodies, [middles[width] for width in widths], texts, strict=True)
    return EMPTY_CRC.join([*map(b"".join, parts), b""]), sizes.tolist(), codes


def _draft_alike(topic_field: bytes, batch: bytes, head: npt.NDArray[np.void]) -> tuple[bytes, list[int], list[int]] | None:
    """The same where all messages are alike: of one size, with bodies of one length, the same names, and the same tag. `head`:
    what all records have."""
    size, length = int.from_bytes(batch[:4], "big"), int.from_bytes(batch[16:20], "big")
    body_end = _ITEM_BYTES + length
    if not (length and body_end + 2 <= size <= len(batch) // MANY) or len(batch) % size or len(batch) // size > _MOST:
        return None
    properties = batch[body_end + 2 : size]
    first = fast_pairs(properties) if properties[-1:] in (b"", b"\x02") and len(properties) <= MAX_PROPERTIES_BYTES else None
    if first is None or int.from_bytes(batch[body_end : body_end + 2], "big") != len(properties):
        return None
    items = np.frombuffer(batch, np.uint8).reshape(-1, size)
    if not _are_alike(items, _SIZES, slice(body_end, None), 2):
        return None
    count, width = len(items), len(properties) + CRC_BYTES
    middle = topic_field + width.to_bytes(2, "big")
    topic_at = _HEAD.itemsize + length
    properties_at = topic_at + len(middle)
    total = properties_at + width
    made = np.empty((count, total), np.uint8)
    heads: npt.NDArray[np.void] = np.ndarray((count,), _HEAD, made, 0, (total,))
    heads[:] = head
    heads["size"], heads["length"] = total, length
    heads["body_crc"] = columns.crcs_in_rows(batch, _ITEM_BYTES, count, size, length)
    heads["flag"] = np.ndarray((count,), _I4, batch, 12, (size,))
    made[:, _HEAD.itemsize : topic_at] = items[:, _ITEM_BYTES:body_end]
    made[:, topic_at:properties_at] = np.frombuffer(middle, np.uint8)
    made[:, properties_at:-CRC_BYTES] = items[:, body_end + 2 :]
    made[:, -CRC_BYTES:] = np.frombuffer(EMPTY_CRC, np.uint8)
    return made.tobytes(), [total] * count, [_code(first)] * count


def _codes(batch: bytes, body_end: Ints, end: Ints, texts: list[bytes]) -> list[int] | None:
    """The hash of each tag; None unless all properties are of the usual kind."""
    first = fast_pairs(texts[0])
    if first is None:
        return None
    codes = [_code(first)] * len(texts)
    width = int(end[0] - body_end[0])
    right = _alike(columns.window(batch, body_end, width), 2)
    usual: Flags = np.logical_and.reduce(right, axis=1) & (end - body_end == width)
    for index in np.flatnonzero(~usual).tolist():
        match = fast_pairs(texts[index])
        if match is None:
            return None
        codes[index] = _code(match)
    return codes


def _code(match: re.Match[bytes]) -> int:
    tag = match[1]
    return 0 if tag is None else code_of(tag)


def _closed(properties: bytes) -> bytes:
    """With the last mark, which RocketMQ 4 leaves out."""
    return properties if properties[-1:] in (b"", b"\x02") else properties + b"\x02"


def _items(batch: bytes) -> Ints:
    """Where the messages begin, by their sizes alone; none if these do not add up."""
    room = len(batch)
    size = int.from_bytes(batch[:4], "big", signed=True)
    if size > _ITEM_BYTES and room % size == 0:  # all of one size, as often
        at = np.arange(0, room, size)
        if (columns.ints(batch, at, _I4) == size).all():
            return at
    found, place = list[int](), 0
    while room - place > _ITEM_BYTES and len(found) <= _MOST:
        found.append(place)
        size = int.from_bytes(batch[place : place + 4], "big", signed=True)
        if size <= _ITEM_BYTES:
            break
        place += size
    return np.array(found if place == room else [], np.int64)


# --- stamping ---------------------------------------------------------------------------------------------------------

Groups = Sequence[tuple[int, Sequence[int], int, int]]


def stamp_many(run: bytearray, groups: Groups, base: int, stored: bytes) -> bool:
    """As `record.stamp`, for records between IPv4 hosts. False if there are others: then nothing was done."""
    if all(len(sizes) >= MANY and sizes.count(sizes[0]) == len(sizes) for _, sizes, _, _ in groups):
        return _stamp_alike(run, groups, base, stored)
    counts = [len(sizes) for _, sizes, _, _ in groups]
    size = np.array(list(chain.from_iterable(sizes for _, sizes, _, _ in groups)))
    end = np.cumsum(size)
    firsts = np.cumsum([0, *counts[:-1]])
    starts = np.array([at for at, _, _, _ in groups])
    end += np.repeat(starts - (end - size)[firsts], counts)
    at = end - size
    bytes_ = np.frombuffer(run, np.uint8)
    if len(stored) != 16 or (bytes_[at + 39] & SYS_BORN_V6).any():
        return False
    heads: npt.NDArray[np.void] = np.ndarray((len(run) - _STAMPS.itemsize + 1,), _STAMPS, run, strides=(1,))
    heads["queue_id"][at] = np.repeat(_of(groups, 2), counts)
    heads["queue_offset"][at] = np.repeat(_of(groups, 3) - firsts, counts) + np.arange(len(at))
    heads["physical_offset"][at] = base + at
    heads["stored_ms"][at], heads["store_host"][at] = np.void(stored[:8]), np.void(stored[8:])
    words: npt.NDArray[np.uint32] = np.ndarray((len(run) - 3,), np.uint32, run, strides=(1,))
    for behind, word in zip(_WORDS, columns.crc_words(columns.crcs(run, at, end - CRC_BYTES)), strict=True):
        words[end - behind] = word
    return True


def _stamp_alike(run: bytearray, groups: Groups, base: int, stored: bytes) -> bool:
    """The same where all records of a group have one size."""
    sys_flags = [np.ndarray((len(sizes),), np.uint8, run, at + 39, (sizes[0],)) for at, sizes, _, _ in groups]
    if len(stored) != 16 or any((flags & SYS_BORN_V6).any() for flags in sys_flags):
        return False
    for at, sizes, queue_id, queue_offset in groups:
        size, count = sizes[0], len(sizes)
        heads: npt.NDArray[np.void] = np.ndarray((count,), _STAMPS, run, at, (size,))
        heads["queue_id"], heads["queue_offset"] = queue_id, np.arange(queue_offset, queue_offset + count)
        heads["physical_offset"] = np.arange(base + at, base + at + count * size, size)
        heads["stored_ms"], heads["store_host"] = np.void(stored[:8]), np.void(stored[8:])
        sums = columns.crcs_in_rows(run, at, count, size, size - CRC_BYTES)
        for behind, word in zip(_WORDS, columns.crc_words(sums), strict=True):
            np.ndarray((count,), np.uint32, run, at + size - behind, (size,))[:] = word
    return True


def _of(groups: Iterable[tuple[int, Sequence[int], int, int]], index: int) -> Ints:
    return np.array([group[index] for group in groups])
