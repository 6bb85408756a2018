"""Commits are kept by count and by age, whatever the clock does; segments as long as a kept commit needs them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.state.written import flip, segments_of, write_checkpoint

from updraft.errors import CheckpointError
from updraft.state.checkpoint import Checkpoint, read_checkpoint
from updraft.state.files import LocalFiles
from updraft.state.retention import droppable
from updraft.state.verify import verify


@pytest.mark.parametrize(
    ("made", "keep", "keep_for", "now", "dropped"),
    [
        ([1, 2, 3, 4], 2, None, 100, 2),
        ([1, 2, 3, 4], 9, None, 100, 0),
        ([10, 20, 30, 40], 1, 25, 50, 2),  # 30 and 40 are young, and 40 is the last one
        ([10, 20, 30, 40], 1, 1000, 50, 0),
        ([10, 20, 30, 40], 2, 5, 50, 2),  # all are old: count alone decides
        ([10, 20, 30, 40], 3, 25, 50, 1),  # 20 is old but among the last three
        ([None, None, 30, 40], 1, 25, 50, 2),  # written before ages were recorded
        ([900, 910, 920, 930], 1, 25, 50, 0),  # the clock was set back: nothing goes early
        ([10, 20, 30, 40], 2, 25, 10**15, 2),  # the clock jumped ahead: the last two stay
        ([10, 90, 20, 30], 1, 15, 50, 1),  # a young one protects those after it: no gaps
    ],
)
def test_what_may_go(made: list[int | None], keep: int, keep_for: int | None, now: int, dropped: int) -> None:
    assert droppable(len(made), made, keep=keep, keep_for_ms=keep_for, now_ms=now) == dropped


def aged(root: Path) -> Checkpoint:
    """Commit n was made at n seconds."""
    checkpoint = read_checkpoint(LocalFiles(root))
    for batch in checkpoint.commits():
        checkpoint.write_commit(replace(checkpoint.read_commit(batch), committed_at_ms=1000 * batch))
    return checkpoint


def test_pruning_by_age(tmp_path: Path) -> None:
    checkpoint = aged(write_checkpoint(tmp_path, 6))
    pruned = checkpoint.prune(keep=1, keep_for_ms=2500, now_ms=5000)
    assert (pruned.commits, pruned.damaged) == ((0, 1, 2), ())
    assert [(one.batch, one.made_ms) for one in pruned.kept] == [(3, 3000), (4, 4000), (5, 5000)]
    needed = {name for batch in (3, 4, 5) for name in segments_of(tmp_path, batch)}
    assert {f"count/{path.stem}" for path in (tmp_path / "segments/count").iterdir()} == needed
    assert verify(tmp_path).problems == ()


def test_a_damaged_old_commit_does_not_stop_anything(tmp_path: Path) -> None:
    checkpoint = aged(write_checkpoint(tmp_path, 6))
    flip(tmp_path / "commits/3.json")
    pruned = checkpoint.prune(keep=4)
    assert (pruned.commits, pruned.damaged) == ((0, 3), (3,))
    assert checkpoint.commits() == [1, 2, 4, 5]
    assert verify(tmp_path).problems == ()
    flip(tmp_path / "commits/5.json")
    with pytest.raises(CheckpointError, match=r"commits/5\.json.*updraft state restore"):
        checkpoint.prune(keep=2)
    assert checkpoint.commits() == [1, 2, 4, 5]
