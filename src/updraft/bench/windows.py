"""`updraft bench windows`: steady rows per second of windowed workloads, against Structured Streaming's own.

| workload | input, per batch 10 s of event time | question |
| --- | --- | --- |
| sliding window count | (key, ts), 10,000 keys, 2 s out of order, delay 5 s | count per key, 60 s every 10 s |
| top-k | (key, item, value), 50 rows per key | the 10 largest values of every key, over all time |
| nexmark q5 | persons, auctions, bids | the auction with most bids, 10 s every 2 s |
| nexmark q8 | persons, auctions, bids | persons who opened auctions in the 10 s they joined in |
| yahoo | ad events, 100 campaigns of 10 ads | views per campaign, 10 s |

Input is Parquet, one file is one batch. Both sides run on `local[2]` with the same Spark settings, checkpoint every batch, emit
each window once, when it is complete, and write what they emit with their own Parquet sink. Native has RocksDB with changelog
checkpointing. It has no top-k on streams: there the other side is `transformWithState` in Python, over fewer rows of
proportionally fewer keys, because its cost is per key and row; its rate is in the column of that API.

Rate: as in `throughput`, which runs these workloads too unless it is to be quick. Both outputs are compared with an answer
recomputed from the input (`window_input.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from updraft.bench.framework import Bench, Outcome
from updraft.bench.rates import rate_row, rate_table
from updraft.bench.window_input import KINDS, is_right

ROWS, QUICK_ROWS = 500_000, 200_000
FEW_ROWS, QUICK_FEW_ROWS = 25_000, 5_000
# Batches and those of them left out. A sliding window is whole after 7 batches.
QUICK: Mapping[str, tuple[int, int]] = {"sliding": (12, 8)}
QUICK_OTHERS, FULL = (8, 4), (40, 20)
NATIVE_PARTITIONS = 2


def run(bench: Bench) -> Outcome:
    """The benchmark of windows."""
    rows, notes = measured(bench)
    return Outcome(
        json={"workloads": rows},
        table=rate_table("windows, rows per second", rows),
        notes=notes,
        verified=all(row["verified"] for row in rows),
    )


def measured(bench: Bench) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """A row of figures per workload, and what there is to know about them."""
    bench.say("writing the input of the windows")
    rows, few = (QUICK_ROWS, QUICK_FEW_ROWS) if bench.quick else (ROWS, FEW_ROWS)
    works = {kind: _work(bench, kind, rows) for kind in KINDS}
    others = {**works, "top-k": _work(bench, "top-k", few)}
    results = {
        "native": bench.side("updraft.bench.window_native:throughput", {"workloads": list(others.values())}),
        "updraft": bench.side("updraft.bench.window_updraft:throughput", {"workloads": list(works.values())}),
    }
    bench.say("verifying")
    found = []
    for kind in KINDS:
        verified = all(
            _verified(kind, work[kind], results[side][kind])
            for side, work in (("native", others), ("updraft", works))
        )
        other = "python_state" if kind == "top-k" else "native"
        rates = {"updraft": results["updraft"][kind], other: results["native"][kind]}
        found.append(
            rate_row(
                KINDS[kind].name,
                {side: result["rows_per_s"] for side, result in rates.items()},
                verified=verified,
            )
        )
    return found, tuple(_note(work, few) for work in works.values())


def _work(bench: Bench, kind: str, rows: int) -> dict[str, Any]:
    batches, warm = QUICK.get(kind, QUICK_OTHERS) if bench.quick else FULL
    if rows in (FEW_ROWS, QUICK_FEW_ROWS):
        batches, warm = (3, 1) if bench.quick else (8, 3)
    directory = bench.scratch / f"{KINDS[kind].write.__name__}-{rows}-{batches}"
    if not directory.exists():  # q5 and q8 read the same events
        KINDS[kind].write(directory, batches, rows, bench.seed)
    return {
        "kind": kind,
        "input": str(directory),
        "rows_per_batch": rows,
        "batches": batches,
        "warm_batches": warm,
        "partitions": NATIVE_PARTITIONS,
        "instances": 2,
    }


def _verified(kind: str, work: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    answer = KINDS[kind].answer(Path(work["input"]), work["batches"])
    return is_right(KINDS[kind], Path(result["output"]), answer, work["batches"])


def _note(work: Mapping[str, Any], few_rows: int) -> str:
    few = (
        f"; transformWithState: batches of {few_rows:,} rows"
        if work["kind"] == "top-k"
        else f" against {work['partitions']} native state partitions"
    )
    return (
        f"{KINDS[work['kind']].name}: {work['batches']} batches of {work['rows_per_batch']:,} rows, "
        f"the first {work['warm_batches']} left out; {work['instances']} instances{few}"
    )
