"""What a request means: the plan it leads to, what it costs, and every reason why it cannot be."""

from __future__ import annotations

import pytest
from tests.unit.plan.build import graph, stateful, workers

from updraft.control import ChangeRefused, Drain, Move, Rescale
from updraft.control.proposals import preview_of, target_of
from updraft.plan import Plan, initial_plan

GRAPH = graph(stateful("count", tasks=8, parallelism=2, highest=6))
WORKERS = workers("0", "1", "2")
PLAN: Plan = initial_plan(GRAPH, WORKERS)


def test_a_rescale_has_its_steps_bytes_and_delay() -> None:
    request = Rescale(parallelism={"count": 3}, strategy="batched:1")
    target = target_of(request, PLAN, GRAPH, WORKERS)
    chains = {("count", task): {"segment": 1_000} for task in range(8)}
    preview = preview_of(
        request, PLAN, target, chains=chains, window_bytes=500, bytes_per_s=1_000, median_batch_ms=200.0
    )
    assert target.parallelism() == {"count": 3}
    assert preview.tasks_moved > 0
    assert preview.bytes_to_move == 1_000 * preview.tasks_moved
    assert preview.rounds == preview.tasks_moved
    assert (
        preview.expected_delay_ms == 200.0
    )  # a window would take longer than a batch; no more than that is waited


def test_what_moves_nothing_delays_nothing() -> None:
    request = Rescale(parallelism={"count": 2})
    preview = preview_of(
        request, PLAN, PLAN, chains={}, window_bytes=500, bytes_per_s=1_000, median_batch_ms=200.0
    )
    assert (preview.bytes_to_move, preview.expected_delay_ms) == (0, 0.0)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Rescale(parallelism={"count": 7}), "max_parallelism 6"),
        (Rescale(parallelism={"count": 9, "nobody": 1}), "nobody"),
        (Move(operator="count", tasks=(1,), to_worker="77"), "'77'"),
        (Drain(worker="77"), "'77'"),
    ],
)
def test_refusals_name_the_reason(request_: object, words: str) -> None:
    with pytest.raises(ChangeRefused) as refused:
        target_of(request_, PLAN, GRAPH, WORKERS)  # type: ignore[arg-type]
    assert words in str(refused.value)


def test_a_drained_worker_is_not_used() -> None:
    (first, *_) = PLAN.workers()
    target = target_of(Drain(worker=first), PLAN, GRAPH, WORKERS)
    assert first not in target.workers()
