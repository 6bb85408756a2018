"""What a request means: the plan it leads to, what it costs, and every reason why it cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.plan.build import graph, stateful, stateless, workers

from updraft.control import ChangeRefused, Drain, Move, PlaceAgain, Replan, Rescale
from updraft.control.proposals import leaving_of, preview_of, released_by, target_of
from updraft.placement.running import Placed
from updraft.plan import Plan, Refusal, Worker, initial_plan

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


class TestPlacement:
    """Placement by name: asked for, or the run's own for rescales."""

    def placed(self, name: str, now: Plan, wanted: Plan, workers: tuple[Worker, ...]) -> Placed:
        """Everything on the last worker."""
        moved = {
            operator: tuple(replace(one, worker=workers[-1].id) for one in found)
            for operator, found in wanted.instances.items()
        }
        if name == "sticky":
            return Placed(plan=Refusal(problems=("no place",)), reasons=())
        return Placed(plan=replace(wanted, instances=moved), reasons=(f"by {name}",))

    def test_again(self) -> None:
        said: list[str] = []
        target = target_of(PlaceAgain(placement="traffic"), PLAN, GRAPH, WORKERS, self.placed, said=said)
        assert target.workers() == ("2",)
        assert target.parallelism() == PLAN.parallelism()
        assert target.version == PLAN.version + 1
        assert said == ["by traffic"]

    def test_of_a_rescale_is_the_runs_own(self) -> None:
        request = Rescale(parallelism={"count": 4})
        target = target_of(request, PLAN, GRAPH, WORKERS, self.placed, placement="even")
        assert (target.parallelism(), target.workers()) == ({"count": 4}, ("2",))
        assert len(target_of(request, PLAN, GRAPH, WORKERS, self.placed).workers()) > 1

    def test_a_drain_and_a_move_say_where_themselves(self) -> None:
        move = Move(operator="count", tasks=(0,), to_worker="1")
        assert "2" not in target_of(move, PLAN, GRAPH, WORKERS, self.placed, placement="even").workers()

    def test_what_has_no_place_is_refused(self) -> None:
        with pytest.raises(ChangeRefused, match="no place"):
            target_of(PlaceAgain(placement="sticky"), PLAN, GRAPH, WORKERS, self.placed)
        with pytest.raises(ChangeRefused, match="one worker: there is nothing to place"):
            target_of(PlaceAgain(placement="even"), PLAN, GRAPH, (), self.placed)
        with pytest.raises(ChangeRefused, match="knows no placement 'even'"):
            target_of(PlaceAgain(placement="even"), PLAN, GRAPH, WORKERS)

    def test_single_instances_move_in_a_replan(self) -> None:
        app = graph(stateless("split", parallelism=2), stateful("count", tasks=8, parallelism=2))
        plan = initial_plan(app, WORKERS)
        request = Replan(parallelism={}, relocated=(("split", 1, "2"),))
        target = target_of(request, plan, app, WORKERS)
        assert [one.worker for one in target.instances["split"]] == [plan.instances["split"][0].worker, "2"]
        assert target.instances["count"] == plan.instances["count"]
        for wrong, said in ((("split", 9, "2"), "no instance 9"), (("split", 0, "x"), "worker 'x'")):
            with pytest.raises(ChangeRefused, match=said):
                target_of(Replan(parallelism={}, relocated=(wrong,)), plan, app, WORKERS)


def test_who_leaves_is_given_back_only_if_that_was_asked_for() -> None:
    for request, leaving, released in (
        (Drain(worker="1", release=True), ("1",), ("1",)),
        (Drain(worker="1", release=False), ("1",), ()),
        (Replan(parallelism={}, release=("1", "2")), ("1", "2"), ("1", "2")),
        (Rescale(parallelism={"count": 2}), (), ()),
    ):
        assert (leaving_of(request), released_by(request)) == (leaving, released)
