"""What the recovery tests share: a keyed count of words and the rows it must give."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import updraft as ud
from updraft.testing import ScriptedSource

# Test JVMs live for seconds: no time to optimise, and no garbage worth four threads. Halves their start.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WORDS = pa.schema([("word", pa.string())])
Build = Callable[[ScriptedSource], ud.Topology]


def words(seed: int, rows: int = 60) -> pa.Table:
    """A batch of Zipf-like words."""
    rng = random.Random(seed)
    return pa.table(
        {"word": pa.array([f"w{int(rng.paretovariate(1)) % 12}" for _ in range(rows)], pa.string())}
    )


def counting(*sinks: Any, name: str = "counts", parallelism: int = 2, tasks: int = 4) -> Build:
    """A program that counts words into every one of the sinks."""

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology(name)
        counted = app.source("words", source.frame).key_by("word")
        stream = counted.count("n", name="counted", tasks=tasks, parallelism=parallelism)
        for number, sink in enumerate(sinks):
            stream.sink(f"out{number}", sink)
        return app

    return build


def end_workers(pids: set[int]) -> None:
    """End this session's Python workers, as a restart of the program would: new ones know nothing of old segments."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
