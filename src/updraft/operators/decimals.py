"""Exact sums of decimal128 columns, vectorised.

Arrow's own sum wraps around silently beyond 38 digits. Here a value is cut into four 32-bit limbs, the limbs
are summed as 64-bit integers (exact for up to 2**31 rows) and carried, so an overflow is seen and can be
raised.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.operators.arrays import Bools, words128

Int64s = npt.NDArray[np.int64]
Limbs = tuple[Int64s, Int64s, Int64s, Int64s]

_LOW = np.int64(0xFFFFFFFF)
_BITS = np.int64(32)
_LIMIT = 10**38


def limbs(array: pa.Array, valid: Bools | None) -> Limbs:
    """Four 32-bit limbs, least significant first, the last one signed; nulls count as zero."""
    words = words128(array)
    if valid is not None:
        words = np.where(valid[:, None], words, np.int64(0))
    low, high = words[:, 0], words[:, 1]
    return low & _LOW, (low >> _BITS) & _LOW, high & _LOW, high >> _BITS


def fold_limbs(parts: Limbs, fold: Callable[[Int64s], Int64s]) -> Limbs:
    """Apply a sum to each limb."""
    return fold(parts[0]), fold(parts[1]), fold(parts[2]), fold(parts[3])


def add_limbs(left: Limbs, right: Limbs) -> Limbs:
    """Sum row by row."""
    return left[0] + right[0], left[1] + right[1], left[2] + right[2], left[3] + right[3]


def from_limbs(parts: Limbs, dtype: pa.DataType, valid: Bools | None) -> tuple[pa.Array, Bools]:
    """Decimals of summed limbs, and where they do not fit into 38 digits."""
    a, b, c, top = parts
    b = b + (a >> _BITS)
    c = c + (b >> _BITS)
    top = top + (c >> _BITS)
    low = ((b & _LOW) << _BITS) | (a & _LOW)
    high = (top << _BITS) | (c & _LOW)
    too_big = (top < -(2**31)) | (top >= 2**31) | _beyond_limit(high, low.view(np.uint64))
    words = np.empty((len(low), 2), np.int64)
    words[:, 0] = low
    words[:, 1] = high
    bitmap = None if valid is None else pa.array(valid).buffers()[1]
    array = pa.Array.from_buffers(dtype, len(low), [bitmap, pa.py_buffer(words.tobytes())])
    return array, too_big


def _beyond_limit(high: Int64s, low: npt.NDArray[np.uint64]) -> Bools:
    above_high, above_low = _LIMIT >> 64, np.uint64(_LIMIT & (2**64 - 1))
    below_high, below_low = (-_LIMIT) >> 64, np.uint64(-_LIMIT & (2**64 - 1))
    above = (high > above_high) | ((high == above_high) & (low >= above_low))
    below = (high < below_high) | ((high == below_high) & (low <= below_low))
    return np.asarray(above | below, dtype=np.bool_)
