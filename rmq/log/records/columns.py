"""Many records at once, with numpy: where they are in a block of the log, where their parts are, what their properties say.

`rmq.log.records.record` says what a whole record is; here the same layout is written for all records of a block. Only nodes
and analytics import this: clients do without numpy. Pure: bytes in, arrays out.
"""

import re
from array import array
from itertools import compress
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmq.javahash import java_hash, utf16_length
from rmq.log.records.crc import crc32
from rmq.log.records.properties import CRC_BYTES, CRC_NAME
from rmq.log.records.record import BLANK_MAGIC, CRC_MASK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

HEAD = np.dtype([
    ("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"),
    ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born_ms", ">i8"),
])  # fmt: skip
_I4, _I8, _U1, _U2, _U8 = map(np.dtype, (">i4", ">i8", "u1", ">u2", ">u8"))
_size_and_magic = Struct(">ii").unpack_from
_NAME_BYTES = 8  # of a name that are read at once
_FEW = 64  # places, of which nobody asks how far apart they are
_MANY_ALIKE, _LEAST_SHARE = 64, 4  # a further group of so many records, and every fourth one of those left, is looked at together
_MAX_VALUE = 1 << 16  # the length of all properties takes two bytes
POWERS: Hashes = np.multiply.accumulate(np.array([1, *[31] * _MAX_VALUE], np.uint32), dtype=np.uint32)
"""31 to the power of each index, modulo 2^32."""


def _words(before: bytes, digits: int, after: bytes) -> Hashes:
    """Four bytes for each number of so many digits, the last digit first."""
    rows = np.empty((10**digits, 4), np.uint8)
    rows[:, : len(before)] = np.frombuffer(before, np.uint8)
    rows[:, len(before) : len(before) + digits] = np.arange(10**digits)[:, None] // 10 ** np.arange(digits) % 10 + ord("0")
    rows[:, len(before) + digits :] = np.frombuffer(after, np.uint8)
    return rows.view(np.uint32)[:, 0]


_NAME_WORDS = np.frombuffer(CRC_NAME, np.uint32)
_LAST_THREE, _NEXT_FOUR, _FIRST_THREE = _words(b"\x01", 3, b""), _words(b"", 4, b""), _words(b"", 3, b"\x02")


class Block(NamedTuple):
    """Whole records in `data`.

    The arrays have one number for each record: where it and its parts begin in `data`; `properties` ends at `end`. `head`:
    its first 48 bytes as fields.
    """

    data: bytes
    at: Ints
    end: Ints
    head: npt.NDArray[Any]
    store: Ints
    reconsume: Ints
    body: Ints
    body_end: Ints
    topic: Ints
    topic_end: Ints
    properties: Ints

    def __len__(self) -> int:  # of records
        return len(self.at)

    def only(self, chosen: Any) -> "Block":
        """The block with only these records (indices, flags or a slice)."""
        return Block(self.data, *(column[chosen] for column in self[1:]))

    def window(self, at: Ints, width: int) -> npt.NDArray[np.uint8]:
        return window(self.data, at, width)

    def ints(self, at: Ints, kind: np.dtype[Any] = _I8) -> Ints:
        return ints(self.data, at, kind)


def layout(data: bytes, at: Ints) -> tuple[Block, Flags]:
    """The parts of the records that begin `at`, and which records have parts that add up."""
    head = window(data, at, HEAD.itemsize).view(HEAD)[:, 0]
    v6, wide = head["sys_flag"] & 0x30, head["magic"] == MAGIC_V2
    if v6.any():
        store = at + np.where(v6 & 0x10, 68, 56)
        reconsume = store + np.where(v6 & 0x20, 28, 16)
    else:
        store, reconsume = at + 56, at + 72
    body, end = reconsume + 16, at + head["size"]
    length = ints(data, body - 4, _I4)
    body_end = body + length
    topic = body_end + np.where(wide, 2, 1)
    good = (length >= 0) & (topic + 2 <= end)
    good &= (head["magic"] == MAGIC_V1) | wide
    topic_end = topic + ints(data, body_end, _U1)
    if wide.any():
        topic_end = np.where(wide, topic + ints(data, body_end, _U2), topic_end)
    properties = topic_end + 2
    good &= properties <= end
    good &= properties + ints(data, topic_end, _U2) == end
    return Block(data, at, end, head, store, reconsume, body, body_end, topic, topic_end, properties), good


