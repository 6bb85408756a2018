"""Which files a batch consisted of, from a log as Spark writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from updraft.testing import files_by_batch


def _log(checkpoint: Path, name: str, *lines: object) -> None:
    path = checkpoint / "spark" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *(json.dumps(line) for line in lines)]))


def _entry(number: int) -> dict[str, object]:
    return {"path": f"file:///in/{number}.parquet", "timestamp": 1, "batchId": number}


def test_a_file_noted_before_the_driver_died_goes_with_the_next_one(tmp_path: Path) -> None:
    for number in range(3):
        _log(tmp_path, f"sources/0/{number}", _entry(number))
    _log(tmp_path, "sources/0/3.compact", *map(_entry, range(4)))  # repeats what came before
    _log(tmp_path, "offsets/0", {}, {"logOffset": 0})
    _log(tmp_path, "offsets/1", {}, {"logOffset": 2})  # the driver died between source log and plan
    _log(tmp_path, "offsets/2", {}, {"logOffset": 3})
    names = [[path.name for path in paths] for paths in files_by_batch(tmp_path)]
    assert names == [["0.parquet"], ["1.parquet", "2.parquet"], ["3.parquet"]]


def test_batches_that_spark_forgot_are_not_guessed(tmp_path: Path) -> None:
    _log(tmp_path, "sources/0/0", _entry(0))
    _log(tmp_path, "offsets/7", {}, {"logOffset": 7})
    with pytest.raises(ValueError, match="forgotten what batch 0"):
        files_by_batch(tmp_path)
