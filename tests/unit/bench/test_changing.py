"""What `rescale` and `migrate` make of the reports of their sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from updraft.bench import migrate, rescale
from updraft.bench.filled import FilledInput, write_filled, write_updates

BATCH_S = 0.25


@pytest.fixture
def given(tmp_path: Path) -> FilledInput:
    return write_filled(tmp_path / "in", keys=400, fill=2, batches=60, rows=100, seed=1)


def emitted(given: FilledInput, last: int) -> dict[int, pa.Table]:
    batches, counts = {}, np.zeros(given.keys, np.int64)
    for batch, keys in enumerate(given.drawn[: last + 1]):
        np.add.at(counts, keys, 1)
        touched = np.unique(keys)
        batches[batch] = pa.table({"key": touched, "count": counts[touched]})
    return batches


def state(given: FilledInput, last: int, path: Path) -> str:
    pq.write_table(pa.table({"key": np.arange(given.keys), "count": given.counts(last)}), path)
    return str(path)


def triggers(last: int, slow: dict[int, float]) -> list[tuple[int, float, int]]:
    at, found = 1000.0, []
    for batch in range(last + 1):
        at += slow.get(batch, BATCH_S)
        found.append((batch, at, 100))
    return found


def rescaled(given: FilledInput, tmp_path: Path, **record: Any) -> dict[str, Any]:
    change = {
        "from": 2,
        "to": 4,
        "settled": 3,
        "asked_after": 8,
        "switched_at": 11,
        "moved_tasks": list(range(16)),
        "record": {
            "added_delay_ms": 40.0,
            "bytes_copied": 6000,
            "bytes_to_move": 5500,
            "duration_ms": 700.0,
            **record,
        },
    }
    return {
        "changes": [change],
        "triggers": triggers(20, {10: 0.35, 11: 0.4}),
        "last_batch": 20,
        "updates": write_updates(emitted(given, 20), tmp_path / "updates"),
        "state": state(given, 20, tmp_path / "state"),
        "bytes_per_row": 24.0,
        "overhead": {
            "blocks": [{"live": 1.01, "fixed": 1.0}] * 3,
            "turns": {"live": [0.51, 0.51, 9.0], "fixed": [0.5, 0.5, 0.5]},
            "last_batch": {"live": 9, "fixed": 8},
            "states": {
                "live": state(given, 9, tmp_path / "live"),
                "fixed": state(given, 8, tmp_path / "fixed"),
            },
        },
    }


def native(given: FilledInput, tmp_path: Path) -> dict[str, Any]:
    stages = [
        {"partitions": 2, "triggers": [(0, 0.0, 9), (1, 1.0, 9), (2, 2.0, 9)]},
        {"partitions": 4, "triggers": [(4, 9.0, 9), (5, 10.0, 9), (6, 11.5, 9)]},
    ]
    return {"stages": stages, "state": state(given, 5, tmp_path / "native"), "files": 6}


def test_rescale_figures(given: FilledInput, tmp_path: Path) -> None:
    outcome = rescale.outcome(given, rescaled(given, tmp_path), native(given, tmp_path))
    assert outcome.verified
    figures = outcome.json
    change = figures["changes"][0]
    assert (change["from"], change["to"], change["moved_bytes"]) == (2, 4, 6000)
    assert change["added_delay_ms"] == pytest.approx(150)
    assert change["added_delay_recorded_ms"] == 40
    assert change["preparation_ms"] == pytest.approx(100)
    assert figures["median_batch_ms"] == pytest.approx(250)
    assert figures["native_stop_ms"] == pytest.approx(6000)
    assert figures["ratio"] == pytest.approx(40)
    assert figures["ratio_with_preparation"] == pytest.approx(24)
    assert figures["steady_overhead"] == pytest.approx(0.01)
    assert figures["steady_overhead_undisturbed"] == pytest.approx(0.02)
    assert (figures["lost"], figures["duplicated"]) == (0, 0)


def test_the_larger_delay_counts(given: FilledInput, tmp_path: Path) -> None:
    found = rescale.outcome(given, rescaled(given, tmp_path, added_delay_ms=500.0), native(given, tmp_path))
    assert found.json["changes"][0]["added_delay_ms"] == 500


def test_bytes_that_had_to_travel_are_recounted_from_the_input(given: FilledInput, tmp_path: Path) -> None:
    everything = rescale.rows_to_move(given, range(rescale.TASKS), [5])
    assert everything == 400 + len(np.unique(given.drawn[5]))
    assert rescale.rows_to_move(given, [], [5]) == 0
    halves = [rescale.rows_to_move(given, tasks, []) for tasks in (range(16), range(16, 32))]
    assert sum(halves) == 400
    change = rescale.outcome(given, rescaled(given, tmp_path), native(given, tmp_path)).json["changes"][0]
    touched = [np.unique(given.drawn[batch]) for batch in (9, 10)]
    assert halves[0] * 24 < change["state_bytes_of_moved"] <= (halves[0] + sum(map(len, touched))) * 24
    assert change["moved_ratio_stored"] < 6000 / 5500
    assert change["moved_ratio"] == pytest.approx(6000 / change["state_bytes_of_moved"], abs=0.001)


@pytest.mark.parametrize("wrong", ["state", "updates", "native", "fixed"])
def test_a_wrong_result_of_any_run_is_told(given: FilledInput, tmp_path: Path, wrong: str) -> None:
    ours, theirs = rescaled(given, tmp_path), native(given, tmp_path)
    match wrong:
        case "state":
            ours["state"] = state(given, 19, tmp_path / "w")
        case "updates":
            ours["updates"] = write_updates(emitted(given, 19), tmp_path / "w")
        case "native":
            theirs["state"] = state(given, 6, tmp_path / "w")
        case "fixed":
            ours["overhead"]["states"]["fixed"] = state(given, 9, tmp_path / "w")
    outcome = rescale.outcome(given, ours, theirs)
    assert not outcome.verified
    assert any("WRONG" in note for note in outcome.notes)


def migrated(given: FilledInput, tmp_path: Path, *, last: int = 60) -> dict[str, Any]:
    record = {"bytes_copied": 10, "duration_ms": 300.0, "added_delay_ms": 12.0}
    return {
        # Batch 40 takes three seconds: all of the fifth to seventh second after the first move at 1005.
        "triggers": triggers(last, {40: 3.0}),
        "last_batch": last,
        "updates": write_updates(emitted(given, last), tmp_path / "updates"),
        "state": state(given, last, tmp_path / "state"),
        "changes": [
            {
                "M": 4,
                "began_s": 1001.0,
                "moves_s": 1005.0,
                "ended_s": 1017.0,
                "last_batch": 56,
                "records": [record, record],
            }
        ],
    }


def test_migrate_figures(given: FilledInput, tmp_path: Path) -> None:
    outcome = migrate.outcome(given, migrated(given, tmp_path))
    assert outcome.verified
    (run,) = outcome.json["runs"]
    assert (run["M"], run["seconds"], run["rows_per_s_before"]) == (4, 12, 400)
    assert run["seconds_degraded"] == {"20": 3, "40": 3, "60": 3, "80": 3, "100": 0}
    assert run["seconds_without_commit"] >= 2
    assert (run["lost"], run["duplicated"], run["moved_bytes"]) == (0, 0, 20)


def test_migrate_tells_what_was_lost(given: FilledInput, tmp_path: Path) -> None:
    found, batches = migrated(given, tmp_path), emitted(given, 60)
    batches[30] = batches[30].slice(1)
    found["updates"] = write_updates(batches, tmp_path / "w")
    outcome = migrate.outcome(given, found)
    assert not outcome.verified
    assert outcome.json["runs"][0]["lost"] == 1


def test_migrate_judges_the_final_state_too(given: FilledInput, tmp_path: Path) -> None:
    found = {**migrated(given, tmp_path), "state": state(given, 59, tmp_path / "w")}
    assert not migrate.outcome(given, found).verified
