"""Makes Arrow columns from a block of records: numpy and pyarrow cut out every value, no Python loop does.

Each maker takes a block and gives one array, of exactly the type that Spark wants. Unusual values (properties of another shape,
bytes that are not UTF-8) take a slow path, which gives what `rmq.log.records.properties` gives. No files, no Spark.
"""

from collections.abc import Callable, Sequence, Sized
from functools import lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from analytics.records.arrays import NO_TEXT, integers, numbers, optional, texts, truths
from analytics.stores.walk import Block, Flags, Ints
from rmq.log.records.record import SYS_BORN_V6, SYS_STORE_V6, bytes_to_properties, host_text, message_id

TIME = pa.timestamp("us", tz="UTC")
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_HEX = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)  # the two digits of each byte
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Pairs(NamedTuple):
    """The properties of a block's records: record n has [offsets[n], offsets[n + 1]) of `names` and `values`.

    `known`, `codes`: each name once, and which of them each of `names` is; None where every record has all of `known` in order.
    """

    offsets: Ints
    names: pa.Array
    values: pa.Array
    known: list[str]
    codes: Ints | None = None

    def named(self, name: str) -> pa.Array:
        """The value of that name in each record, null if the record lacks it."""
        count = len(self.offsets) - 1
        if name not in self.known:
            return pa.nulls(count, pa.string())
        code = self.known.index(name)
        if self.codes is None:
            return self.values.take(numbers(np.arange(code, len(self.values), len(self.known))))
        at = np.full(count, -1, np.int64)
        chosen = np.flatnonzero(self.codes == code)
        at[_rows(self.offsets)[chosen]] = chosen
        return self.values.take(optional(at, at >= 0))


class Columns:
    """The columns of one block. `bodies`: used in place of the stored ones. Arrays that several columns need are made once."""

    def __init__(self, block: Block, broker: str, bodies: pa.Array | None = None) -> None:
        self.block = block
        self._broker = broker
        self._bodies = bodies
        self._pairs: Pairs | None = None

    def make(self, name: str) -> pa.Array:
        return MAKERS[name](self)

    @property
    def pairs(self) -> Pairs:
        if self._pairs is None:
            self._pairs = _pairs(slices(self.block, self.block.properties, self.block.end))
        return self._pairs

    @property
    def topics(self) -> pa.DictionaryArray:
        return _text_dictionary(slices(self.block, self.block.topic, self.block.topic_end))

    def property(self, name: str) -> pa.Array:
        """That property of each record, null if the record lacks it."""
        return self.pairs.named(name)

    def topic(self) -> pa.Array:
        return _text(slices(self.block, self.block.topic, self.block.topic_end))

    def broker(self) -> pa.Array:
        return pa.repeat(texts([self._broker])[0], len(self.block))

    def keys(self) -> pa.Array:
        said = self.property("KEYS")
        given = truths(pc.is_valid(said))
        if _are_words(said, given):
            return pa.ListArray.from_arrays(_offsets(given.astype(np.int64)), said.drop_null())
        said = pc.utf8_trim_whitespace(said)
        there = np.flatnonzero(truths(pc.not_equal(said, NO_TEXT)))
        words = pc.utf8_split_whitespace(said.take(numbers(there)))
        counts = np.zeros(len(self.block), np.int64)
        counts[there] = integers(pc.list_value_length(words))
        return pa.ListArray.from_arrays(_offsets(counts), words.flatten())

    def properties(self) -> pa.Array:
        pairs = self.pairs
        return pa.MapArray.from_arrays(numbers(pairs.offsets, np.int32), pairs.names, pairs.values)

    def body(self) -> pa.Array:
        if self._bodies is not None:
            return self._bodies
        return slices(self.block, self.block.body, self.block.body_end)

    def born_host(self) -> pa.Array:
        return _hosts(self.block, self.block.at + 48, self.block.head["sys_flag"] & SYS_BORN_V6)

    def store_host(self) -> pa.Array:
        return _hosts(self.block, self.block.store + 8, self.block.head["sys_flag"] & SYS_STORE_V6)

    def message_id(self) -> pa.Array:
        offsets = np.ascontiguousarray(self.block.head["physical_offset"], ">i8")  # joined blocks have native numbers
        if (self.block.head["sys_flag"] & SYS_STORE_V6).any() or not len(offsets):
            hosts = slices(self.block, self.block.store + 8, self.block.reconsume).to_pylist()
            return texts([message_id(host, offset) for host, offset in zip(hosts, offsets.tolist(), strict=True)])
        raw = np.empty((len(offsets), 16), np.uint8)
        raw[:, :8] = self.block.window(self.block.store + 8, 8)
        raw[:, 8:] = offsets.view(np.uint8).reshape(-1, 8)
        text = _HEX.take(raw)
        ends = numbers(np.arange(0, 32 * len(text) + 1, 32), np.int32)
        return pa.StringArray.from_buffers(len(offsets), ends.buffers()[1], pa.py_buffer(text))

    def headers(self) -> pa.Array:
        pairs = self.pairs
        both = pa.StructArray.from_arrays([pairs.names, pairs.values.cast(pa.binary())], fields=list(_HEADERS.value_type))
        return pa.ListArray.from_arrays(numbers(pairs.offsets, np.int32), both, type=_HEADERS)


