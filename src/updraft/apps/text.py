"""Seeded input for applications and benchmarks: Zipf-distributed text and uniform integer keys.

Words come from the standard library's own documentation (`pydoc_data.topics` and the docstrings of a few
pure-Python modules), so every machine has them and nothing is downloaded. The same seed gives the same bytes
on every machine with the same Python release and the same numpy: another Python has other documentation, and
numpy reserves the right to change a generator's stream between releases (NEP 19). Nothing here depends on
Python's `hash`, on the locale or on the order of a directory.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

_WORD = re.compile(r"[a-z]{2,14}")
_DOCUMENTED = (
    "argparse",
    "asyncio",
    "collections",
    "datetime",
    "decimal",
    "functools",
    "heapq",
    "pathlib",
    "re",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """What `write_key_files` wrote, with the recomputed truth: count and total of each key."""

    paths: tuple[Path, ...]
    rows: int
    counts: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFiles:
    """What `write_text_files` wrote, with the recomputed truth: `counts[i]` occurrences of `words[i]`."""

    paths: tuple[Path, ...]
    words: tuple[str, ...]
    counts: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def expected(self) -> dict[str, int]:
        return {word: int(n) for word, n in zip(self.words, self.counts, strict=True) if n}


@lru_cache(maxsize=4)
def vocabulary(size: int = 10_000) -> tuple[str, ...]:
    """`size` distinct lower-case words, the most frequent of the documentation first, then suffixed ones."""
    if size < 1:
        raise ValueError(f"a vocabulary needs at least one word, not {size}")
    frequency: dict[str, int] = {}
    for text in _documentation():
        for word in _WORD.findall(text.lower()):
            frequency[word] = frequency.get(word, 0) + 1
    found = sorted(frequency, key=lambda word: (-frequency[word], word))
    # Digits never occur in a found word, so a suffixed word can never collide with one.
    suffixed = (f"{word}{round_}" for round_ in range(2, 2 + size) for word in found)
    return tuple([*found, *(next(suffixed) for _ in range(size - len(found)))][:size])


def _documentation() -> Iterator[str]:
    for name in _DOCUMENTED:
        yield importlib.import_module(name).__doc__ or ""
    yield str.__doc__ or ""
    yield dict.__doc__ or ""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions put pydoc's data into a package of its own
        return
    for title in sorted(topics):
        yield topics[title]


def zipf_thresholds(size: int, exponent: float) -> npt.NDArray[np.float64]:
    """Cumulative probabilities of ranks 1..size under p(r) ~ r^-exponent; the last is exactly 1."""
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(weights)
    shares: npt.NDArray[np.float64] = cumulative / cumulative[-1]
    return shares


class ZipfText:
    """Draws words and packs them into lines; one object per seed, so a sequence of calls is reproducible."""

    def __init__(self, *, vocabulary_size: int = 10_000, zipf: float = 1.0, seed: int = 7) -> None:
        self.words = vocabulary(vocabulary_size)
        self._followed_by_space = pa.array([word + " " for word in self.words], pa.large_string())
        self._thresholds = zipf_thresholds(vocabulary_size, zipf)
        self._random = np.random.default_rng(seed)

    def draw(self, words: int) -> npt.NDArray[np.int64]:
        ranks = np.searchsorted(self._thresholds, self._random.random(words), side="right")
        return ranks.astype(np.int64, copy=False)

    def lines(self, lines: int, words_per_line: int = 10) -> tuple[memoryview, npt.NDArray[np.int64]]:
        """The bytes of `lines` lines and how often each word of the vocabulary occurs in them."""
        ids = self.draw(lines * words_per_line)
        return self.pack(ids, words_per_line), np.bincount(ids, minlength=len(self.words)).astype(np.int64)

    def pack(self, ids: npt.NDArray[np.int64], words_per_line: int) -> memoryview:
        """Words joined by single spaces, a newline after every `words_per_line` of them."""
        # The data buffer of "word " strings laid end to end *is* the text; only line ends must be patched.
        taken = self._followed_by_space.take(pa.array(ids))
        _, offsets_buffer, data = taken.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64, len(ids) + 1)
        text = np.frombuffer(data, np.uint8, int(offsets[-1])).copy()
        text[offsets[words_per_line::words_per_line] - 1] = ord("\n")
        return text.data


def write_text_files(
    directory: Path,
    files: int,
    lines_per_file: int,
    *,
    words_per_line: int = 10,
    vocabulary_size: int = 10_000,
    zipf: float = 1.0,
    seed: int = 7,
) -> TextFiles:
    """Text files `part-00000.txt`, ... of Zipf-distributed words, and the truth about them."""
    text = ZipfText(vocabulary_size=vocabulary_size, zipf=zipf, seed=seed)
    directory.mkdir(parents=True, exist_ok=True)
    counts = np.zeros(vocabulary_size, np.int64)
    paths = []
    for number in range(files):
        body, occurring = text.lines(lines_per_file, words_per_line)
        paths.append(publish(directory / f"part-{number:05d}.txt", body))
        counts += occurring
    return TextFiles(paths=tuple(paths), words=text.words, counts=counts)


def publish(path: Path, body: memoryview | bytes) -> Path:
    """Write a file so that a directory watcher sees it whole or not at all (Spark skips names with a dot)."""
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_bytes(body)
    return hidden.rename(path)


def write_key_files(
    directory: Path, files: int, rows_per_file: int, *, keys: int = 1_000_000, seed: int = 7
) -> KeyFiles:
    """Parquet files of rows (key, value), both int64, keys uniform in 0..keys-1, and the truth about them."""
    random = np.random.default_rng(seed)
    drawn = [
        (random.integers(0, keys, rows_per_file), random.integers(-1000, 1000, rows_per_file))
        for _ in range(files)
    ]
    return write_rows(directory, drawn, keys=keys)


def write_rows(
    directory: Path, batches: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]], *, keys: int
) -> KeyFiles:
    """One Parquet file `part-00000.parquet`, ... per (keys, values) pair given, and the truth about them."""
    directory.mkdir(parents=True, exist_ok=True)
    counts, totals = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
    paths = []
    for number, (key, value) in enumerate(batches):
        path = directory / f"part-{number:05d}.parquet"
        hidden = path.with_name(f".{path.name}.tmp")
        # Random integers gain nothing from dictionaries or compression, which all sides would have to undo.
        pq.write_table(
            pa.table({"key": key, "value": value}), hidden, compression="none", use_dictionary=False
        )
        paths.append(hidden.rename(path))
        counts += np.bincount(key, minlength=keys)
        np.add.at(totals, key, value)
    rows = sum(len(key) for key, _ in batches)
    return KeyFiles(paths=tuple(paths), rows=rows, counts=counts, totals=totals)
