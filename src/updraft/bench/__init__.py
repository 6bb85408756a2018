"""Side-by-side benchmarks against the honest alternative, outputs verified."""

from updraft.bench.framework import Outcome, UnknownBench
from updraft.bench.registry import BENCHES, run_bench

__all__ = ["BENCHES", "Outcome", "UnknownBench", "run_bench"]