def _numeric(name: str, kind: pa.DataType) -> Callable[[Columns], pa.Array]:
    native = np.int32 if kind == pa.int32() else np.int64
    return lambda columns: numbers(columns.block.head[name], native)


def _constant(value: int) -> Callable[[Columns], pa.Array]:
    return lambda columns: pa.repeat(numbers([value], np.int32)[0], len(columns.block))


def times(milliseconds: Ints) -> pa.Array:
    """Timestamps for Spark. A client may claim any 64-bit born time: it is limited to the years 1 to 9999."""
    return numbers(np.clip(milliseconds.astype(np.int64), _FIRST_MS, _LAST_MS) * 1000).view(TIME)


MAKERS: dict[str, Callable[[Columns], pa.Array]] = {
    "topic": Columns.topic,
    "queue_id": _numeric("queue_id", pa.int32()),
    "queue_offset": _numeric("queue_offset", pa.int64()),
    "physical_offset": _numeric("physical_offset", pa.int64()),
    "born_timestamp": lambda columns: times(columns.block.head["born_ms"]),
    "store_timestamp": lambda columns: times(columns.block.ints(columns.block.store)),
    "born_host": Columns.born_host,
    "store_host": Columns.store_host,
    "tags": lambda columns: columns.property("TAGS"),
    "keys": Columns.keys,
    "properties": Columns.properties,
    "body": Columns.body,
    "flag": _numeric("flag", pa.int32()),
    "sys_flag": _numeric("sys_flag", pa.int32()),
    "reconsume_times": lambda columns: numbers(columns.block.ints(columns.block.reconsume, np.dtype(">i4")), np.int32),
    "size": _numeric("size", pa.int32()),
    "broker_name": Columns.broker,
    "msg_id": Columns.message_id,
    "uniq_key": lambda columns: columns.property("UNIQ_KEY"),
    # Kafka's names
    "key": lambda columns: columns.property("KEYS").cast(pa.binary()),
    "value": Columns.body,
    "partition": _numeric("queue_id", pa.int32()),
    "offset": _numeric("queue_offset", pa.int64()),
    "timestamp": lambda columns: times(columns.block.ints(columns.block.store)),
    "timestampType": _constant(1),  # the time of appending, in Kafka's numbers
    "headers": Columns.headers,
}


