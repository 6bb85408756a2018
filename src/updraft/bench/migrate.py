"""`updraft bench migrate`: paper 3's experiment. Every few seconds M random tasks of a counting operator change worker.

The paper re-deploys M of 36 tasks every 60 s for 600 s and counts the seconds in which throughput was at least 20, 40, 60,
80, 100 % below normal. Here 1, 2, 4, 8, 16 of 32 tasks move every few seconds, so time is compressed (a run has far more moves
per second than the paper's, which is harder on us); and the tasks have state, which the paper's did not.

One count on a real standalone cluster of three one-core workers goes on through all runs, as fast as it can: with input
arriving at a fixed pace a batch after a stall would hold all that had piled up and hide it. Normal is the median second of the
same run before its first move. Rows are counted when their batch is committed, spread evenly over the time since the batch
before was, so a second in which no batch ends has the rate of the batch that is under way in it. How many such seconds there
were is reported beside (`seconds_without_commit`). A loss of at least 99.5 % counts as 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from updraft.bench.filled import (
    FilledInput,
    Verdict,
    read_updates,
    state_matches,
    total,
    verify_updates,
    write_filled,
)
from updraft.bench.framework import Bench, Outcome
from updraft.bench.pace import CLASSES_PCT, Ended, cycles_ms, rows_per_second, seconds_degraded
from updraft.cluster import local_cluster

KEYS = 500_000
TASKS = 32
NODES = 3
ROWS = 5_000
FILL = 2
COUNTS = (1, 2, 4, 8, 16)


def run(bench: Bench) -> Outcome:
    """The migrate benchmark."""
    bench.say("writing the input")
    given = write_filled(
        bench.scratch / "input",
        keys=KEYS,
        fill=FILL,
        batches=1_000 if bench.quick else 6_000,
        rows=ROWS,
        seed=bench.seed,
    )
    request = {
        "input": str(given.directory),
        "seed": bench.seed,
        "tasks": TASKS,
        "parallelism": (NODES,),
        "fill": FILL,
        "warm": 15 if bench.quick else 100,
        "counts": COUNTS,
        "watch_s": 3 if bench.quick else 10,
        "moves": 2 if bench.quick else 15,
        "every_s": 3 if bench.quick else 4,
    }
    bench.say(f"starting a cluster of {NODES} one-core workers")
    with local_cluster(nodes=NODES) as cluster:
        request["master"] = cluster.master_url
        found = bench.side("updraft.bench.live_side:migrate", request, timeout_s=1800)
    bench.say("verifying")
    return outcome(given, found)


def outcome(given: FilledInput, found: Mapping[str, Any]) -> Outcome:
    """Figures and verdict from what the run reports."""
    batches = [Ended(batch=b, ended_s=at, rows=n) for b, at, n in found["triggers"]]
    drawn = given.drawn[: found["last_batch"] + 1]
    verdicts = verify_updates(read_updates(found["updates"]), drawn, keys=given.keys)
    runs, first = [], 0
    for one in found["changes"]:
        runs.append(run_figures(one, batches, verdicts[first : one["last_batch"] + 1]))
        first = one["last_batch"] + 1
    everything = total(verdicts)
    state_good = state_matches(found["state"], given.counts(found["last_batch"]))
    batch_ms = median(list(cycles_ms(batches).values())[FILL:])
    figures = {
        "runs": runs,
        "median_batch_ms": round(batch_ms, 1),
        "lost": everything.lost,
        "duplicated": everything.duplicated,
        "disordered": everything.disordered,
        "state_verified": state_good,
    }
    good = everything.good and state_good
    notes = (
        (
            f"time-compressed; {NODES} one-core workers, {KEYS:,} keys of state, batches of {ROWS:,} rows, median "
            f"{batch_ms:,.0f} ms"
        ),
        "a batch's rows are spread evenly over the time since the batch before; normal is the median second before moves",
        "every emitted count verified, in order" if good else f"WRONG: {everything}, state {state_good}",
    )
    return Outcome(json=figures, table=_table(runs), notes=notes, verified=good)


def run_figures(
    one: Mapping[str, Any], batches: Sequence[Ended], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """One value of M: seconds after the first move by how much of the normal rate they lost."""
    before = rows_per_second(batches, start_s=one["began_s"], end_s=one["moves_s"])
    during = rows_per_second(batches, start_s=one["moves_s"], end_s=one["ended_s"])
    usual = float(np.median(before))
    verdict = total(verdicts)
    ends = np.array([batch.ended_s for batch in batches])
    committed, _ = np.histogram(ends, one["moves_s"] + np.arange(len(during) + 1))
    return {
        "M": one["M"],
        "seconds": len(during),
        "seconds_degraded": seconds_degraded(during, usual),
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "seconds_without_commit": int((committed == 0).sum()),
        "rows_per_s_before": round(usual),
        "rows_per_s_during": round(float(during.mean())),
        "moves": len(one["records"]),
        "moved_bytes": sum(record["bytes_copied"] for record in one["records"]),
        "longest_change_ms": max(record["duration_ms"] for record in one["records"]),
        "largest_added_delay_ms": max(record["added_delay_ms"] or 0.0 for record in one["records"]),
    }


def _table(runs: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="seconds that lost at least so much of their throughput", title_justify="left")
    headers = [
        "M",
        "of",
        *(f"{pct} %" for pct in CLASSES_PCT),
        "rows/s",
        "moving",
        "lost",
        "twice",
    ]
    for header in headers:
        table.add_column(header, justify="right")
    for one in runs:
        table.add_row(
            str(one["M"]),
            str(one["seconds"]),
            *(str(one["seconds_degraded"][str(pct)]) for pct in CLASSES_PCT),
            f"{one['rows_per_s_before']:,}",
            f"{one['rows_per_s_during']:,}",
            str(one["lost"]),
            str(one["duplicated"]),
        )
    return table
