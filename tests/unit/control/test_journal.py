"""The journal survives crashes in the middle of a line and of a change, and stays small."""

from __future__ import annotations

import json
import logging
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from updraft.control import ChangeRecord, Journal, Outcome


def record(number: int, outcome: Outcome = Outcome.DONE) -> ChangeRecord:
    return ChangeRecord(
        id=number,
        who="ann",
        request={"kind": "rescale", "parallelism": {"count": 4}, "strategy": "all_at_once"},
        started_at=100.0 + number,
        outcome=outcome,
        steps=("copy count:3 from worker 1 to worker 2",),
        phases={"copying": 0.0, "ready": 12.5},
        added_delay_ms=3.5,
        bytes_copied=10,
    )


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "deep" / "changes.jsonl")


def test_what_is_written_is_read_back_newest_first(journal: Journal) -> None:
    assert journal.records() == ()
    for number in (1, 2, 3):
        assert journal.append(record(number))
    assert journal.records() == (record(3), record(2), record(1))
    assert journal.records(2) == (record(3), record(2))
    assert journal.find(2) == record(2)
    assert journal.find(9) is None
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_the_last_line_of_a_change_counts(journal: Journal) -> None:
    journal.append(record(1, Outcome.RUNNING))
    journal.append(record(2, Outcome.RUNNING))
    journal.append(record(1, Outcome.SUPERSEDED))
    assert [(one.id, one.outcome) for one in journal.records()] == [
        (2, Outcome.RUNNING),
        (1, Outcome.SUPERSEDED),
    ]
    assert [one.id for one in journal.records(1)] == [2]


def test_a_line_torn_at_every_byte_costs_that_line_only(tmp_path: Path) -> None:
    whole = Journal(tmp_path / "whole")
    whole.append(record(1))
    whole.append(record(2))
    text = whole.path.read_bytes()
    first = text.index(b"\n") + 1
    for length in range(first, len(text)):
        torn = Journal(tmp_path / "torn")
        torn.path.write_bytes(text[:length])
        # All but the newline is there: nothing is lost.
        expected = (record(2), record(1)) if length == len(text) - 1 else (record(1),)
        assert torn.records() == expected
        torn.append(record(3))
        assert torn.records() == (record(3), *expected)


def test_what_is_not_ours_is_skipped(journal: Journal) -> None:
    journal.append(record(1))
    newer = {**record(2).to_json(), "weather": "fine"}
    lines = [b"[1]", b"\xff\xfe", b'{"id": "x"}', b'{"id": 3, "request": {}}', json.dumps(newer).encode()]
    unknown = json.dumps({**record(4).to_json(), "outcome": "exploded"}).encode()
    with journal.path.open("ab") as file:
        file.write(b"\n".join([*lines, unknown]))
    assert journal.records() == (record(2), record(1))


def test_numbers_go_on_after_a_restart(journal: Journal) -> None:
    assert journal.next_id() == 1
    journal.append(record(1))
    assert journal.next_id() == 2
    journal.append(record(2))
    assert Journal(journal.path).next_id() == 3


def test_a_change_that_a_crash_left_running_is_marked(journal: Journal) -> None:
    journal.append(record(1))
    journal.append(record(2, Outcome.RUNNING))
    again = Journal(journal.path)
    assert [one.id for one in again.recover(500.0)] == [2]
    newest = again.records()[0]
    assert (newest.id, newest.outcome, newest.ended_at) == (2, Outcome.INTERRUPTED, 500.0)
    assert "run ended" in newest.reason
    assert again.recover(600.0) == ()


def test_it_stays_within_bounds_and_forgets_the_oldest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl", max_bytes=2000, keep=2)
    for number in range(1, 101):
        journal.append(record(number))
    assert len(list(tmp_path.iterdir())) == 3
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * 2000
    numbers = [one.id for one in journal.records()]
    assert numbers == list(range(100, 100 - len(numbers), -1))
    assert len(numbers) > 5
    assert Journal(journal.path, keep=2).next_id() == 101


def test_a_record_larger_than_a_file_is_kept_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl", max_bytes=10, keep=2)
    for number in (1, 2, 3, 4):
        journal.append(record(number))
    assert [one.id for one in journal.records()] == [4, 3, 2]


def test_threads_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "changes.jsonl", max_bytes=20_000, keep=50)

    def write() -> None:
        for _ in range(20):
            journal.append(record(journal.next_id()))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.id for one in journal.records()] == list(range(160, 0, -1))


def test_a_journal_that_cannot_be_written_is_told_not_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file" / "changes.jsonl")
    with caplog.at_level(logging.ERROR, "updraft.control"):
        assert not journal.append(replace(record(7)))
    assert "change 7 is not in the journal" in caplog.text
