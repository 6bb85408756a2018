"""Records of decisions: torn lines, newer versions and a full disk cost a line, never a run; people can read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from updraft.cli.app import app
from updraft.cli.progress import decision_line
from updraft.control.decisions import DECISIONS_FILE, DecisionRecord, Decisions, Fate, read_decisions

RECORD = DecisionRecord(
    id=1,
    at_s=1_700_000_000.0,
    topology="orders",
    policy="symbiotic",
    mode="auto",
    rule="symbiotic (paper 5, Algorithm 1)",
    fate=Fate.DONE,
    changes=("count 1 → 3", "workers 1 → 3"),
    reasons=("input 9,000 rows/s: count×3 on 3 workers keeps the time used at 52%",),
    blocked=(),
    inputs={"rows_per_s": 9000.0, "time": 0.93, "latency_s": None, "backlog_s": 2.0},
    running={"parallelism": {"count": 1}, "workers": 1, "cost_per_hour": 0.2},
    wanted={"parallelism": {"count": 3}, "workers": 3, "cost_per_hour": 0.6},
    expected={"time": 0.52},
    measured={"time": 0.55},
    measured_at_s=1_700_000_030.0,
    change_ids=(4,),
    added_delay_ms=210.0,
)


def test_the_last_line_of_a_decision_counts_and_what_is_torn_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / DECISIONS_FILE
    found = Decisions(path)
    assert found.next_id() == 1
    found.write(replace(RECORD, fate=Fate.RUNNING))
    found.write(RECORD)
    with path.open("a") as file:
        file.write('{"id": 2, "at_s"')
    assert read_decisions(path) == (RECORD,)
    again = Decisions(path)
    assert again.next_id() == 2
    again.write(replace(RECORD, id=2))
    assert [record.id for record in read_decisions(path)] == [2, 1]


def test_fields_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / DECISIONS_FILE
    path.write_text(json.dumps({**RECORD.to_json(), "mood": "good"}) + '\n{"id": "x"}\n[]\n')
    assert read_decisions(path) == (RECORD,)


def test_a_directory_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = Decisions(tmp_path / "file" / DECISIONS_FILE)
    found.write(RECORD)
    assert found.newest() == (RECORD,)


def test_the_command_shows_inputs_rule_reasons_and_effects(tmp_path: Path) -> None:
    Decisions(tmp_path / DECISIONS_FILE).write(
        replace(RECORD, blocked=("cooldown: 5 s",), unmet=("one more worker",))
    )
    runner = CliRunner()
    shown = runner.invoke(app, ["decisions", "--checkpoint", str(tmp_path)]).stdout
    for part in (
        "count 1 → 3",
        "Algorithm 1",
        "keeps the time",
        "cooldown",
        "one more",
        "0.93",
        "0.52",
        "0.55",
        "210 ms",
    ):
        assert part in shown
    (told,) = json.loads(runner.invoke(app, ["decisions", "--checkpoint", str(tmp_path), "--json"]).stdout)
    assert told["wanted"]["cost_per_hour"] == 0.6
    assert runner.invoke(app, ["decisions", "--checkpoint", str(tmp_path / "no")]).exit_code == 2
    assert runner.invoke(app, ["decisions", "orders", "--checkpoint", str(tmp_path)]).exit_code == 2


def test_one_line_of_a_decision() -> None:
    assert "count 1 → 3" in decision_line(RECORD)
    held = replace(RECORD, changes=(), blocked=("cooldown",), fate=Fate.HELD)
    assert "nothing changed" in decision_line(held)
    assert "cooldown" in decision_line(held)
