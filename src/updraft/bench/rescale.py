"""`updraft bench rescale`: parallelism 2, 4, 8, 3, 1 of a keyed count with a million keys of state, while it runs.

Both sides run on the same real standalone cluster of three one-core workers, one after the other in one session, over the
same files (one a batch, input always waiting). Updraft applies the changes live. Stock Spark (RocksDB, changelog
checkpointing) is stopped, its state repartitioned, and started again; see `native_rescale.py` for how kind this is to it.

`added_delay_ms` of a change: the cycle (end of a batch to end of the next, as Spark reports them) of the first batch under
the new plan minus the median cycle of the batches before the change was asked for, or what the run's own journal says,
whichever is larger. What the background copying cost the batches between is reported beside it
(`preparation_ms`) and counted in `ratio_with_preparation`. Native's stall is the time from the end of the last batch before
the stop to the end of the first one after the restart minus a median cycle; `native_stop_ms` is the median of them. The quick
run has fewer keys and only the first of the four changes on the native side; `ratio` is over the changes both sides made.

`moved_ratio`: bytes that travelled, divided by the state of the tasks that changed worker plus what batches changed in them
meanwhile, both counted from the input: keys of those tasks times the stored bytes of a row. State on disk also has old
versions of rows until they are merged away; `moved_ratio_stored` compares with what was stored when the change began.

`steady_overhead`: `fixed_plan=True` (a build that keeps nothing a change would need) against the live build while nothing
changes, batch by batch in turns (`turns.py`): time of the live one over the other minus 1, median over blocks A B B A. On a
busy machine its quartiles are wide; `steady_overhead_undisturbed` compares the lower quartiles of single turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
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
from updraft.bench.framework import Bench, Outcome, ratio
from updraft.bench.pace import Ended, cycles_ms, delay_of, overhead, undisturbed_overhead
from updraft.cluster import local_cluster
from updraft.state.keys import hash_keys, task_of

KEYS, QUICK_KEYS = 1_000_000, 200_000
TASKS = 32
NODES = 3
SEQUENCE = (2, 4, 8, 3, 1)
FILL = 2
SIDE_TIMEOUT_S = 1800.0  # a side that hangs gives up by itself much sooner, and says where


def run(bench: Bench) -> Outcome:
    """The rescale benchmark."""
    bench.say("writing the input")
    rows = 20_000
    given = write_filled(
        bench.scratch / "input",
        keys=QUICK_KEYS if bench.quick else KEYS,
        fill=FILL,
        batches=200 if bench.quick else 800,
        rows=rows,
        seed=bench.seed,
    )
    request = {
        "input": str(given.directory),
        "tasks": TASKS,
        "fill": FILL,
        "warm": 6 if bench.quick else 60,
        "between": 5 if bench.quick else 25,
        "settle": 1,
        "parallelism": SEQUENCE,
        "blocks": 4 if bench.quick else 40,
        "timeout_s": 600 if bench.quick else 900,
        # A restart takes stock Spark so long that the quick run affords only the first ones.
        "native": {
            "warm": 1 if bench.quick else 20,
            "between": 3 if bench.quick else 15,
            "parallelism": SEQUENCE[:2] if bench.quick else SEQUENCE,
        },
    }
    bench.say(f"starting a cluster of {NODES} one-core workers")
    with local_cluster(nodes=NODES) as cluster:
        request["master"] = cluster.master_url
        found = bench.side("updraft.bench.live_side:rescale", request, timeout_s=SIDE_TIMEOUT_S)
    bench.say("verifying")
    return outcome(given, found, found["native"])


def outcome(given: FilledInput, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Outcome:
    """Figures and verdict from what both sides report."""
    cycles = cycles_ms([Ended(batch=b, ended_s=at, rows=n) for b, at, n in ours["triggers"]])
    changes = [change_figures(given, change, cycles, ours["bytes_per_row"]) for change in ours["changes"]]
    stalls_ms, native_batch_ms = native_stalls(theirs["stages"])
    compared = changes[: len(stalls_ms)]  # those that native made too
    added_ms = sum(change["added_delay_ms"] for change in compared)
    prepared_ms = sum(change["preparation_ms"] for change in compared)
    steady, low, high = overhead(ours["overhead"]["blocks"], ours="live", baseline="fixed")
    verdict = total(
        verify_updates(read_updates(ours["updates"]), given.drawn[: ours["last_batch"] + 1], keys=given.keys)
    )
    wrong = wrong_states(given, ours, theirs)
    figures = {
        "keys": given.keys,
        "changes": changes,
        "median_batch_ms": round(median(change["median_before_ms"] for change in changes), 1),
        "native_stop_ms": round(median(stalls_ms), 1),
        "ratio": ratio(sum(stalls_ms), max(added_ms, 1.0)),
        "steady_overhead": round(steady, 4),
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "disordered": verdict.disordered,
        "compared_changes": len(compared),
        "added_delay_total_ms": round(added_ms, 1),
        "preparation_total_ms": round(prepared_ms, 1),
        "native_stall_total_ms": round(sum(stalls_ms), 1),
        "native_stalls_ms": [round(stall, 1) for stall in stalls_ms],
        "native_median_batch_ms": round(native_batch_ms, 1),
        "ratio_with_preparation": ratio(sum(stalls_ms), max(added_ms + prepared_ms, 1.0)),
        "steady_overhead_quartiles": [round(low, 4), round(high, 4)],
        "steady_overhead_undisturbed": round(
            undisturbed_overhead(ours["overhead"]["turns"], ours="live", baseline="fixed"), 4
        ),
        "states_verified": not wrong,
    }
    return Outcome(
        json=figures,
        table=_table(figures),
        notes=_notes(figures, verdict, wrong),
        verified=verdict.good and not wrong,
    )


def change_figures(
    given: FilledInput, change: Mapping[str, Any], cycles: Mapping[int, float], bytes_per_row: float
) -> dict[str, Any]:
    """One change: its delay as Spark shows it and as we recorded it, and the bytes against what had to travel."""
    asked, switched, record = change["asked_after"], change["switched_at"], change["record"]
    delay = delay_of(cycles, settled=change["settled"], asked_after=asked, switched_at=switched)
    later = [cycles[batch] for batch in sorted(cycles) if batch > switched][:5]
    recorded_ms = record["added_delay_ms"] or 0.0
    meanwhile = range(asked + 1, switched)
    state_rows = rows_to_move(given, change["moved_tasks"], ())
    delta_rows = rows_to_move(given, change["moved_tasks"], meanwhile) - state_rows
    due_bytes = bytes_per_row * (state_rows + delta_rows)
    stored_bytes = record["bytes_to_move"] + bytes_per_row * delta_rows
    return {
        "from": change["from"],
        "to": change["to"],
        "added_delay_ms": round(max(delay.switch_ms, recorded_ms), 1),
        "moved_bytes": record["bytes_copied"],
        "added_delay_spark_ms": round(delay.switch_ms, 1),
        "added_delay_recorded_ms": recorded_ms,
        "preparation_ms": round(delay.preparation_ms, 1),
        "preparation_batches": switched - asked - 1,
        "median_before_ms": round(delay.usual_ms, 1),
        "median_after_ms": round(median(later), 1) if later else None,
        "moved_tasks": len(change["moved_tasks"]),
        "state_bytes_of_moved": round(due_bytes),
        "moved_ratio": ratio(record["bytes_copied"], due_bytes) if due_bytes else None,
        "moved_ratio_stored": ratio(record["bytes_copied"], stored_bytes) if stored_bytes else None,
        "duration_ms": record["duration_ms"],
    }


def rows_to_move(given: FilledInput, tasks: Sequence[int], batches: Sequence[int]) -> int:
    """Keys of these tasks, plus those of them that these batches touched: what a copy of them must carry."""
    wanted = np.zeros(TASKS, bool)
    wanted[list(tasks)] = True
    owner = task_of(hash_keys([pa.array(np.arange(given.keys))]), TASKS)
    mine = wanted[owner]
    touched = (np.unique(given.drawn[batch]) for batch in batches)
    return int(mine.sum() + sum(int(mine[some].sum()) for some in touched))


def native_stalls(stages: Sequence[Mapping[str, Any]]) -> tuple[list[float], float]:
    """Stall of every restart, and the median cycle between them. The first stage is warm-up, but for its last batches."""
    ends = [[Ended(batch=b, ended_s=at, rows=n) for b, at, n in stage["triggers"]] for stage in stages]
    usual = [list(cycles_ms(some).values())[-3:] for some in ends]
    typical = [median(some) for some in usual]
    stalls = [
        max(0.0, 1000 * (after[0].ended_s - before[-1].ended_s) - typical[number])
        for number, (before, after) in enumerate(itertools.pairwise(ends))
    ]
    return stalls, median(typical)


def wrong_states(given: FilledInput, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Runs whose final state is not the recount of what they read."""
    states = {
        "updraft": (ours["state"], ours["last_batch"]),
        "native": (theirs["state"], theirs["files"] - 1),
    }
    for name, path in ours["overhead"]["states"].items():
        states[name] = (path, ours["overhead"]["last_batch"][name])
    return [name for name, (path, last) in states.items() if not state_matches(path, given.counts(last))]


