"""Arrow arrays from numpy arrays and from texts, and back, without pandas.

`pyarrow.array`, `pyarrow.scalar` and `to_numpy` import pandas to find out whether they were given something of it. That takes
most of a second, and each of Spark's Python workers is a new process.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> pa.Array:
    """Integers as `dtype` (None: as they are). An array that already has this type shares its memory with the result."""
    plain = np.ascontiguousarray(values, dtype)
    return pa.Array.from_buffers(pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)])


def optional(values: npt.NDArray[np.int64], there: npt.NDArray[np.bool_]) -> pa.Array:
    """Integers, null where `there` is false."""
    return pa.Array.from_buffers(pa.int64(), len(values), [_bits(there), pa.py_buffer(np.ascontiguousarray(values))])


def flags(values: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def texts(values: Sequence[str]) -> pa.Array:
    raw = [value.encode() for value in values]
    edges = np.cumsum([0, *map(len, raw)]).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(edges), pa.py_buffer(b"".join(raw))])


def integers(array: pa.Array) -> npt.NDArray[np.int64]:
    """The values of an array of 32-bit integers without nulls."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array)].astype(np.int64)


def truths(array: pa.Array) -> npt.NDArray[np.bool_]:
    """The values of an array of booleans; null counts as false."""
    if not len(array):
        return np.empty(0, np.bool_)
    valid, bits = (_unpacked(each, array) for each in array.buffers())
    return valid & bits


def _unpacked(bits: pa.Buffer | None, array: pa.Array) -> npt.NDArray[np.bool_]:
    if bits is None:
        return np.full(len(array), True)
    every = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return every[array.offset : array.offset + len(array)].astype(np.bool_)


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


NO_TEXT = texts([""])[0]
