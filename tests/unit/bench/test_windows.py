from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import updraft as ud
from updraft.apps import nexmark_oracle, yahoo
from updraft.bench import window_native, window_updraft, windows
from updraft.bench.framework import Bench
from updraft.bench.rates import rate_row, rate_table
from updraft.bench.window_input import KINDS, STEP_S, campaigns_of, complete_us, is_right
from updraft.topology.compile import compile_topology

ROWS, BATCHES = 1_000, 9


def written(tmp_path: Path, kind: str) -> Path:
    directory = tmp_path / kind
    KINDS[kind].write(directory, BATCHES, ROWS, 3)
    return directory


def every_row(directory: Path) -> pa.Table:
    return pa.concat_tables(pq.ParquetFile(path).read() for path in sorted(directory.glob("*.parquet")))


def by_hand(kind: str, directory: Path) -> list[dict[str, Any]]:
    """The answer of a kind, by code that shares nothing with `window_input`."""
    rows = every_row(directory)
    match kind:
        case "sliding":
            counts: Counter[tuple[int, int]] = Counter()
            for row in rows.to_pylist():
                pane = int(row["ts"].timestamp()) // 10 * 10
                counts.update((start, row["key"]) for start in range(pane - 50, pane + 10, 10))
            return [{"window_start": start, "key": key, "n": n} for (start, key), n in counts.items()]
        case "top-k":
            lists: dict[int, list[tuple[int, int]]] = {}
            for row in rows.to_pylist():
                lists.setdefault(row["key"], []).append((-row["value"], row["item"]))
            return [
                {"key": key, "rank": rank, "item": item, "value": -minus}
                for key, entries in lists.items()
                for rank, (minus, item) in enumerate(sorted(entries)[:10], start=1)
            ]
        case "yahoo":
            views = yahoo.expected(rows, pq.read_table(campaigns_of(directory)))
            return [{"window_start": s, "campaign_id": c, "views": n} for (s, c), n in views.items()]
        case _:
            return nexmark_oracle.expected(rows, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_equal_a_plain_recomputation(tmp_path: Path, kind: str) -> None:
    directory = written(tmp_path, kind)
    size_s = KINDS[kind].size_s
    last_s = complete_us(BATCHES, KINDS[kind].delay_s) // 1_000_000
    wanted = [
        row for row in by_hand(kind, directory) if size_s is None or row["window_start"] + size_s <= last_s
    ]
    found = KINDS[kind].answer(directory, BATCHES).to_pylist()
    assert found
    order: Callable[[dict[str, Any]], list[str]] = lambda row: [f"{name}={row[name]}" for name in sorted(row)]  # noqa: E731
    assert sorted(found, key=order) == sorted(wanted, key=order)


def as_emitted(answer: pa.Table) -> pa.Table:
    """The answer as a side writes it: windows as timestamps."""
    if "window_start" not in answer.column_names:
        return answer
    seconds = answer.column("window_start").cast(pa.timestamp("s", "UTC"))
    return answer.set_column(0, "window_start", seconds.cast(pa.timestamp("us", "UTC")))


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_is_right_only_if_every_row_is_there_once(tmp_path: Path, kind: str) -> None:
    answer = KINDS[kind].answer(written(tmp_path, kind), BATCHES)
    emitted = as_emitted(answer)

    def right(name: str, *parts: pa.Table) -> bool:
        for number, part in enumerate(parts):
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(part, tmp_path / name / f"{number}.parquet")
        return is_right(KINDS[kind], tmp_path / name, answer, BATCHES)

    half = emitted.num_rows // 2
    assert right("all", emitted.slice(half), emitted.slice(0, half))
    assert not right("missing", emitted.slice(1))
    value = emitted.column_names[-1]
    more = emitted.set_column(
        len(emitted.column_names) - 1, value, pa.array([n + 1 for n in emitted.column(value).to_pylist()])
    )
    assert not right("other", more)
    if KINDS[kind].size_s is not None:
        assert not right("twice", emitted, emitted.slice(0, 1))


def test_a_list_that_was_emitted_again_replaces_the_older_one(tmp_path: Path) -> None:
    answer = pa.table({"key": [1, 1], "rank": [1, 2], "item": [5, 6], "value": [9, 8]})
    older = pa.table({"key": [1, 1], "rank": [1, 2], "item": [6, 4], "value": [8, 2]})
    pq.write_table(answer, tmp_path / "0.parquet")
    pq.write_table(older, tmp_path / "1.parquet")
    assert is_right(KINDS["top-k"], tmp_path, answer, BATCHES)


def test_windows_after_the_bound_may_be_there(tmp_path: Path) -> None:
    answer = KINDS["yahoo"].answer(written(tmp_path, "yahoo"), BATCHES)
    (tmp_path / "out").mkdir()
    emitted = as_emitted(answer)
    last = emitted.slice(0, 1).set_column(
        0, "window_start", pa.array([complete_us(BATCHES)], pa.timestamp("us", "UTC"))
    )
    pq.write_table(pa.concat_tables([emitted, last]), tmp_path / "out" / "0.parquet")
    assert is_right(KINDS["yahoo"], tmp_path / "out", answer, BATCHES)


def test_windows_that_end_with_the_last_batch_are_not_asked_for() -> None:
    assert complete_us(3) - complete_us(2) == STEP_S * 1_000_000
    assert complete_us(3, delay_s=5) == complete_us(3) - 5_000_000


def test_every_kind_has_a_query_on_both_sides() -> None:
    assert list(window_native.QUERIES) == list(window_updraft.QUERIES) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_topologies_are_valid(kind: str, tmp_path: Path) -> None:
    KINDS[kind].write(tmp_path / "in", 1, 100, 1)
    app = window_updraft.topology({"kind": kind, "input": str(tmp_path / "in"), "instances": 2}, "out")
    assert isinstance(app, ud.Topology)
    compile_topology(app)


def test_nexmark_queries_share_their_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "QUICK_OTHERS", (2, 1))
    bench = Bench(name="w", quick=True, seed=1, scratch=tmp_path)
    q5, q8 = (windows._work(bench, kind, 1_000) for kind in ("q5", "q8"))
    assert q5["input"] == q8["input"]
    assert (q5["batches"], q5["warm_batches"]) == (2, 1)
    assert windows._work(bench, "top-k", 1_000)["input"] != q5["input"]


def test_a_missing_side_is_shown_as_such() -> None:
    row = rate_row("top-k", {"updraft": 300.4, "python_state": 10.0}, verified=True)
    assert row == {
        "name": "top-k",
        "updraft_rows_per_s": 300,
        "native_rows_per_s": None,
        "python_state_rows_per_s": 10,
        "ratio": None,
        "ratio_python_state": 30.04,
        "verified": True,
    }
    assert rate_table("t", [row]).row_count == 1
