"""`updraft state` over a real checkpoint of two batches, written as a run writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from updraft.cli import app
from updraft.state.checkpoint import SEGMENTS, open_checkpoint
from updraft.state.files import LocalFiles
from updraft.state.identity import Identity, operator_identity
from updraft.state.manifest import advance, levels_for, start
from updraft.state.spec import TableSpec
from updraft.state.store import LocalStore
from updraft.state.table import KeyedTable

TASKS = (0, 1, 2, 3)
SPEC = TableSpec(key=pa.schema({"word": pa.string()}), values=pa.schema({"count": pa.int64()}))
BATCHES = ({"the": 1, "[red]cat": 1}, {"the": 5})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    identity = Identity(
        topology="wordcount", id="", operators={"count": operator_identity(4, {"state": SPEC}, SPEC.key)}
    )
    opened = open_checkpoint(LocalFiles(tmp_path), identity)
    manifest = start("wordcount", {("count", "state"): (4, SPEC)})
    for batch, counts in enumerate(BATCHES):
        table = KeyedTable(
            spec=SPEC,
            tasks=4,
            mine=TASKS,
            levels=levels_for(manifest, "count", "state", TASKS),
            store=LocalStore(tmp_path / SEGMENTS),
            operator="count",
            table="state",
        )
        table.put(pa.table({"word": list(counts), "count": list(counts.values())}))
        sealed = table.seal(f"count/state-{batch}", batch)
        manifest = advance(manifest, batch, 0, {("count", "state"): [(TASKS, sealed)]})
        opened.write_commit(manifest)
    opened.close()
    return tmp_path


def invoke(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["state", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_show_lists_operators(checkpoint: Path) -> None:
    shown = invoke("show", checkpoint)
    assert "topology 'wordcount' at batch 1; commits 0 to 1 are kept" in shown
    assert "count" in shown
    told = json.loads(invoke("show", checkpoint, "--json", "--operator", "count"))
    assert (told["batch"], told["tables"][0]["operator"], told["tables"][0]["tasks"]) == (1, "count", 4)


def test_one_key_now_and_before(checkpoint: Path) -> None:
    one = ("show", checkpoint, "--operator", "count", "--key")
    assert json.loads(invoke(*one, "the", "--json")) == {"word": "the", "count": 5}
    assert json.loads(invoke(*one, "the", "--batch", "0", "--json")) == {"word": "the", "count": 1}
    assert invoke(*one, "[red]cat") == "word: [red]cat\ncount: 1\n"
    assert "there is no key dog" in invoke(*one, "dog", code=1)


def test_scan_prints_every_row(checkpoint: Path) -> None:
    rows = [json.loads(one) for one in invoke("scan", checkpoint, "count", "--json").splitlines()]
    assert sorted((row["word"], row["count"]) for row in rows) == [("[red]cat", 1), ("the", 5)]
    assert "[red]cat" in invoke("scan", checkpoint, "count")
    assert len(invoke("scan", checkpoint, "count", "--json", "--limit", "1").splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--operator", "nope"), "no operator 'nope' has state at batch 1; there is: count"),
        (("--batch", "9"), "kept are: 0, 1"),
        (("--key", "the"), "--key needs --operator"),
        (("--operator", "count", "--key", "a", "--key", "b"), "give all of it"),
    ],
)
def test_wrong_questions(checkpoint: Path, arguments: tuple[str, ...], says: str) -> None:
    assert says in invoke("show", checkpoint, *arguments, code=2)


def test_no_checkpoint(tmp_path: Path) -> None:
    assert "is not an Updraft checkpoint" in invoke("show", tmp_path / "nowhere", code=2)
