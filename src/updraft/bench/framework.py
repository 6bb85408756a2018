"""What every benchmark shares: progress lines, temporary inputs, a table for people, JSON for machines.

The table goes to stdout, progress lines to stderr, the JSON object to the file asked for. Everything else a
benchmark writes is in one temporary directory that is removed at its end, also when it fails.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from updraft.bench.side import run_side
from updraft.errors import UpdraftError

BUSY_LOAD = 0.7


class UnknownBench(UpdraftError):
    """No benchmark has this name; the message lists those there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a benchmark found out: the JSON object, and the same for people."""

    json: Mapping[str, Any]
    table: Table
    notes: tuple[str, ...] = ()
    verified: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The surroundings of one run of a benchmark."""

    name: str
    quick: bool
    seed: int
    scratch: Path
    options: Mapping[str, object] = field(default_factory=dict)  # of the benchmark's own
    began_s: float = field(default_factory=time.monotonic)

    def say(self, line: str) -> None:
        """A progress line on stderr."""
        sys.stderr.write(f"[{time.monotonic() - self.began_s:5.1f} s] {self.name}: {line}\n")
        sys.stderr.flush()

    def side(
        self, function: str, request: dict[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Run one side in a process and a JVM of its own."""
        limit_s = timeout_s if timeout_s is not None else (300 if self.quick else 1800)
        self.say(f"running {function}")
        return run_side(function, request, scratch=self.scratch, timeout_s=limit_s)


Run = Callable[[Bench], Outcome]


def execute(
    name: str,
    run: Run,
    *,
    quick: bool,
    json_path: Path | None,
    seed: int,
    options: Mapping[str, object] | None = None,
    console: Console | None = None,
) -> Outcome:
    """Run one benchmark in a fresh temporary directory, print its table and write its JSON."""
    scratch = Path(tempfile.mkdtemp(prefix=f"updraft-bench-{name}-"))
    busy = os.getloadavg()[0]
    try:
        bench = Bench(name=name, quick=quick, seed=seed, scratch=scratch, options=options or {})
        outcome = run(bench)
        bench.say("done")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    console = console or Console()
    console.print(outcome.table)
    for note in outcome.notes:
        console.print(note, style="dim", highlight=False)
    if busy > BUSY_LOAD:
        # Sides run one after the other: foreign load that comes or goes meanwhile falls on one of them only.
        console.print(
            f"the machine was busy before the start (load {busy:.1f}): do not trust these ratios",
            style="yellow",
        )
    if json_path is not None:
        json_path.write_text(json.dumps(outcome.json, indent=2) + "\n")
    return outcome


def ratio(ours: float, theirs: float) -> float:
    """`ours / theirs`, rounded for reading; 0 when the other side has nothing."""
    return round(ours / theirs, 3) if theirs else 0.0
