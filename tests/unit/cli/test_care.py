"""`updraft state verify` and `restore`, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.state.written import flip, segments_of, write_checkpoint
from typer.testing import CliRunner

from updraft.cli import app


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "c")


def invoke(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["state", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_a_whole_checkpoint(checkpoint: Path) -> None:
    assert "is whole: 5 commits" in invoke("verify", checkpoint)
    told = json.loads(invoke("verify", checkpoint, "--json", "--batch", "3"))
    assert (told["whole"], told["commits"], told["newest_whole"]) == (True, [3], 3)


def test_a_damaged_one_says_how_to_go_back(checkpoint: Path) -> None:
    (delta,) = segments_of(checkpoint, 4) - segments_of(checkpoint, 3)
    flip(checkpoint / f"segments/{delta}.arrow")
    said = invoke("verify", checkpoint, code=1)
    assert f"operator 'count', table 'state', task 0,2: segment '{delta}' of batch 4 is damaged" in said
    assert "needed by batch 4" in said
    assert "can be restored: batches 0 to 3" in said
    assert f"updraft state restore {checkpoint} --batch 3 --in-place" in said
    told = json.loads(invoke("verify", checkpoint, "--json", code=1))
    assert (told["whole"], told["newest_whole"], told["problems"][0]["segment"]) == (False, 3, delta)
    assert invoke("verify", checkpoint, "--batch", "2")

    said = invoke("restore", checkpoint, "--batch", "3", "--in-place")
    assert "is at batch 3; it has no commit of batch 4" in said
    assert "repeats batch 4 and then goes on" in said
    assert "is whole" in invoke("verify", checkpoint)


def test_nothing_is_left(checkpoint: Path) -> None:
    flip(checkpoint / "segments/count/state-0.arrow")
    assert "no commit looked at can be restored" in invoke("verify", checkpoint, code=1)


def test_a_copy(checkpoint: Path, tmp_path: Path) -> None:
    done = json.loads(invoke("restore", checkpoint, "--batch", "1", "--to", tmp_path / "copy", "--json"))
    assert (done["batch"], done["dropped"], done["repeats"]) == (1, [2, 3, 4], [2, 3, 4])
    assert "is whole: 1 commit," in invoke("verify", tmp_path / "copy")
    assert "is whole: 5 commits" in invoke("verify", checkpoint)


@pytest.mark.parametrize("wrong", [(), ("--in-place", "--to", "x")], ids=["neither", "both"])
def test_where_to_must_be_said(checkpoint: Path, wrong: tuple[str, ...]) -> None:
    assert "give either --to OTHER_DIR" in invoke("restore", checkpoint, "--batch", "1", *wrong, code=2)
    assert "is whole: 5 commits" in invoke("verify", checkpoint)


def test_wrong_questions(checkpoint: Path, tmp_path: Path) -> None:
    assert "is not an Updraft checkpoint" in invoke("verify", tmp_path / "nowhere", code=2)
    assert "kept are: 0, 1, 2, 3, 4" in invoke("restore", checkpoint, "--batch", "7", "--in-place", code=2)