def starts(data: bytes) -> tuple[Ints, int]:
    """Where the whole records at the beginning of `data` begin, by their sizes alone, and where the last one ends.

    The walk stops before a filler, before a record that is cut off, and before bytes that are no record. Records of one size,
    as batches often have, are found at once.
    """
    room, found = len(data), list[int]()
    first_size, count = of_one_size(data)
    at = count * first_size
    while at + MIN_RECORD_BYTES <= room:
        size, magic = _size_and_magic(data, at)
        if size < MIN_RECORD_BYTES or at + size > room or magic == BLANK_MAGIC:
            break
        found.append(at)
        at += size
    return np.concatenate((np.arange(count) * first_size, np.array(found, np.int64))), at


def of_one_size(data: bytes) -> tuple[int, int]:
    """Size and count of the records at the beginning that have the first one's size and magic."""
    size, magic = _size_and_magic(data) if len(data) >= MIN_RECORD_BYTES else (0, BLANK_MAGIC)
    if size < MIN_RECORD_BYTES or magic == BLANK_MAGIC:
        return 0, 0
    heads: npt.NDArray[np.int64] = np.ndarray((len(data) // size,), _I8, data, strides=(size,))
    same = heads == (size << 32 | magic & 0xFFFF_FFFF)
    return size, len(same) if same.all() else int(same.argmin())


def are_whole(block: Block, base: int, protected: bool) -> Flags:
    """Which of these records `record.verify` would pass; their parts add up, and their block begins at `base` of the log."""
    body_crc = crcs(block.data, block.body, block.body_end)
    right = (block.head["physical_offset"] == base + block.at) & (block.head["body_crc"] == body_crc)
    if protected:
        tail = block.end - CRC_BYTES
        right &= (tail >= block.properties) & say_crcs(block.data, tail, crcs(block.data, block.at, tail))
    found: Flags = right
    return found


def crcs(data: bytes | bytearray, start: Ints, stop: Ints) -> Ints:
    width = int(stop[0] - start[0]) if len(start) else 0
    step = _step(data, start, width)
    if 0 < width <= step and (stop - start == width).all():
        return crcs_in_rows(data, int(start[0]), len(start), step, width)
    view = memoryview(data)
    return _sums([crc32(view[begin:end]) for begin, end in zip(start.tolist(), stop.tolist(), strict=True)])


def crcs_in_rows(data: bytes | bytearray, first: int, count: int, step: int, width: int) -> Ints:
    """Of `width` bytes at `first`, and `step` bytes further on, and so on: one after the other is cut out."""
    view, last = memoryview(data), first + (count - 1) * step
    found = [crc32(span) for (span,) in Struct(f"{width}s{step - width}x").iter_unpack(view[first:last])]
    found.append(crc32(view[last : last + width]))
    return _sums(found)


def _sums(found: list[int]) -> Ints:
    sums = array("I", found)  # numpy takes twice as long to take integers over
    return np.frombuffer(sums, np.uint32).astype(np.int64) & CRC_MASK


def say_crcs(data: bytes, at: Ints, sums: Ints) -> Flags:
    """Whether the property with this checksum is at each place."""
    said = window(data, at, CRC_BYTES).view(np.uint32)
    words = (*_NAME_WORDS, *crc_words(sums))
    found: Flags = said[:, 0] == words[0]
    for index in range(1, len(words)):
        found &= said[:, index] == words[index]
    return found


def crc_words(sums: Ints) -> tuple[Hashes, Hashes, Hashes]:
    """The last twelve bytes of that property, four in each word: a mark, the ten digits from the last one on, a mark."""
    front = sums // 1000
    first = front // 10_000
    return _LAST_THREE[sums - 1000 * front], _NEXT_FOUR[front - 10_000 * first], _FIRST_THREE[first]


def window(data: bytes, at: Ints, width: int) -> npt.NDArray[np.uint8]:
    """`width` bytes from each place, as rows; a place too near to the end is moved back."""
    if step := _step(data, at, width):
        return np.ndarray((len(at), width), np.uint8, data, int(at[0]), (step, 1))
    return _items(data, at, np.dtype((np.void, width))).view(np.uint8).reshape(-1, width)


def ints(data: bytes, at: Ints, kind: np.dtype[Any]) -> Ints:
    """The numbers of that kind at each place."""
    return _items(data, at, kind).astype(np.int64)


def _items(data: bytes, at: Ints, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """The bytes at each place, read as `kind`; where these lie equally far apart, they are looked at where they are."""
    if step := _step(data, at, kind.itemsize):
        return np.ndarray((len(at),), kind, data, int(at[0]), (step,))
    count = max(len(data) - kind.itemsize + 1, 0)
    every: npt.NDArray[Any] = np.ndarray((count,), kind, data, strides=(1,))
    found: npt.NDArray[Any] = every[np.minimum(np.maximum(at, 0), count - 1)]
    return found


def _step(data: bytes | bytearray, at: Ints, width: int) -> int:
    """How far each place is from the one before; 0 if they are not equally far apart, in order, or few, or if `data` has not
    `width` bytes at each."""
    last = len(at) - 1
    if last < _FEW:
        return 0
    first, second = at[:2].tolist()
    step: int = second - first
    end = first + last * step
    inside = first >= 0 and end + width <= len(data)
    return step if inside and step > 0 and at.item(last) == end and (at[1:] - at[:-1] == step).all() else 0


# --- properties -------------------------------------------------------------------------------------------------------

Values = tuple[Ints, Ints, Ints]
"""For each value: its record (index in the block), where it begins, and where it ends."""


class Alike(NamedTuple):
    """Properties of `records`, `width` bytes each, back to back in `text`; all have the same names at the same places.

    `spans`: where in each of them the value of a name is. `varying`: which of their bytes differ from the first one's somewhere;
    `values`: these, a row for each record.
    """

    text: bytes
    records: Ints
    width: int
    spans: dict[bytes, tuple[int, int]]
    varying: Ints
    values: npt.NDArray[np.uint8]

    def named(self, name: bytes) -> Values:
        """The values of that name in `text`, in order: the last one if a record has several, and no empty ones."""
        start, stop = self.spans.get(name, (0, 0))
        rows = np.arange(len(self.records) if stop > start else 0) * self.width
        return self.records[: len(rows)], rows + start, rows + stop

    def hashes(self, name: bytes) -> tuple[Ints, Hashes, Ints]:
        """For each value that `named` finds: its record, Java's hash of it, and its length in UTF-16 units (or one length: that
        of all). Only bytes that vary are looked at."""
        start, stop = self.spans.get(name, (0, 0))
        columns = slice(*self.varying.searchsorted((start, stop)).tolist())
        values, first = self.values[:, columns], self.text[start:stop]
        if start == stop or not first.isascii() or (values > 127).any():
            records, starts_, stops = self.named(name)
            return records, *java_hashes(self.text, starts_, stops)
        powers = POWERS[: stop - start][::-1]
        found: Hashes = (values - values[:1].astype(np.uint32)) @ powers[self.varying[columns] - start]
        found += np.frombuffer(first, np.uint8) @ powers
        return self.records, found, np.array([stop - start])

    def may_name(self, mark: bytes) -> bool:
        """Whether a record may have a property whose name ends like this; `mark`: with the 0x01 behind it."""
        return mark in self.text[: self.width]


class Mixed(NamedTuple):
    """Properties of `records`, back to back in `text`; those of each begin at one of `edges`.

    For each pair: where its name begins, the length and the first 8 bytes of the name, and where its value is: [value, stop).
    """

    text: bytes
    records: Ints
    edges: Ints
    name: Ints
    length: Ints
    head: npt.NDArray[np.uint64]
    value: Ints
    stop: Ints

    def named(self, name: bytes) -> Values:
        """Like `Alike.named`, for a name of at most 8 bytes."""
        same = self.head >> np.uint64(8 * (_NAME_BYTES - len(name))) == int.from_bytes(name, "big")
        chosen = np.flatnonzero(same & (self.length == len(name)) & (self.stop > self.value))
        rows = np.searchsorted(self.edges, self.name[chosen], "right") - 1
        last = np.ones(len(rows), np.bool_)
        last[:-1] = rows[1:] != rows[:-1]
        return self.records[rows[last]], self.value[chosen[last]], self.stop[chosen[last]]

    def hashes(self, name: bytes) -> tuple[Ints, Hashes, Ints]:
        """Like `Alike.hashes`."""
        records, start, stop = self.named(name)
        return records, *java_hashes(self.text, start, stop)

    def may_name(self, mark: bytes) -> bool:
        """Like `Alike.may_name`."""
        return mark in self.text


Properties = tuple[list[Alike | Mixed], Ints]


def properties(block: Block) -> Properties:
    """The properties of a block's records, and the records (indices) whose properties are not pairs and nothing else.

    Those lack the last mark, as Apache RocketMQ 4 writes them, or have too many marks.
    """
    widths, left = block.end - block.properties, np.arange(len(block))
    parts: list[Alike | Mixed] = []
    while len(left):
        same = widths[left] == np.bincount(widths[left]).argmax()
        count = np.count_nonzero(same)
        if (parts and count < _MANY_ALIKE) or _LEAST_SHARE * count < len(left):
            break
        alike, unlike = _alike(block, left[same])
        parts.append(alike)
        left = np.sort(np.concatenate((unlike, left[~same])))
        if len(unlike) > len(alike.records):  # what has one width looks different
            break
    if parts and not len(left):
        return parts, left
    mixed, others = _mixed(block, left)
    return [*parts, mixed], others


def _alike(block: Block, records: Ints) -> tuple[Alike, Ints]:
    """Those of `records`, whose properties have one width, that look like the first of them; and the others."""
    width = int(block.end[records[0]] - block.properties[records[0]])
    text = block.window(block.properties[records], width).tobytes() if width else b""
    texts, first = np.frombuffer(text, np.uint8).reshape(len(records), width), text[:width]
    if not _are_pairs(first):
        return Alike(b"", records[:0], 0, {}, records[:0], texts[:0]), records
    is_value = np.zeros(width, np.bool_)
    spans: dict[bytes, tuple[int, int]] = {}
    for pair in each_pair(first):
        is_value[slice(*pair.span(2))] = True
        if pair[2]:
            spans[pair[1]] = pair.span(2)
    varying = _varying_columns(texts)
    values, in_value = texts[:, varying], is_value[varying]
    wrong = (values - 1 < 2) & in_value
    if not in_value.all():
        wrong |= (values != values[0]) & ~in_value
    if not wrong.any():
        return Alike(text, records, width, spans, varying, values), records[:0]
    unlike = wrong.any(axis=1)
    return Alike(texts[~unlike].tobytes(), records[~unlike], width, spans, varying, values[~unlike]), records[unlike]


def _varying_columns(rows: npt.NDArray[np.uint8]) -> Ints:
    """In which columns not all bytes are as in the first row."""
    differ = rows ^ rows[0]
    while len(differ) > 8:  # half and half: numpy's own reduction goes row by row
        half = (len(differ) + 1) // 2
        differ = differ[:half] | differ[-half:]
    return np.flatnonzero(np.bitwise_or.reduce(differ, axis=0))


def _mixed(block: Block, records: Ints) -> tuple[Mixed, Ints]:
    """Those of `records` whose properties are pairs, and the others."""
    spans = zip(block.properties[records].tolist(), block.end[records].tolist(), strict=True)
    stored = [block.data[start:stop] for start, stop in spans]
    found = _pairs(stored, records)
    if found is not None:
        return found, records[:0]
    good = [_are_pairs(each) is not None for each in stored]
    found = _pairs(list(compress(stored, good)), records[good])
    assert found is not None
    return found, records[np.logical_not(good)]


_are_pairs = re.compile(rb"(?:[^\x01\x02]*+\x01[^\x01\x02]*+\x02)*").fullmatch
each_pair = re.compile(rb"([^\x01\x02]*+)\x01([^\x01\x02]*+)\x02").finditer


def _pairs(stored: list[bytes], records: Ints) -> Mixed | None:
    """None unless all properties are (name 0x01 value 0x02)*."""
    edges = np.cumsum([0, *map(len, stored)])
    text = b"".join([*stored, bytes(_NAME_BYTES)])
    raw = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(raw - 1 < 2)
    middle, stop = marks[::2], marks[1::2]
    ends = edges[1:][np.diff(edges) > 0]
    if len(marks) % 2 or (raw[middle] != 1).any() or (raw[stop] != 2).any() or (raw[ends - 1] != 2).any():
        return None
    name = np.concatenate((edges[:1], stop[:-1] + 1))[: len(stop)]
    return Mixed(text, records, edges, name, middle - name, _items(text, name, _U8).astype(np.uint64), middle + 1, stop)


# --- Java's hash ------------------------------------------------------------------------------------------------------


def java_hashes(data: bytes, start: Ints, stop: Ints) -> tuple[Hashes, Ints]:
    """Java's hash of each text (UTF-8) [String.hashCode], and its length in UTF-16 units."""
    lengths = stop - start
    found, units = np.zeros(len(start), np.uint32), lengths.copy()
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        chosen = np.flatnonzero(lengths == length)
        texts = window(data, start[chosen], length)
        found[chosen] = texts @ POWERS[:length][::-1]
        strange = texts > 127
        for index in chosen[strange.any(axis=1)].tolist() if strange.any() else ():  # row by row is slow
            text = data[start[index] : stop[index]].decode("utf-8", "replace")
            found[index], units[index] = java_hash(text) & 0xFFFF_FFFF, utf16_length(text)
    return found, units
