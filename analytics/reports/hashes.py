"""64-bit hashes of many texts at once, the same in every process. Not secure: anybody can make two texts with one hash."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
_WORD = np.dtype("<u8")
_SHORT = (np.uint64(1) << (np.arange(8, dtype=np.uint64) * np.uint64(8))) - np.uint64(1)  # masks of 0 to 7 bytes


def hash_texts(texts: pa.Array) -> Hashes:
    """The hash of each text; null has the hash of ""."""
    edges = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = texts.buffers()[2]
    raw = np.zeros((data.size if data else 0) + 8, np.uint8)
    if data:
        raw[:-8] = np.frombuffer(data, np.uint8)
    words = np.lib.stride_tricks.as_strided(raw, (len(raw) - 7, 8), (1, 1), writeable=False)
    starts, lengths = edges[:-1], np.diff(edges)
    found = mixed(lengths.astype(np.uint64))
    for at in range(0, int(lengths.max(initial=0)), 8):
        rows = slice(None) if (lengths > at).all() else np.flatnonzero(lengths > at)
        word = words[starts[rows] + at].view(_WORD)[:, 0]
        left = lengths[rows] - at
        if (left < 8).any():
            word = np.where(left < 8, word & _SHORT[np.minimum(left, 7)], word)
        found[rows] = mixed(found[rows] ^ word)
    return found


def both(one: Hashes, other: Hashes) -> Hashes:
    """The hash of a pair."""
    return mixed(mixed(one) ^ other)


def mixed(value: Any) -> Hashes:
    """Mixes each bit of a number into all its bits. [the finalizer of SplitMix64]"""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Hashes = value ^ (value >> np.uint64(31))
    return found
