"""What is said about damaged state."""

from __future__ import annotations

from updraft.runtime.damage import repaired_segments, state_error
from updraft.runtime.reports import Failure, Report


def failure(tasks: str, *, lost: bool) -> Failure:
    return Failure(operator="count", tasks=tasks, reason=f"reason {tasks}", trace="", state=True, lost=lost)


def report(*repaired: str) -> Report:
    return Report(level=1, slot=0, operator="count", instance=0, worker="1", pid=1, repaired=repaired)


def test_every_operator_and_task_the_version_and_what_to_do() -> None:
    error = state_error(
        topology="t",
        batch=8,
        version=7,
        failures=[failure("2..3", lost=True), failure("0..1", lost=False)],
        advice=lambda: "go back",
    )
    assert str(error) == (
        "topology 't' cannot use its state of version 7 in batch 8, of which nothing was committed: "
        "operator 'count' (task 0..1): reason 0..1; operator 'count' (task 2..3): reason 2..3. go back"
    )


def test_nobody_is_sent_back_where_nothing_is_lost() -> None:
    def never() -> str:
        raise AssertionError("reads a whole checkpoint for nothing")

    failures = [failure("0", lost=False)]
    assert str(state_error(topology="t", batch=1, version=0, failures=failures, advice=never)).endswith(
        "reason 0"
    )


def test_repairs_travel_with_reports() -> None:
    sent = [Report.from_json(one.to_json()) for one in (report("b", "a"), report(), report("a"))]
    assert repaired_segments(sent) == ("a", "b")
    lost = report()
    lost.failure = failure("0", lost=True)
    assert Report.from_json(lost.to_json()) == lost
