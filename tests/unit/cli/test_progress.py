"""Batch summaries as people and machines read them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from updraft.cli.progress import line, size, watch


@dataclass(frozen=True, kw_only=True)
class Batch:
    batch_id: int = 3
    rows_in: int = 5000
    rows_out: int = 40
    seconds: float = 0.25
    state_rows: int = 1200
    state_bytes: int = 34_567
    parallelism: dict[str, int] = field(default_factory=lambda: {"count": 2})


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


def test_line_names_rate_time_and_state() -> None:
    assert line(Batch()) == (
        "batch 3  5,000 rows in  20,000 rows/s  250 ms  40 rows out  state 1,200 rows 34.6 kB  count×2"
    )
    assert "0 rows/s" in line(Batch(seconds=0.0))


def test_plain_lines_when_nobody_watches() -> None:
    text = io.StringIO()
    with watch(Console(file=text), as_json=False) as progress:
        progress.batch(Batch())
        progress.batch(Batch(batch_id=4))
    assert [one.split()[1] for one in text.getvalue().splitlines()] == ["3", "4"]
    assert progress.closing() == "stopped after 2 batches, 10,000 rows, 20,000 rows/s while working"


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with watch(Console(file=io.StringIO()), as_json=True) as progress:
        progress.batch(Batch())
    assert json.loads(capsys.readouterr().out)["batch"]["parallelism"] == {"count": 2}


def test_a_terminal_sees_one_live_line() -> None:
    text = io.StringIO()
    with watch(Console(file=text, force_terminal=True, width=150), as_json=False) as progress:
        progress.batch(Batch())
    assert "batch 3" in text.getvalue()
    assert progress.closing().startswith("stopped after 1 batch,")
