from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from updraft.bench.filled import (
    Updates,
    Verdict,
    read_updates,
    state_matches,
    total,
    verify_updates,
    write_filled,
    write_updates,
)

DRAWN = [np.array([0, 1, 2]), np.array([1, 1, 2]), np.array([2])]


def updates(*batches: dict[int, int]) -> dict[int, Updates]:
    return {
        number: (np.array([*batch], np.int64), np.array([*batch.values()], np.int64))
        for number, batch in enumerate(batches)
    }


RIGHT = ({0: 1, 1: 1, 2: 1}, {1: 3, 2: 2}, {2: 3})


def verdict_of(*batches: dict[int, int]) -> Verdict:
    return total(verify_updates(updates(*batches), DRAWN, keys=3))


def test_right_updates_have_nothing_wrong() -> None:
    assert verdict_of(*RIGHT) == Verdict()
    assert verdict_of(*RIGHT).good


def test_a_lost_row_counts_once_however_long_it_shows() -> None:
    assert verdict_of(RIGHT[0], {1: 3, 2: 1}, {2: 2}) == Verdict(lost=1, disordered=1)


def test_a_row_counted_twice() -> None:
    assert verdict_of(RIGHT[0], {1: 4, 2: 2}, {2: 3}) == Verdict(duplicated=1)


def test_a_missing_update_is_lost_even_if_made_up_for_later() -> None:
    assert verdict_of(RIGHT[0], {1: 3}, {2: 3}) == Verdict(lost=1)
    assert verdict_of(RIGHT[0], RIGHT[1]) == Verdict(lost=1)


def test_an_update_too_many() -> None:
    twice = {
        **updates(*RIGHT),
        1: (np.array([1, 2, 1], np.int64), np.array([3, 2, 3], np.int64)),
    }
    assert total(verify_updates(twice, DRAWN, keys=3)) == Verdict(duplicated=1)
    assert verdict_of(RIGHT[0], RIGHT[1], {0: 1, 2: 3}) == Verdict(duplicated=1, disordered=1)


def test_an_old_count_emitted_again_is_out_of_order() -> None:
    assert verdict_of(RIGHT[0], {1: 1, 2: 2}, {2: 3}).disordered == 1


def test_verdicts_are_by_batch() -> None:
    assert [one.lost for one in verify_updates(updates(RIGHT[0], {1: 3, 2: 1}, {2: 2}), DRAWN, keys=3)] == [
        0,
        1,
        0,
    ]


def test_input_fills_every_key_once_and_keeps_its_order(tmp_path: Path) -> None:
    given = write_filled(tmp_path / "in", keys=100, fill=3, batches=4, rows=20, seed=1)
    paths = sorted((tmp_path / "in").iterdir(), key=lambda path: path.stat().st_mtime)
    read = [pq.read_table(path).column("key").to_numpy() for path in paths]
    assert all(np.array_equal(one, other) for one, other in zip(read, given.drawn, strict=True))
    assert sorted(np.concatenate(read[:3]).tolist()) == list(range(100))
    assert given.counts(2).tolist() == [1] * 100
    assert given.counts(6).sum() == 180


def test_updates_survive_their_file(tmp_path: Path) -> None:
    batches = {
        number: pa.table(
            {"key": pa.array([*batch], pa.int64()), "count": pa.array([*batch.values()], pa.int64())}
        )
        for number, batch in enumerate(RIGHT)
    }
    found = read_updates(write_updates(batches, tmp_path / "u"))
    assert sorted(found) == [0, 1, 2]
    assert total(verify_updates(found, DRAWN, keys=3)).good


def test_state_must_be_exactly_the_truth(tmp_path: Path) -> None:
    def stored(keys: list[int], counts: list[int]) -> str:
        pq.write_table(pa.table({"key": keys, "count": counts}), tmp_path / "s")
        return str(tmp_path / "s")

    truth = np.array([1, 2, 3])
    assert state_matches(stored([2, 0, 1], [3, 1, 2]), truth)
    assert not state_matches(stored([0, 1], [1, 2]), truth)
    assert not state_matches(stored([0, 1, 2, 2], [1, 2, 9, 3]), truth)
