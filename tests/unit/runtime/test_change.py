"""When somebody has last had a hand in a change: that is what the policy waits for."""

from __future__ import annotations

import pytest
from tests.unit.control.steered import plan

from updraft.control import Outcome, Preview, Rescale
from updraft.runtime.change import Change


def change(*, by_hand: bool) -> Change:
    before, after = plan(1), plan(2, version=2)
    preview = Preview(
        target=after,
        steps=(),
        strategy="all_at_once",
        tasks_moved=0,
        bytes_to_move=0,
        expected_delay_ms=None,
    )
    return Change(
        id=1,
        who="alice",
        request=Rescale(parallelism={"count": 2}),
        preview=preview,
        current=before,
        plans=(after,),
        started_at=1_000.0,
        by_hand=by_hand,
    )


@pytest.mark.parametrize(
    ("outcome", "by_hand", "counts"),
    [
        (Outcome.DONE, True, True),
        (Outcome.FAILED, True, False),
        (Outcome.CANCELLED, True, False),  # as it was before
        (Outcome.SUPERSEDED, True, False),  # what came instead counts
        (Outcome.DONE, False, False),
        (Outcome.FAILED, False, False),
        (Outcome.CANCELLED, False, True),  # only people cancel
    ],
)
def test_what_counts_as_a_hand(outcome: Outcome, by_hand: bool, counts: bool) -> None:
    found = change(by_hand=by_hand)
    assert found.hand_s == (1_000.0 if by_hand else None)
    found.end(outcome)
    assert found.hand_s == (found.ended_at if counts else None)
