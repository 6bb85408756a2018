"""The demo's topology: lines of text -> stems, word by word in plain Python -> a running count of every stem.

The stemmer (`porter`) is the operator that needs the cores: a user's own Python function that looks at one word at a time. It
has instances of its own, which a policy may change; the count behind it keeps its state through every change.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from updraft.apps.porter import stem
from updraft.apps.timeline import Lag
from updraft.apps.wordcount import LINES

STEMS = pa.schema([("stem", pa.string())])


def stems(lines: pa.Table) -> pa.Table:
    """The operator."""
    found = [stem(word) for line in lines["value"].to_pylist() if line for word in line.split()]
    return pa.table([pa.array(found, pa.string())], schema=STEMS)


class Watched:
    """A directory of text files, a few of them per batch; `waiting` says how many lines of it are in no batch yet."""

    def __init__(
        self, path: Path, waiting: Callable[[], int] = lambda: 0, *, files_per_batch: int = 4
    ) -> None:
        self._path = path
        self._waiting = waiting
        self._files_per_batch = files_per_batch
        path.mkdir(parents=True, exist_ok=True)

    def frame(self, spark: Any) -> Any:
        reader = spark.readStream.format("text").option("maxFilesPerTrigger", self._files_per_batch)
        return reader.load(str(self._path))

    def lag(self) -> Lag:
        """As `apps.source.Load` tells it, so that a policy knows what waits."""
        return Lag(scheduled_events=self._waiting(), delivered_events=0, behind_s=0.0)


def topology(lines: Watched, sink: Any, *, parallelism: int, most: int) -> Any:
    """Stems of a watched directory; `most`: instances of the stemmer."""
    import updraft as ud

    app = ud.Topology("stems")
    read = app.source("lines", lines.frame, schema=LINES)
    found = read.map(stems, name="stem", schema=STEMS, parallelism=parallelism, max_parallelism=most)
    counts = found.key_by("stem").count("count", name="count", tasks=16, parallelism=1, max_parallelism=1)
    counts.sink("out", sink)
    return app


def expected(words: Mapping[str, int]) -> dict[str, int]:
    """How often each stem occurs among words that occur so often."""
    counts: Counter[str] = Counter()
    for word, times in words.items():
        counts[stem(word)] += times
    return dict(counts)


def seconds_per_word(words: tuple[str, ...], *, least_s: float = 0.3) -> float:
    """What stemming one word costs on this machine, now."""
    began, count = time.process_time(), 0
    while (spent := time.process_time() - began) < least_s:
        for word in words:
            stem(word)
        count += len(words)
    return spent / max(1, count)


def usable_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
