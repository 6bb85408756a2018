"""`updraft bench recover`: workers of a running count are killed; how long output stops, and until it is as quick as before.

A keyed state of 10 MB and of 500 MB (rows of 264 bytes) on a real standalone cluster of four one-core workers, with
input always waiting. SIGKILL hits in the middle of a batch: one worker with `replicas=2`, two at once with `replicas=3`, and
all of them, so that no copy is left and the checkpoint is read (`--quick`: one worker, the small state). Stock Spark
(RocksDB, changelog checkpointing) runs the same aggregation on the same cluster and loses one executor.

`resume_s`: from the kill to the commit of the first batch under the plan without the lost workers (a batch that was nearly
done may be committed before; it does not count). Native: to the end of the first batch after the kill that took more than
half as long again as usual, or of the first batch at all if none did. `to_90pct_s`: from the kill to the end of the first
batch from which on the median of three cycles is at most the usual cycle / 0.9. The usual cycle is the median of the batches
since things were quiet. `lost`, `duplicated`: every update of every batch, as the sink has it, against a recount of the
input; and the final state likewise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from updraft.bench.filled import (
    FilledInput,
    read_updates,
    state_matches,
    total,
    verify_updates,
    write_filled,
)
from updraft.bench.framework import Bench, Outcome, ratio
from updraft.bench.pace import Ended, cycles_ms
from updraft.cluster import local_cluster

NODES = 4
TASKS = 32
ROWS = (
    2_000  # of a batch: half a megabyte of changed state, some megabytes per second, which copies must follow
)
PAYLOAD_BYTES = 240
ROW_BYTES = 264
SIZES_MB = (10, 500)
SETTLED = 12  # batches before a kill whose cycles are the usual ones
STEADY = 3  # cycles in a row that must be as quick as before
SLOWER = 1.5
RESUMED_PCT = 90


def run(bench: Bench) -> Outcome:
    """The recover benchmark."""
    bench.say(f"starting a cluster of {NODES} one-core workers")
    runs: list[dict[str, Any]] = []
    wrong: list[str] = []
    with local_cluster(nodes=NODES, memory="1g") as cluster:
        place = {"master": cluster.master_url, "cluster": cluster.name, "home": str(cluster.home)}
        for size_mb in SIZES_MB[:1] if bench.quick else SIZES_MB:
            given = _input(bench, size_mb)
            request = {**place, **_request(bench, given, size_mb)}
            native = bench.side("updraft.bench.recover_native:recover", request, timeout_s=900)
            native_s = resume_native_s(native, request["settled"])
            if not state_matches(native["state"], given.counts(native["files"] - 1)):
                wrong.append(f"native state at {size_mb} MB")
            for replicas, kills in _schedule(bench, size_mb):
                asked = {**request, "replicas": replicas, "kills": kills, "label": f"{size_mb}-{replicas}"}
                found = bench.side("updraft.bench.recover_side:recover", asked, timeout_s=900)
                verdict, good = _verdict(given, found)
                runs += [
                    {**one, "replicas": replicas, "native_resume_s": native_s if one["killed"] == 1 else None}
                    | verdict
                    for one in recoveries(found)
                ]
                if not good:
                    wrong.append(f"state at {size_mb} MB with replicas={replicas}")
    return outcome(runs, wrong)


def _schedule(bench: Bench, size_mb: int) -> list[tuple[int, list[int]]]:
    """(replicas, workers to kill, one after the other)."""
    if bench.quick:
        return [(2, [1])]
    return [(2, [1, NODES]), (3, [2])] if size_mb == SIZES_MB[0] else [(2, [1, NODES])]


def _input(bench: Bench, size_mb: int) -> FilledInput:
    keys = size_mb * 1_000_000 // ROW_BYTES
    bench.say(f"writing the input for {size_mb} MB: {keys:,} keys")
    return write_filled(
        bench.scratch / f"input-{size_mb}",
        keys=keys,
        fill=max(1, keys // 200_000),
        batches=400 if bench.quick else 1_500,
        rows=ROWS,
        seed=bench.seed,
    )


def _request(bench: Bench, given: FilledInput, size_mb: int) -> dict[str, Any]:
    return {
        "input": str(given.directory),
        "tasks": TASKS,
        "parallelism": NODES,
        "fill": given.fill,
        "warm": 4 if bench.quick else 40,
        "settled": 8 if bench.quick else SETTLED,
        "after": 10 if bench.quick else 40,
        "native_after": 3 if bench.quick else 20,
        "label": f"{size_mb}",
    }


def recoveries(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Figures of each kill of one run."""
    ended = [Ended(batch=b, ended_s=at, rows=n) for b, at, n in found["batches"]]
    cycles = cycles_ms(ended)
    figures = []
    for kill in found["kills"]:
        usual = usual_ms(cycles, kill["settled"], kill["last_before"])
        record = kill["record"]
        figures.append(
            {
                "state_bytes": found["state_bytes"],
                "killed": len(kill["workers"]),
                "resume_s": round(kill["resumed_s"] - kill["killed_s"], 3),
                "to_90pct_s": to_steady_s(ended, cycles, usual, kill),
                "usual_batch_ms": round(usual, 1),
                "promoted_tasks": record["request"]["promoted"],
                "restored_tasks": record["request"]["restored"],
                "phases_ms": record["phases"],
            }
        )
    return figures


