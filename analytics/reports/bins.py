"""Histograms whose bins grow with the value, 8 bins for each doubling: they add up, and percentiles are right to 9 %. Pure."""

from collections.abc import Mapping

import numpy as np

from analytics.stores.walk import Ints

_BINS = 8  # to a doubling
NEGATIVE = -1


def bins(values: Ints) -> Ints:
    """The bin of each value: bin 0 is for the value 0, bin NEGATIVE for all values below."""
    found = np.floor(np.log2(np.maximum(values, 1)) * _BINS).astype(np.int64) + 1
    return np.where(values > 0, found, np.where(values < 0, NEGATIVE, 0))


def percentile(counts: Mapping[int, int], share: float) -> int:
    """The value that this share of all values does not exceed, rounded up to the end of its bin; 0 if there are no values."""
    wanted, seen = share * sum(counts.values()), 0
    for each in sorted(counts):
        seen += counts[each]
        if seen >= wanted:
            return upper_end(each)
    return 0


def upper_end(of: int) -> int:
    """The largest whole value in a bin; -1 for the bin of negative values."""
    if of <= 0:
        return of
    return max(int(np.ceil(2 ** (of / _BINS))) - 1, 1)
