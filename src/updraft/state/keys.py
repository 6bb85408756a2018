"""Keys to 64-bit hashes to tasks: the one mapping that routing, state and checkpoints agree on.

The hash is part of the checkpoint format: it must never change for a value that could be hashed before, so it
is written out here in full (a multiply-xorshift mix over canonical 64-bit words) and pinned by golden values
in the tests. It is a bijection on 64-bit integers. Equal values hash equally whatever their physical width;
null has a hash of its own. Decimals hash by their unscaled value (a column has one scale).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from updraft.errors import StateError

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Column: TypeAlias = pa.Array | pa.ChunkedArray
Hasher = Callable[[Sequence[Column]], U64]

# Published constants of the hash; changing one invalidates every checkpoint.
SEED = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
CHAIN = np.uint64(0x9DDFEA08EB382D69)
WORD = np.uint64(0xC2B2AE3D27D4EB4F)
LENGTH = np.uint64(0x165667B19E3779F9)
NULL_HASH = np.uint64(0x6E756C6C2D6B6579)
NAN_BITS = np.uint64(0x7FF8000000000000)
LONG_BYTES = 256
"""Byte strings longer than this are hashed one by one with XXH3 (a published, frozen algorithm)."""

_LOWER = np.uint64(0xFFFFFFFF)
_BLOCK = 16_384  # rows hashed at a time, so that the intermediate words stay in the CPU's cache

_EXACT_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_time32,
)
KEY_TYPES: tuple[Callable[[pa.DataType], bool], ...] = (
    *_EXACT_TYPES,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def is_key_type(kind: pa.DataType) -> bool:
    """Whether a column of this type can be (part of) a key."""
    if pa.types.is_dictionary(kind):
        return is_key_type(kind.value_type)
    return any(accepts(kind) for accepts in KEY_TYPES)


def is_exact(kind: pa.DataType) -> bool:
    """Whether two different non-null values of this type can never share a hash."""
    return any(accepts(kind) for accepts in _EXACT_TYPES)


def hash_keys(columns: Sequence[Column]) -> U64:
    """One stable hash per row over the key columns, in order."""
    if not columns:
        raise StateError("a key needs at least one column")
    hashes = _hash_column(columns[0])
    for column in columns[1:]:
        hashes = _chain(hashes, _hash_column(column))
    return hashes


def hash_spread(columns: Sequence[Column], lead: int) -> U64:
    """Hashes that own the task of the first `lead` columns and spread the rows of such a key within it.

    A task is decided by the upper half of a hash, so that half is the leading columns' and the lower one everybody's.
    """
    hashes = hash_keys(columns[:lead])
    if lead == len(columns):
        return hashes
    return spread(hashes, columns[lead:])


def spread(hashes: U64, columns: Sequence[Column]) -> U64:
    """`hash_spread`, given the hashes of the leading columns and the other ones."""
    upper = hashes & ~_LOWER
    for column in columns:
        hashes = _chain(hashes, _hash_column(column))
    return upper | (hashes & _LOWER)


def task_of(hashes: U64, tasks: int) -> npt.NDArray[np.int32]:
    """The task that owns each hash; tasks are equal, contiguous ranges of the hash space."""
    high = hashes >> np.uint64(32)
    high *= np.uint64(tasks)
    high >>= np.uint64(32)
    return high.astype(np.int32)


def task_start(task: int, tasks: int) -> int:
    """Smallest hash of a task's range (2**64 for task == tasks, one past the last hash)."""
    return -(-(task << 32) // tasks) << 32


@functools.cache
def task_starts(tasks: int) -> U64:
    """`task_start` of every task."""
    starts = np.array([task_start(task, tasks) for task in range(tasks)], np.uint64)
    starts.flags.writeable = False
    return starts


def mix(words: U64) -> U64:
    """Final avalanche, in place; a bijection on 64-bit words."""
    words ^= words >> np.uint64(30)
    words *= MIX_1
    words ^= words >> np.uint64(27)
    words *= MIX_2
    words ^= words >> np.uint64(31)
    return words


def _chain(hashes: U64, more: U64) -> U64:
    hashes = hashes * CHAIN
    hashes += more
    return mix(hashes)


def _hash_column(column: Column) -> U64:
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return _hash_array(column.chunk(0))
        parts = [_hash_array(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)
    return _hash_array(column)


def _hash_array(array: pa.Array) -> U64:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(array)
    if not is_key_type(kind):
        raise StateError(f"a column of type {kind} cannot be a key; cast it to an integer or a string")
    if pa.types.is_decimal(kind):
        hashes = _hash_decimals(array)
    elif _is_bytes(kind):
        hashes = _hash_bytes(array)
    else:
        hashes = _hash_words(_words(array))
    if array.null_count:
        hashes[np.asarray(pc.is_null(array))] = NULL_HASH
    return hashes


def _hash_dictionary(array: pa.DictionaryArray) -> U64:
    if len(array.dictionary) == 0:
        return np.full(len(array), NULL_HASH, np.uint64)
    of_values = _hash_array(array.dictionary)
    indices = array.indices
    hashes: U64 = of_values[np.asarray(indices.fill_null(0) if indices.null_count else indices)]
    if indices.null_count:
        hashes[np.asarray(pc.is_null(indices))] = NULL_HASH
    return hashes


def _hash_words(words: U64) -> U64:
    out = np.empty(len(words), np.uint64)
    for start in range(0, len(words), _BLOCK):
        part = out[start : start + _BLOCK]
        np.add(words[start : start + _BLOCK], SEED, out=part)
        mix(part)
    return out


def fixed_view(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zero-copy view of the value buffer of a fixed-width array, whatever its offset."""
    buffer = array.buffers()[1]
    size = np.dtype(dtype).itemsize
    if buffer is None or len(array) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * size)


def _words(array: pa.Array) -> U64:
    """Canonical 64-bit words of a fixed-width array; the words of null slots are arbitrary."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return np.asarray(array.fill_null(False) if array.null_count else array).astype(np.uint64)
    if pa.types.is_floating(kind):
        return float_words(np.asarray(fixed_view(array, f"f{kind.bit_width // 8}")))
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    values = fixed_view(array, f"{sign}{kind.bit_width // 8}").astype(np.int64, copy=False)
    if pa.types.is_date64(kind):
        values = values // 86_400_000
    elif pa.types.is_time(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        values = values // 1_000 if kind.unit == "ns" else values * _MICROS[kind.unit]
    return values.view(np.uint64)


def float_words(values: npt.NDArray[Any]) -> U64:
    """Bit patterns of floats with one zero and one NaN, so that equal keys are equal words."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is only a NaN here
        words = (values.astype(np.float64) + 0.0).view(np.uint64)
    words[np.isnan(values)] = NAN_BITS
    return words


def _hash_decimals(array: pa.Array) -> U64:
    width = array.type.bit_width
    if not len(array):
        return np.empty(0, np.uint64)
    if width <= 64:
        low = fixed_view(array, f"i{width // 8}").astype(np.int64)
        return _chain(_hash_words(low.view(np.uint64)), (low >> 63).view(np.uint64))
    words = fixed_view(array, np.dtype((np.void, width // 8))).view(np.uint64).reshape(len(array), -1)
    hashes = _chain(_hash_words(words[:, 0]), words[:, 1])
    if width == 256:
        # Only values that need more than 128 bits depend on the upper words: width must not change the hash.
        sign = (words[:, 1].astype(np.int64) >> 63).view(np.uint64)
        wide = (words[:, 2] != sign) | (words[:, 3] != sign)
        hashes[wide] = _chain(_chain(hashes[wide], words[wide, 2]), words[wide, 3])
    return hashes


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
    )


def _hash_bytes(array: pa.Array) -> U64:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.binary())
    elif pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    count = len(array)
    hashes = np.empty(count, np.uint64)
    if count == 0:
        return hashes
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(
        offset_buffer, dtype, count=count + 1, offset=array.offset * dtype.itemsize
    ).astype(np.int64, copy=False)
    first, last = int(offsets[0]), int(offsets[-1])
    # Aligned words with two spare ones behind the end: a word at any byte is two aligned gathers and a shift.
    padded = np.zeros((last - first) // 8 + 3, np.uint64)
    if last > first:
        padded.view(np.uint8)[: last - first] = np.frombuffer(data, np.uint8)[first:last]
    starts = offsets[:-1] - first
    lengths = np.diff(offsets)
    for begin in range(0, count, _BLOCK):
        block = slice(begin, begin + _BLOCK)
        hashes[block] = _hash_block(padded, starts[block], lengths[block])
    long = np.flatnonzero(lengths > LONG_BYTES)
    if len(long):
        raw = padded.view(np.uint8).data
        digests = [xxhash.xxh3_64_intdigest(raw[starts[i] : starts[i] + lengths[i]]) for i in long]
        hashes[long] = _hash_words(np.array(digests, np.uint64))
    return hashes


def _hash_block(padded: U64, starts: I64, lengths: I64) -> U64:
    hashes = lengths.astype(np.uint64)
    hashes *= LENGTH
    hashes += SEED
    longest = int(lengths.max(initial=0))
    active: slice | I64 = slice(None)
    for at in range(0, min(longest, LONG_BYTES), 8):
        rest = lengths[active] - at
        if int(rest.min()) <= 0:
            active = np.flatnonzero(lengths > at)
            rest = lengths[active] - at
        words = _words_at(padded, starts[active] + at)
        if int(rest.min()) < 8:
            unused = np.maximum(8 - rest, 0).view(np.uint64) << np.uint64(3)
            words &= ~np.uint64(0) >> unused
        state = hashes[active]
        words ^= state
        words *= WORD
        words ^= words >> np.uint64(32)
        hashes[active] = words
    return mix(hashes)


def _words_at(padded: U64, at: I64) -> U64:
    """The little-endian 64-bit words that start at these byte positions."""
    index = at >> 3
    shift = (at.view(np.uint64) & np.uint64(7)) << np.uint64(3)
    words: U64 = padded[index]
    words >>= shift
    index += 1
    upper = padded[index]
    upper <<= np.uint64(1)  # in two steps: a shift by 64 is undefined
    upper <<= np.uint64(63) - shift
    words |= upper
    return words


def hash_range(tasks_of_mine: Iterable[int], tasks: int) -> tuple[tuple[int, int], ...]:
    """Ascending, merged hash ranges [start, stop) that the given tasks own."""
    ranges: list[tuple[int, int]] = []
    for task in sorted(set(tasks_of_mine)):
        start, stop = task_start(task, tasks), task_start(task + 1, tasks)
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    return tuple(ranges)