def usual_ms(cycles: Mapping[int, float], first: int, last: int) -> float:
    """The median cycle of these batches."""
    return median(cycles[batch] for batch in range(first, last + 1) if batch in cycles)


def to_steady_s(
    ended: Sequence[Ended], cycles: Mapping[int, float], usual: float, kill: Mapping[str, Any]
) -> float | None:
    """Seconds from the kill to the first batch from which on the pace is as before; None: not within the run."""
    ends = {one.batch: one.ended_s for one in ended}
    limit = usual * 100 / RESUMED_PCT
    for batch in sorted(ends):
        window = [cycles.get(batch + more) for more in range(STEADY)]
        if batch < kill["resumed_batch"] or any(one is None for one in window):
            continue
        if median(one for one in window if one is not None) <= limit:
            return round(ends[batch] - float(kill["killed_s"]), 3)
    return None


def resume_native_s(native: Mapping[str, Any], settled: int = SETTLED) -> float:
    """From the kill to the end of the batch that suffered from it; see the module's docstring."""
    ended = [Ended(batch=b, ended_s=at, rows=n) for b, at, n in native["triggers"]]
    cycles = cycles_ms(ended)
    killed_s = float(native["killed_s"])
    before = [one.batch for one in ended if one.ended_s <= killed_s]
    usual = usual_ms(cycles, before[-1] - settled, before[-1])
    after = [one for one in ended if one.ended_s > killed_s]
    slow = [one for one in after if cycles.get(one.batch, 0.0) > SLOWER * usual]
    return round((slow or after)[0].ended_s - killed_s, 3)


def _verdict(given: FilledInput, found: Mapping[str, Any]) -> tuple[dict[str, int], bool]:
    drawn = given.drawn[: found["last_batch"] + 1]
    verdict = total(verify_updates(read_updates(found["updates"]), drawn, keys=given.keys))
    good = verdict.good and state_matches(found["state"], given.counts(found["last_batch"]))
    return {"lost": verdict.lost, "duplicated": verdict.duplicated}, good


def outcome(runs: Sequence[Mapping[str, Any]], wrong: Sequence[str]) -> Outcome:
    """The JSON object, the table, and whether everything was exact."""
    exact = not wrong and not any(one["lost"] or one["duplicated"] for one in runs)
    one_lost = {one["state_bytes"]: one["resume_s"] for one in runs if one["killed"] == 1}
    sizes = sorted(one_lost)
    growth = ratio(one_lost[sizes[-1]], one_lost[sizes[0]]) if len(sizes) > 1 else None
    figures: dict[str, Any] = {"runs": list(runs), "growth": growth, "verified": exact}
    notes = [
        f"{NODES} one-core workers on this machine; input always waiting; SIGKILL in the middle of a batch",
        "every update of every batch and the final state verified" if exact else f"WRONG: {', '.join(wrong)}",
    ]
    if growth is not None:
        notes.insert(1, f"recovery time of the largest state over the smallest: {growth:.2f}")
    return Outcome(json=figures, table=_table(runs), notes=tuple(notes), verified=exact)


def _table(runs: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="loss of workers under load", title_justify="left")
    headers = (
        "state",
        "replicas",
        "killed",
        "output resumes",
        "90 % again",
        "batch",
        "native",
        "lost",
        "twice",
    )
    for header in headers:
        table.add_column(header, justify="right")
    for one in runs:
        native, steady = one["native_resume_s"], one["to_90pct_s"]
        table.add_row(
            f"{one['state_bytes'] / 1e6:,.0f} MB",
            f"{one['replicas']}",
            f"{one['killed']}",
            f"{one['resume_s']:.2f} s",
            "not reached" if steady is None else f"{steady:.2f} s",
            f"{one['usual_batch_ms']:,.0f} ms",
            "–" if native is None else f"{native:.2f} s",
            f"{one['lost']}",
            f"{one['duplicated']}",
        )
    return table