def slices(block: Block, starts: Ints, stops: Ints) -> pa.Array:
    """data[start:stop] of every record, as binary. The cuts must be in order and not overlap."""
    edges = np.empty(2 * len(starts), np.int32)
    edges[0::2], edges[1::2] = starts, stops
    pieces = max(len(edges) - 1, 0)
    every = pa.Array.from_buffers(pa.binary(), pieces, [None, pa.py_buffer(edges), pa.py_buffer(block.data)])
    return every.take(numbers(np.arange(0, pieces, 2)))


def _are_words(array: pa.Array, given: Flags) -> bool:
    """Whether each text that is given is surely one word: not empty, and no byte is a space or may be part of one."""
    edges = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(array.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    return bool((np.diff(edges)[given] > 0).all() and ((raw > ord(" ")) & (raw < 0x80)).all())


def _text(array: pa.Array) -> pa.Array:
    """Text from UTF-8 bytes, with U+FFFD for bad bytes."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode("utf-8", "replace") for each in array.to_pylist()], pa.string())


def _text_dictionary(array: pa.Array) -> pa.DictionaryArray:
    found = array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices, _text(found.dictionary))


def _hosts(block: Block, at: Ints, v6: Ints) -> pa.Array:
    """The text of the address at each place. `v6`: not 0 where it is an IPv6 address."""
    if v6.any():
        found = slices(block, at, at + np.where(v6, 20, 8)).dictionary_encode()
        return texts(list(map(_host_text, found.dictionary.to_pylist()))).take(found.indices)
    as_numbers = block.ints(at)
    if len(at) and (as_numbers == as_numbers[0]).all():
        return pa.repeat(texts([_host_text(block.data[at[0] : at[0] + 8])])[0], len(at))
    found = numbers(as_numbers).dictionary_encode()
    hosts = [each.to_bytes(8, "big", signed=True) for each in found.dictionary.to_pylist()]
    return texts([*map(_host_text, hosts)]).take(found.indices)


@lru_cache(maxsize=4096)
def _host_text(host: bytes) -> str:
    return host_text(host)


# --- properties -------------------------------------------------------------------------------------------------------


def _pairs(stored: pa.Array) -> Pairs:
    if len(stored) == 0:
        return _slow_pairs([])
    found = _quick_pairs(stored) or _quick_pairs(_closed(stored))
    return found or _slow_pairs(stored.to_pylist())


def _closed(stored: pa.Array) -> pa.Array:
    """The properties, each with the closing mark that RocketMQ 4 leaves out."""
    closed = pc.binary_join_element_wise(stored, b"\x02", b"")
    is_open = pc.and_(pc.invert(pc.ends_with(stored, b"\x02")), pc.greater(pc.binary_length(stored), 0))
    return pc.if_else(is_open, closed, stored)


def _quick_pairs(stored: pa.Array) -> Pairs | None:
    """The pairs if all properties are (name 0x01 value 0x02)*, without an empty name or value, or a name twice; else None."""
    raw, ends = _marks(stored)
    if raw is None:
        return None
    first, second = np.flatnonzero(raw == 1), np.flatnonzero(raw == 2)
    starts = np.concatenate(([0], second[:-1] + 1)) if len(second) else second
    if len(first) != len(second) or not ((starts < first) & (first + 1 < second)).all():
        return None
    edges = np.empty(4 * len(first) + 1, np.int32)
    edges[0:-1:4], edges[1::4], edges[2::4], edges[3::4], edges[-1] = starts, first, first + 1, second, len(raw)
    kind = pa.string() if (raw < 0x80).all() else pa.binary()  # ASCII is surely text: no need to look at each value
    every = pa.Array.from_buffers(kind, 4 * len(first), [None, pa.py_buffer(edges), pa.py_buffer(raw)])
    which = np.arange(0, 4 * len(first), 4)
    offsets = _marks_before(second, ends)
    names = every.take(numbers(which))
    try:
        values = every.take(numbers(which + 2)).cast(pa.string())
        return _alike(offsets, names, values) or _checked(offsets, _plain_dictionary(names), values)
    except pa.ArrowInvalid:
        return None


def _marks_before(marks: Ints, ends: Ints) -> Ints:
    """How many marks stand before each record and before the end of the last one."""
    each = len(marks) // len(ends)
    if each and each * len(ends) == len(marks) and (marks[each - 1 :: each] == ends - 1).all():  # as many in each record
        return np.arange(0, len(marks) + 1, each)
    return np.concatenate(([0], np.searchsorted(marks, ends).astype(np.int64)))


def _alike(offsets: Ints, names: pa.Array, values: pa.Array) -> Pairs | None:
    """The pairs if all records have the names of the first one, in its order, and none twice; else None."""
    count, each = len(offsets) - 1, int(offsets[1])
    known = names[:each].cast(pa.string()).to_pylist()
    if not each or len(set(known)) < each or (np.diff(offsets) != each).any():
        return None
    _, said_edges, said_text = names.buffers()
    size, room = 4 * len(names) + 4, count * sum(len(name.encode()) for name in known)
    if int(np.frombuffer(said_edges, np.int32)[len(names)]) != room:  # long names of the first one, so often, may be gigabytes
        return None
    every = _repeated(tuple(known), 1 << (count - 1).bit_length())[: len(names)]
    _, edges, text = every.buffers()
    if not said_edges[:size].equals(edges[:size]) or not said_text[:room].equals(text[:room]):
        return None
    return Pairs(offsets, every, values, known)


@lru_cache(maxsize=8)
def _repeated(names: tuple[str, ...], times: int) -> pa.Array:
    """The names in a row, so often. Blocks that follow each other use the same."""
    raw = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, raw)])
    edges = np.append((np.arange(times) * ends[-1])[:, None] + ends[:-1], times * ends[-1]).astype(np.int32)
    text = pa.py_buffer(b"".join(raw) * times)
    return pa.Array.from_buffers(pa.string(), times * len(raw), [None, pa.py_buffer(edges), text])


def _marks(stored: pa.Array) -> tuple[npt.NDArray[np.uint8] | None, Ints]:
    """The bytes of all properties back to back, and where each record's end; None if one does not end with the mark."""
    edges = np.frombuffer(stored.buffers()[1], np.int32)[stored.offset : stored.offset + len(stored) + 1].astype(np.int64)
    data = stored.buffers()[2]
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    raw, ends = whole[edges[0] : edges[-1]], edges[1:] - edges[0]
    filled = np.diff(edges) > 0
    if not (raw[ends[filled] - 1] == 2).all():
        return None, ends
    return raw, ends


def _plain_dictionary(names: pa.Array) -> pa.DictionaryArray:
    found = names.dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices, found.dictionary.cast(pa.string()))


def _checked(offsets: Ints, names: pa.DictionaryArray, values: pa.Array) -> Pairs | None:
    """None if a record has a name twice."""
    codes = integers(names.indices)
    found = Pairs(offsets, names.cast(pa.string()), values, names.dictionary.to_pylist(), codes)
    marked = np.sort(_rows(offsets) * max(len(found.known), 1) + codes)
    return None if (marked[1:] == marked[:-1]).any() else found


def _slow_pairs(stored: Sequence[bytes]) -> Pairs:
    maps = [bytes_to_properties(each) for each in stored]
    names = pa.array(list(chain.from_iterable(maps)), pa.string()).dictionary_encode()
    values = pa.array(list(chain.from_iterable(map(dict.values, maps))), pa.string())
    codes = integers(names.indices)
    return Pairs(_ends(maps), names.cast(pa.string()), values, names.dictionary.to_pylist(), codes)


def _ends(values: Sequence[Sized]) -> Ints:
    return np.array([0, *accumulate(map(len, values))], np.int64)


def _rows(offsets: Ints) -> Ints:
    """The record of each pair."""
    found: Ints = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return found


def _offsets(counts: Ints) -> pa.Array:
    return numbers(np.concatenate(([0], np.cumsum(counts))), np.int32)
