"""`online` in runs: what a snapshot means in its words, and one move a round."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.policy.world import operator, snapshot

from updraft.policy import InvalidMeasurements, Memory, Settings, Snapshot, TaskMove, WorkerLoad, policy
from updraft.policy.moving import view_of

KEYS = [("split", 0), ("split", 1), ("count", 0), ("count", 1)]


def seen(*, busy: float = 0.1, pressure: float = 0.3, **changes: object) -> Snapshot:
    """split[i] and count[i] exchange everything, and are on different nodes."""
    split = operator("split", 2, tasks=0)
    count = operator("count", 2, level=2)
    split = replace(
        split,
        instances=tuple(replace(one, worker=str(one.index), busy=busy) for one in split.instances),
    )
    count = replace(
        count,
        instances=tuple(
            replace(one, worker=str(1 - one.index), busy=busy, tasks=(one.index, one.index + 2))
            for one in count.instances
        ),
    )
    found = replace(
        snapshot(split, count, count=2),
        workers=tuple(WorkerLoad(id=name, node=f"n{name}", cores=1) for name in ("0", "1")),
        pressure=pressure,
        traffic={(("split", 0), ("count", 0)): 1000.0, (("split", 1), ("count", 1)): 500.0},
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def test_load_is_the_share_of_the_time_that_rows_take() -> None:
    saturated = view_of(seen(busy=0.4, pressure=0.9), Settings())
    assert [worker.cpu for worker in saturated.workers] == [pytest.approx(0.8 / 0.9)] * 2
    assert saturated.instances[0].cpu_cores == pytest.approx(0.4 / 0.9)
    idle = view_of(seen(busy=0.1, pressure=0.325), Settings())
    assert [worker.cpu for worker in idle.workers] == [pytest.approx(0.2 / 0.325 * 0.5)] * 2


def test_partners_come_together_one_a_round() -> None:
    settings = Settings()
    first = policy("online").decide(seen(), None, Memory(), settings)
    assert first.changed
    assert len(first.moves) == 1
    assert {first.moves[0].operator, first.moves[0].to_worker} <= {"split", "count", "0", "1"}
    assert "communication optimisation" in first.reasons[0]
    assert first.expected["crossing_bytes_per_s"] == -1000.0
    early = policy("online").decide(seen(taken_at_s=1005.0), None, first.memory, settings)
    assert (early.changed, early.moves) == (False, ())
    assert "not measured yet" in early.reasons[0]


def test_stateful_instances_move_with_their_tasks_and_stateless_ones_by_themselves() -> None:
    only_count = seen()
    rested = Memory(moved_at_s={("split", 0): 999.0, ("split", 1): 999.0})
    assert policy("online").decide(only_count, None, rested, Settings()).moves == (
        TaskMove(operator="count", tasks=(0, 2), to_worker="0"),
    )
    rested = Memory(moved_at_s={("count", 0): 999.0, ("count", 1): 999.0})
    assert policy("online").decide(only_count, None, rested, Settings()).moves == (
        TaskMove(operator="split", tasks=(), to_worker="1", instance=0),
    )


def test_all_workers_overloaded_is_a_warning_not_a_move() -> None:
    found = policy("online").decide(seen(busy=0.45, pressure=0.9), None, Memory(), Settings())
    assert (found.changed, found.moves) == (False, ())
    assert "add a worker" in found.unmet[0]


def test_gaps_and_a_single_worker_hold() -> None:
    gap = policy("online").decide(seen(gaps=("no batch",)), None, Memory(), Settings())
    assert (gap.changed, gap.reasons) == (False, ("no batch",))
    alone = seen(workers=(WorkerLoad(id="0", node="n0"),))
    assert "one worker" in policy("online").decide(alone, None, Memory(), Settings()).reasons[0]


def test_a_worker_that_left_in_the_middle_of_a_round_is_named() -> None:
    three = seen(workers=(WorkerLoad(id="0", node="n0", cores=1), WorkerLoad(id="7", node="n7", cores=1)))
    found = policy("online").decide(three, None, Memory(), Settings())
    assert "workers 1 left" in " ".join(found.reasons)
    assert all(move.to_worker in ("0", "7") for move in found.moves)


@pytest.mark.parametrize("rate", [float("nan"), -1.0])
def test_impossible_measurements_are_refused(rate: float) -> None:
    wrong = seen(traffic={(("split", 0), ("count", 0)): rate})
    with pytest.raises(InvalidMeasurements, match=r"traffic split\[0\] -> count\[0\]"):
        policy("online").decide(wrong, None, Memory(), Settings())