def _table(figures: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"changing the parallelism of a running count, {figures['keys']:,} keys", title_justify="left"
    )
    for header in (
        "change",
        "added delay",
        "batch before",
        "preparing / batches",
        "moved",
        "× its state",
        "native stall",
    ):
        table.add_column(header, justify="left" if header == "change" else "right")
    for change, stall_ms in itertools.zip_longest(figures["changes"], figures["native_stalls_ms"]):
        moved = change["moved_ratio"]
        table.add_row(
            f"{change['from']} → {change['to']}",
            f"{change['added_delay_ms']:,.0f} ms",
            f"{change['median_before_ms']:,.0f} ms",
            f"{change['preparation_ms']:,.0f} ms / {change['preparation_batches']}",
            f"{change['moved_bytes'] / 1e6:.1f} MB",
            "–" if moved is None else f"{moved:.2f}",
            "not run" if stall_ms is None else f"{stall_ms:,.0f} ms",
        )
    return table


def _notes(figures: Mapping[str, Any], verdict: Verdict, wrong: Sequence[str]) -> tuple[str, ...]:
    low, high = figures["steady_overhead_quartiles"]
    bad = [f"{verdict.lost} rows lost, {verdict.duplicated} duplicated, {verdict.disordered} out of order"]
    bad += [f"wrong final state: {', '.join(wrong)}"] if wrong else []
    return (
        (
            f"native stall / our added delay: {figures['ratio']:.1f} "
            f"({figures['ratio_with_preparation']:.1f} with what preparing cost)"
        ),
        (
            f"steady overhead of live plans {figures['steady_overhead']:+.1%} (quartiles {low:+.1%} to {high:+.1%}), "
            f"undisturbed {figures['steady_overhead_undisturbed']:+.1%}"
        ),
        f"{NODES} one-core workers; stock Spark keeps its warm JVMs and stops between batches, which is kind to it",
        "every emitted count verified, in order"
        if verdict.good and not wrong
        else "WRONG: " + "; ".join(bad),
    )
