"""Approximate distinct counts: HyperLogLog (Flajolet et al. 2007) over whole columns at a time.

1,024 registers: the standard error is 1.04 / sqrt(1024) = 3.25 % (Spark's `approx_count_distinct` allows 5 % by
default); small counts are nearly exact, by linear counting. A sketch is stored as its non-zero registers, two bytes
each (10 bits register, 6 bits rank, ascending), so one value costs 2 bytes and a full sketch 2 KiB. Merging takes the
larger rank of each register, in any order and grouping. The hash is that of keys, stable across machines and releases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.operators.arrays import validity
from updraft.operators.grouping import Groups
from updraft.state.keys import hash_keys

REGISTER_BITS = 10
REGISTERS = 1 << REGISTER_BITS
_RANK_BITS = 6
_CODE_BITS = np.uint64(REGISTER_BITS + _RANK_BITS)
_REST_BITS = 53  # hash bits that make the rank; as many as a double holds exactly
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
U64 = npt.NDArray[np.uint64]


def sketch_by(column: pa.Array, groups: Groups) -> pa.Array:
    """One sketch of the non-null values per group."""
    hashes = hash_keys([column])
    register = hashes >> np.uint64(64 - REGISTER_BITS)
    rest = (hashes >> np.uint64(1)) & np.uint64((1 << _REST_BITS) - 1)
    rank = (_REST_BITS + 1 - np.frexp(rest.astype(np.float64))[1]).astype(np.uint64)
    codes = (register << np.uint64(_RANK_BITS)) | rank
    owners = groups.codes
    valid = validity(column)
    if valid is not None:
        codes, owners = codes[valid], owners[valid]
    return _stored(owners, codes, len(groups))


def merge_sketches_by(sketches: pa.Array, groups: Groups) -> pa.Array:
    """One sketch per group of sketches."""
    owners, codes = _opened(sketches)
    return _stored(groups.codes[owners], codes, len(groups))


def merge_sketches(left: pa.Array, right: pa.Array) -> pa.Array:
    """Row by row; a null sketch is an empty one."""
    parts = [_opened(left), _opened(right)]
    owners = np.concatenate([owners for owners, _ in parts])
    return _stored(owners, np.concatenate([codes for _, codes in parts]), len(left))


def estimate(sketches: pa.Array) -> pa.Array:
    """Distinct values per sketch as int64."""
    owners, codes = _opened(sketches)
    rank = codes & np.uint64((1 << _RANK_BITS) - 1)
    weights = np.ldexp(1.0, -rank.astype(np.int64))
    filled = np.bincount(owners, minlength=len(sketches))
    empty = REGISTERS - filled
    harmonic = empty + np.bincount(owners, weights=weights, minlength=len(sketches))
    raw = _ALPHA * REGISTERS**2 / harmonic
    linear = REGISTERS * np.log(REGISTERS / np.maximum(empty, 1))
    small = (raw <= 2.5 * REGISTERS) & (empty > 0)
    return pa.array(np.rint(np.where(small, linear, raw)).astype(np.int64))


def _opened(sketches: pa.Array) -> tuple[npt.NDArray[np.intp], U64]:
    """(row, code) of every non-zero register."""
    if sketches.null_count:
        sketches = sketches.fill_null(b"")
    _, offsets, data = sketches.buffers()
    bounds = np.frombuffer(offsets, np.int32)[sketches.offset : sketches.offset + len(sketches) + 1] // 2
    counts = np.diff(bounds)
    owners = np.repeat(np.arange(len(sketches)), counts)
    stored = np.frombuffer(data, "<u2") if data is not None else np.empty(0, np.uint16)
    start = int(bounds[0]) if len(bounds) else 0
    return owners, stored[start : start + len(owners)].astype(np.uint64)


def _stored(owners: npt.NDArray[np.intp], codes: U64, rows: int) -> pa.Array:
    """The largest rank of each (row, register)."""
    packed = (owners.astype(np.uint64) << _CODE_BITS) | codes
    packed.sort()
    register = packed >> np.uint64(_RANK_BITS)
    last = np.ones(len(packed), np.bool_)
    np.not_equal(register[1:], register[:-1], out=last[:-1])
    packed = packed[last]
    counts = np.bincount((packed >> _CODE_BITS).astype(np.intp), minlength=rows)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(counts * 2, out=offsets[1:])
    data = (packed & np.uint64((1 << int(_CODE_BITS)) - 1)).astype("<u2")
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
