"""The benchmarks by name, and the one entry point of the command line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from updraft.bench.framework import Outcome, UnknownBench, execute

# Modules are imported when asked for: listing the names must not load numpy, Arrow or Spark.
BENCHES: Mapping[str, str] = {
    "adaptive": "updraft.bench.adaptive",
    "elastic": "updraft.bench.elastic",
    "enforce": "updraft.bench.enforce",
    "latency": "updraft.bench.latency",
    "migrate": "updraft.bench.migrate",
    "monitor": "updraft.bench.monitor",
    "place": "updraft.bench.place",
    "place-scale": "updraft.bench.place_scale",
    "recover": "updraft.bench.recover",
    "replicate": "updraft.bench.replicate",
    "rescale": "updraft.bench.rescale",
    "state-size": "updraft.bench.state_size",
    "throughput": "updraft.bench.throughput",
    "windows": "updraft.bench.windows",
}

WITH_OPTIONS = ("elastic",)


def run_bench(
    name: str,
    quick: bool = False,
    json_path: Path | None = None,
    seed: int = 7,
    *,
    options: Mapping[str, object] | None = None,
    console: Console | None = None,
) -> Outcome:
    """Run the benchmark called `name`; `--quick` ends within 100 s on two cores."""
    if name not in BENCHES:
        raise UnknownBench(f"there is no benchmark '{name}'; choose one of: {', '.join(sorted(BENCHES))}")
    run = importlib.import_module(BENCHES[name]).run
    given = {key: value for key, value in (options or {}).items() if value is not None}
    if given and name not in WITH_OPTIONS:
        flags = ", ".join(f"--{key}" for key in sorted(given))
        raise UnknownBench(f"benchmark '{name}' has no options {flags}; {', '.join(WITH_OPTIONS)} has")
    return execute(name, run, quick=quick, json_path=json_path, seed=seed, options=given, console=console)
