from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from updraft.apps import wordcount
from updraft.apps.text import vocabulary, write_key_files, write_rows, write_text_files, zipf_thresholds


def test_vocabulary_is_distinct_words_without_spaces() -> None:
    words = vocabulary(10_000)
    assert len(words) == len(set(words)) == 10_000
    assert all(word.isascii() and word.isalnum() for word in words)


def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one() -> None:
    assert vocabulary(500) == vocabulary(10_000)[:500]


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one word"):
        vocabulary(0)


def test_zipf_thresholds_rise_to_exactly_one() -> None:
    thresholds = zipf_thresholds(100, 1.0)
    assert np.all(np.diff(thresholds) > 0)
    assert thresholds[-1] == 1.0
    assert thresholds[0] == pytest.approx(2 * (thresholds[1] - thresholds[0]))


def test_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    first = write_text_files(tmp_path / "a", 2, 50, seed=3)
    again = write_text_files(tmp_path / "b", 2, 50, seed=3)
    other = write_text_files(tmp_path / "c", 2, 50, seed=4)
    assert [path.read_bytes() for path in first.paths] == [path.read_bytes() for path in again.paths]
    assert first.paths[0].read_bytes() != other.paths[0].read_bytes()
    assert first.paths[0].read_bytes() != first.paths[1].read_bytes()


def test_text_has_the_asked_shape_and_its_truth_is_a_recount(tmp_path: Path) -> None:
    written = write_text_files(tmp_path, 3, 40, words_per_line=7, vocabulary_size=50)
    for path in written.paths:
        lines = path.read_text().splitlines()
        assert len(lines) == 40
        assert all(len(line.split(" ")) == 7 for line in lines)
    assert written.rows == 3 * 40 * 7
    assert wordcount.expected(written.paths) == written.expected()


def test_frequent_words_come_first(tmp_path: Path) -> None:
    written = write_text_files(tmp_path, 1, 5_000, vocabulary_size=1_000, zipf=1.2)
    assert written.counts[0] > written.counts[9] > written.counts[200]


def test_nothing_hidden_is_left_behind(tmp_path: Path) -> None:
    write_text_files(tmp_path, 2, 5)
    write_key_files(tmp_path, 2, 5, keys=10)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_key_files_carry_their_truth(tmp_path: Path) -> None:
    written = write_key_files(tmp_path, 3, 200, keys=17, seed=5)
    rows = [row for path in written.paths for row in pq.read_table(path).to_pylist()]
    assert written.rows == len(rows) == 600
    for key in range(17):
        values = [row["value"] for row in rows if row["key"] == key]
        assert written.counts[key] == len(values)
        assert written.totals[key] == sum(values)


def test_given_rows_are_written_as_given(tmp_path: Path) -> None:
    batches = [(np.array([1, 1, 2]), np.array([10, 20, 30])), (np.array([0]), np.array([5]))]
    written = write_rows(tmp_path, batches, keys=3)
    assert [pq.read_table(path).column("key").to_pylist() for path in written.paths] == [[1, 1, 2], [0]]
    assert written.totals.tolist() == [5, 30, 30]
