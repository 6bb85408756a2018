"""`updraft bench place`: instances where they talk least between nodes, and where the CPU is (paper 3).

*Communication*: a word count of 12 + 24 instances (quick: 3 + 6) dealt evenly over two nodes. Once under policy `online`, one
live move a round; once moved as a whole by `place --strategy traffic:2`. Inter-node share: bytes between instances on
different nodes over all bytes between instances, from the instances' reports, first against last batches. What source
partitions send is Spark's to place and is reported beside it (`..._with_sources`). `throughput_ratio`: rows per second of
batch time, last batches over first; batches still get quicker by themselves in a quick run, whose warm-up is short.

*Computation*: an operator that works for a fixed time per row, 95 % of whose rows belong to the instances of one of two
workers; in the middle of the input it is the other's. `cpu_before`: mean use of the workers' cores, static plan;
`cpu_after`: the same batches under `online`, the last third of each half. Every count is verified against a recount of the
input.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from updraft.bench.framework import Bench, Outcome, ratio
from updraft.bench.place_side import moves_of
from updraft.cluster import local_cluster
from updraft.state.keys import hash_keys, task_of

WORDS_A_LINE = 10
TASKS = 16
HOT = 0.95
KEYS = 4_000
SIDE_TIMEOUT_S = 1200.0


def run(bench: Bench) -> Outcome:
    """The place benchmark."""
    bench.say("writing the input")
    quick = bench.quick
    words = write_lines(bench.scratch / "lines", files=30 if quick else 180, seed=bench.seed)
    batches = 28 if quick else 80
    keys = write_skewed(
        bench.scratch / "keys", files=batches, rows=8_000, workers=2, tasks=TASKS, seed=bench.seed
    )
    split, count = (3, 6) if quick else (12, 24)
    bench.say("starting a cluster of two nodes with addresses of their own")
    with local_cluster(nodes=2, cores_per_node=1, apart=True) as cluster:
        found = bench.side(
            "updraft.bench.place_side:both",
            {
                "master": cluster.master_url,
                "communication": {
                    "input": str(bench.scratch / "lines"),
                    "operator": "count",
                    "split": split,
                    "count": count,
                    "warm": 20 if quick else 100,
                    "batches": 16 if quick else 170,
                    "traffic_batches": 8 if quick else 50,
                    "trigger": "700 milliseconds",
                    "period_s": 1.4 if quick else 2.1,
                },
                "computation": {
                    "input": str(bench.scratch / "keys"),
                    "operator": "work",
                    "tasks": TASKS,
                    "batches": batches,
                    "cpu_us": 100.0 if quick else 150.0,
                    "period_s": 1.0 if quick else 2.5,
                },
            },
            timeout_s=SIDE_TIMEOUT_S,
        )
    talk, work = found["talk"], found["work"]
    bench.say("verifying")
    return outcome(talk, work, words, keys)


def outcome(
    talk: Mapping[str, Any],
    work: Mapping[str, Any],
    words: Sequence[Mapping[str, int]],
    keys: Sequence[Mapping[str, int]],
) -> Outcome:
    """Figures and verdict from what the sides report."""
    online, traffic = (talking(talk[name]["batches"]) for name in ("online", "traffic"))
    computed = computing(work["static"]["batches"], work["online"]["batches"])
    wrong = [
        f"{part} {name}"
        for part, sides, truth in (("words", talk, words), ("work", work, keys))
        for name, side in sides.items()
        if side["counts"] != recounted(truth, side["last_batch"])
    ]
    figures = {
        "communication": {
            **online,
            "moves": moves_of(talk["online"]["decisions"]),
            "traffic": traffic,
        },
        "computation": {**computed, **moves_by_half(work["online"])},
        "verified": not wrong,
    }
    return Outcome(
        json=figures,
        table=_table(figures),
        notes=(
            "inter-node share: bytes between instances on different nodes over all bytes between instances",
            "every count verified" if not wrong else f"WRONG counts: {', '.join(wrong)}",
        ),
        verified=not wrong,
    )


def talking(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares and speed of the batches under the first plan against the last ones."""
    first = [batch for batch in batches if batch["plan"] == batches[0]["plan"]]
    last = [batch for batch in batches if batch["plan"] == batches[-1]["plan"]]
    # The first batches of a plan compile code; those that were slowed by that say nothing about the plan.
    first, last = first[len(first) // 2 :], last[len(last) // 2 :]
    speeds = [median(batch["rows"] / batch["seconds"] for batch in some) for some in (first, last)]
    return {
        "inter_node_share_before": round(share(first), 4),
        "inter_node_share_after": round(share(last), 4),
        "throughput_ratio": ratio(speeds[1], speeds[0]),
        "inter_node_share_before_with_sources": round(share(first, sources=True), 4),
        "inter_node_share_after_with_sources": round(share(last, sources=True), 4),
    }


def share(batches: Sequence[Mapping[str, Any]], *, sources: bool = False) -> float:
    """Of the bytes of these batches, those between nodes."""
    names = ("", "source_") if sources else ("",)
    crossing = sum(batch[f"{name}crossing"] for batch in batches for name in names)
    inside = sum(batch[f"{name}inside"] for batch in batches for name in names)
    return crossing / (crossing + inside) if crossing + inside else 0.0


def computing(static: Sequence[Mapping[str, Any]], online: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """CPU use in the last third of each half of the input: the skew is as long there as it was before it moved."""
    half = len(static) // 2
    parts = {"": slice(half - half // 3, half), "_second": slice(len(static) - half // 3, len(static))}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        before, after = cpu_use(static[part]), cpu_use(online[part])
        found[f"cpu_before{name}"] = round(before, 4)
        found[f"cpu_after{name}"] = round(after, 4)
        found[f"gain{name}"] = round(after / before - 1, 4) if before else 0.0
    seconds = [sum(batch["seconds"] for batch in some) for some in (static, online)]
    found["throughput_ratio"] = ratio(seconds[0], seconds[1])
    return found


def moves_by_half(side: Mapping[str, Any]) -> dict[str, int]:
    """Moves before the skew moved, and since."""
    turned_s = side["batches"][len(side["batches"]) // 2 - 1]["at_s"]
    first = [one for one in side["decisions"] if one["at_s"] <= turned_s]
    both = moves_of(side["decisions"])
    return {"moves": moves_of(first), "moves_second": both - moves_of(first)}


def cpu_use(batches: Sequence[Mapping[str, Any]]) -> float:
    """Mean share of the two workers' cores that instances used."""
    spent = sum(sum(batch["cpu_s"].values()) for batch in batches)
    return spent / (2 * sum(batch["seconds"] for batch in batches)) if batches else 0.0


def recounted(batches: Sequence[Mapping[str, int]], last: int) -> dict[str, int]:
    """Rows of every key in the files of batches 0..last."""
    total: Counter[str] = Counter()
    for counts in batches[: last + 1]:
        total.update(counts)
    return dict(total)


def write_lines(directory: Path, *, files: int, seed: int, lines: int = 3_000) -> list[dict[str, int]]:
    """Files of lines of words that hardly repeat, so that combining before the exchange saves little; their counts."""
    random = np.random.default_rng([seed, 1])
    directory.mkdir()
    counts: list[dict[str, int]] = []
    for number in range(files):
        drawn = random.integers(0, 100_000, (lines, WORDS_A_LINE))
        text = [" ".join(f"word-number-{value:06d}" for value in line) for line in drawn.tolist()]
        _write(directory, number, pa.table({"line": pa.array(text)}))
        values, found = np.unique(drawn, return_counts=True)
        counts.append(
            {f"word-number-{v:06d}": n for v, n in zip(values.tolist(), found.tolist(), strict=True)}
        )
    return counts


def write_skewed(
    directory: Path, *, files: int, rows: int, workers: int, tasks: int, seed: int
) -> list[dict[str, int]]:
    """Files of keys most of which belong to tasks that the first plan gives to one worker; later, to the other."""
    random = np.random.default_rng([seed, 2])
    owner = task_of(hash_keys([pa.array(np.arange(KEYS))]), tasks) % workers
    directory.mkdir()
    counts: list[dict[str, int]] = []
    for number in range(files):
        hot = 0 if number < files // 2 else 1
        chance = np.where(owner == hot, HOT / (owner == hot).sum(), (1 - HOT) / (owner != hot).sum())
        drawn = random.choice(KEYS, rows, p=chance)
        _write(directory, number, pa.table({"key": pa.array(drawn, pa.int64())}))
        values, found = np.unique(drawn, return_counts=True)
        counts.append({str(v): n for v, n in zip(values.tolist(), found.tolist(), strict=True)})
    return counts


def _write(directory: Path, number: int, table: pa.Table) -> None:
    path = directory / f"{number:05d}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_000_000_000 + number,) * 2)  # the order in which Spark reads them


def _table(figures: Mapping[str, Any]) -> Table:
    table = Table(title="placement by policy online, two nodes", title_justify="left")
    for header in ("", "before", "after", "moves", "throughput"):
        table.add_column(header, justify="left" if not header else "right")
    talk, work = figures["communication"], figures["computation"]
    for name, found, moves in (
        ("online", talk, str(talk["moves"])),
        ("traffic:2", talk["traffic"], "1 change"),
    ):
        table.add_row(
            f"inter-node share, {name}",
            f"{found['inter_node_share_before']:.1%}",
            f"{found['inter_node_share_after']:.1%}",
            moves,
            f"× {found['throughput_ratio']:.2f}",
        )
    for title, name in (("CPU use, skewed", ""), ("CPU use, skew moved", "_second")):
        table.add_row(
            title,
            f"{work[f'cpu_before{name}']:.0%}",
            f"{work[f'cpu_after{name}']:.0%} ({work[f'gain{name}']:+.0%})",
            str(work[f"moves{name}"]),
            f"× {work['throughput_ratio']:.2f}",
        )
    return table
