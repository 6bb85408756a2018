"""Word count: lines of text -> words -> running count per word, the papers' first application.

`updraft run updraft.apps.wordcount` counts the text files of the directory in UPDRAFT_INPUT, or, without one,
of a small seeded text it writes into a temporary directory. A word is a non-empty run of bytes other than the
space; empty lines, repeated spaces and null lines give no words.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from updraft.apps.text import write_text_files

LINES = pa.schema([("value", pa.string())])
WORDS = pa.schema([("word", pa.string())])
_SPACE = ord(" ")


def split_words(lines: pa.Table) -> pa.Table:
    """The words of column `value`, in order, as column `word`."""
    chunks = [_words(chunk) for chunk in lines.column("value").chunks]
    return pa.table({"word": pa.chunked_array(chunks, pa.string())})


def _words(lines: pa.Array) -> pa.Array:
    """Words of one array, without looking at a line or a word in Python.

    Deleting the spaces from the bytes of all lines puts the words end to end, as Arrow stores strings: only
    the offsets remain to be found. They are the positions of spaces and of line ends, each moved left by the
    number of spaces before it. An empty word repeats an offset, so dropping repeated offsets drops it.
    UTF-8 never has a space byte inside another character, so this is right for any text.
    """
    if lines.type != pa.string():
        lines = lines.cast(pa.string())
    if lines.null_count:
        lines = lines.drop_null()
    if len(lines) == 0:
        return pa.array([], pa.string())
    _, offsets_buffer, data_buffer = lines.buffers()
    line_ends = np.frombuffer(offsets_buffer, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    first, last = int(line_ends[0]), int(line_ends[-1])
    if first == last:
        return pa.array([], pa.string())
    data = np.frombuffer(data_buffer, np.uint8)[first:last]
    line_ends = line_ends - np.int32(first)
    spaces = np.flatnonzero(data == _SPACE).astype(np.int32)
    before_line_end = np.searchsorted(spaces, line_ends).astype(np.int32)

    # Merge the two sorted lists of boundaries: a line end comes after the spaces and the line ends before it.
    boundaries = np.empty(len(spaces) + len(line_ends), np.int32)
    at_line_ends = before_line_end + np.arange(len(line_ends), dtype=np.int32)
    is_space = np.ones(len(boundaries), np.bool_)
    is_space[at_line_ends] = False
    boundaries[is_space] = spaces - np.arange(len(spaces), dtype=np.int32)
    boundaries[at_line_ends] = line_ends - before_line_end

    offsets = boundaries[np.concatenate(([True], boundaries[1:] != boundaries[:-1]))]
    letters = data.tobytes().translate(None, b" ")
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    )


def topology(
    path: str | Path, sink: Any, *, tasks: int = 32, parallelism: int = 2, files_per_batch: int | None = None
) -> Any:
    """The word count topology over a watched directory of text files."""
    import updraft as ud

    def read(spark: Any) -> Any:
        reader = spark.readStream.format("text")
        if files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        return reader.load(str(path))

    app = ud.Topology("wordcount")
    lines = app.source("lines", read, schema=LINES)
    words = lines.map(split_words, name="split", schema=WORDS)
    counts = words.key_by("word").count("count", name="count", tasks=tasks, parallelism=parallelism)
    counts.sink("out", sink)
    return app


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.wordcount`."""
    import updraft as ud

    given = os.environ.get("UPDRAFT_INPUT")
    if given is not None:
        return topology(given, ud.sinks.console())
    directory = Path(tempfile.mkdtemp(prefix="updraft-wordcount-"))
    write_text_files(directory, 8, 10_000)
    return topology(directory, ud.sinks.console(), files_per_batch=1)


def expected(paths: Iterable[Path]) -> dict[str, int]:
    """Plain recomputation over whole files: the oracle."""
    counts: Counter[str] = Counter()
    for path in paths:
        for line in path.read_text(encoding="utf-8").split("\n"):
            counts.update(word for word in line.split(" ") if word)
    return dict(counts)
