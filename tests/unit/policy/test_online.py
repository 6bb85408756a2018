"""OTD: the four cases, the move it picks, and that repeated rounds get somewhere and then stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from updraft.policy import (
    InvalidMeasurements,
    Load,
    OnlineCase,
    OnlineInstance,
    OnlineMemory,
    OnlineSettings,
    OnlineView,
    OnlineWorker,
    decide_online,
)


def worker(id: str, cpu: float | None, queue_s: float | None = 0.0) -> OnlineWorker:
    return OnlineWorker(id=id, node=id[0], cpu=cpu, queue_s=queue_s)


def instance(operator: str, index: int, worker: str, cpu: float | None = 0.1) -> OnlineInstance:
    return OnlineInstance(operator=operator, index=index, worker=worker, cpu_cores=cpu)


def view(workers: list[OnlineWorker], instances: list[OnlineInstance], **more: object) -> OnlineView:
    return OnlineView(taken_at_s=100.0, workers=tuple(workers), instances=tuple(instances), **more)  # type: ignore[arg-type]


def test_workers_are_classified_by_cpu_and_queue() -> None:
    found = decide_online(
        view(
            [
                worker("a1", 0.9),
                worker("a2", 0.7),
                worker("a3", 0.2),
                worker("b1", 0.2, queue_s=9.0),
                worker("b2", 0.2, queue_s=2.0),
                worker("b3", None, queue_s=None),
            ],
            [],
        )
    )
    assert list(found.classes.values()) == [
        Load.HIGH,
        Load.NORMAL,
        Load.LOW,
        Load.HIGH,
        Load.NORMAL,
        Load.NORMAL,
    ]
    assert "not measured, taken for normal: workers b3" in found.reasons


def test_high_and_low_balance_towards_the_partners() -> None:
    found = decide_online(
        view(
            [worker("a1", 0.95), worker("b1", 0.1), worker("c1", 0.1)],
            [instance("op", 0, "a1", 0.4), instance("op", 1, "a1", 0.4), instance("to", 0, "c1")],
            traffic={(("op", 1), ("to", 0)): 500.0},
        )
    )
    assert found.case is OnlineCase.BALANCE
    assert found.move is not None
    assert (found.move.instance, found.move.to_worker, found.move.asc) == (("op", 1), "c1", 500.0)
    assert "op[1]: worker 'a1' -> 'c1', 500 bytes/s less between nodes" in found.reasons[0]


def test_balancing_leaves_small_instances_and_never_makes_its_target_high() -> None:
    workers = [worker("a1", 0.95), worker("b1", 0.5)]
    here = [instance("op", 0, "a1", 0.01), instance("op", 1, "a1", 0.25), instance("op", 2, "a1", 0.6)]
    found = decide_online(view(workers, here))
    assert found.move is not None
    assert found.move.instance == ("op", 1)  # op[0] would not help, op[2] would overload b1
    stuck = decide_online(view(workers, here[:1] + here[2:]))
    assert stuck.move is None
    assert stuck.unmet == ("workers a1 are overloaded and no other can help; add a worker",)


def test_where_no_worker_is_low_the_busiest_is_made_clearly_less_busy() -> None:
    """Five hot instances here and three there: the batch lasts as long as the five."""

    def hot(here: int, there: int) -> OnlineView:
        return view(
            [worker("a1", 0.2 * here), worker("b1", 0.2 * there + 0.05)],
            [instance("op", index, "a1" if index < here else "b1", 0.2) for index in range(here + there)],
        )

    found = decide_online(hot(5, 3))
    assert found.case is OnlineCase.BALANCE
    assert found.move is not None
    assert found.move.to_worker == "b1"
    assert decide_online(hot(4, 4)).move is None  # as even as it gets
    assert decide_online(replace(hot(5, 3), instances=hot(5, 3).instances[:1])).move is None


def test_high_without_low_warns() -> None:
    found = decide_online(view([worker("a1", 0.95), worker("b1", 0.7)], [instance("op", 0, "a1")]))
    assert (found.case, found.move) == (OnlineCase.WARN, None)
    assert "add a worker" in found.unmet[0]


def test_low_without_high_saves_traffic_if_it_is_worth_it() -> None:
    workers = [worker("a1", 0.3), worker("b1", 0.3)]
    here = [instance("s", 0, "a1"), instance("s", 1, "b1"), instance("t", 0, "b1"), instance("t", 1, "a1")]
    flows = {(("s", 0), ("t", 0)): 100.0, (("s", 0), ("t", 1)): 40.0, (("s", 1), ("t", 0)): 100.0}
    found = decide_online(view(workers, here, traffic=flows))
    assert found.case is OnlineCase.COMMUNICATE
    assert found.move is not None
    assert (found.move.instance, found.move.to_worker, found.move.asc) == (("s", 0), "b1", 60.0)
    shy = decide_online(view(workers, here, traffic=flows), settings=OnlineSettings(threshold=0.5))
    assert shy.move is None


def test_neither_high_nor_low_nor_traffic_does_nothing() -> None:
    here = [instance("op", 0, "a1")]
    assert decide_online(view([worker("a1", 0.7)], here)).case is OnlineCase.NOTHING
    no_traffic = decide_online(view([worker("a1", 0.1), worker("b1", 0.1)], here))
    assert (no_traffic.case, no_traffic.move) == (OnlineCase.COMMUNICATE, None)


def test_a_moved_instance_rests_and_may_move_again_later() -> None:
    workers = [worker("a1", 0.95), worker("b1", 0.1)]
    here = [instance("op", 0, "a1", 0.4), instance("op", 1, "a1", 0.4)]
    rested = OnlineMemory(moved_at_s={("op", 0): 90.0, ("op", 1): 90.0})
    assert decide_online(view(workers, here), rested).move is None
    later = replace(view(workers, here), taken_at_s=121.0)
    found = decide_online(later, rested)
    assert found.move is not None
    assert found.memory.moved_at_s == {found.move.instance: 121.0}


def test_a_worker_that_left_in_the_middle_of_a_round() -> None:
    found = decide_online(
        view(
            [worker("a1", 0.1), worker("b1", 0.1)],
            [instance("s", 0, "gone"), instance("t", 0, "a1")],
            traffic={(("s", 0), ("t", 0)): 10.0},
        )
    )
    assert found.move is None
    assert "workers gone left; their instances are not considered" in found.reasons


def test_impossible_measurements_are_all_named() -> None:
    bad = view(
        [worker("a1", float("nan")), worker("b1", 0.1, queue_s=-1.0)],
        [instance("s", 0, "a1", float("inf"))],
        traffic={(("s", 0), ("s", 1)): -3.0},
    )
    with pytest.raises(InvalidMeasurements, match=r"a1.*nan.*b1.*-1\.0.*s\[0\].*inf.*s\[0\] -> s\[1\].*-3"):
        decide_online(bad)


Measure = Callable[[dict[tuple[str, int], str]], OnlineView]


def rounds(measure: Measure, where: dict[tuple[str, int], str], most: int) -> int:
    """Decide and apply until nothing moves; returns the number of moves."""
    memory = OnlineMemory()
    idle = moves = 0
    for number in range(most):
        found = decide_online(replace(measure(where), taken_at_s=number * 5.0), memory)
        memory = found.memory
        idle = 0 if found.move else idle + 1
        if found.move:
            where[found.move.instance] = found.move.to_worker
            moves += 1
        if idle > 7:  # longer than an instance rests
            break
    return moves


def test_wordcount_of_paper_3_ends_below_six_percent_between_nodes() -> None:
    """12 + 24 instances over 8 workers on 2 nodes, words by Zipf's law, dealt evenly at first."""
    weight = [1 / (k + 1) for k in range(24)]
    flows = {(("split", i), ("count", k)): 1e6 * weight[k] for i in range(12) for k in range(24)}
    keys = [("split", i) for i in range(12)] + [("count", k) for k in range(24)]
    workers = [f"{node}{n}" for n in range(4) for node in "ab"]
    where = {key: workers[at % 8] for at, key in enumerate(keys)}

    def measure(where: dict[tuple[str, int], str]) -> OnlineView:
        busy = {w: 0.02 * sum(at == w for at in where.values()) for w in workers}
        here = [instance(*key, at, 0.02) for key, at in where.items()]
        return view([worker(w, busy[w]) for w in workers], here, traffic=flows)

    def share() -> float:
        crossing = sum(rate for (a, b), rate in flows.items() if where[a][0] != where[b][0])
        return crossing / sum(flows.values())

    assert share() > 0.45
    moves = rounds(measure, where, 200)
    assert share() <= 0.06
    assert moves <= 36


def test_a_skewed_load_is_balanced_within_ten_moves_and_then_left_alone() -> None:
    """The slowest worker holds up the others: all run at the rate it allows."""
    heavy = {("op", i): 0.30 if i < 6 else 0.08 for i in range(24)}
    workers = [f"{node}{n}" for n in range(2) for node in "ab"]
    where = {key: workers[min(3, at // 6)] for at, key in enumerate(heavy)}

    def demand(where: dict[tuple[str, int], str], w: str) -> float:
        return sum(heavy[key] for key, at in where.items() if at == w)

    def measure(where: dict[tuple[str, int], str]) -> OnlineView:
        rate = min(1.0, 1.0 / max(demand(where, w) for w in workers))
        here = [instance(*key, at, rate * heavy[key]) for key, at in where.items()]
        return view([worker(w, rate * demand(where, w)) for w in workers], here)

    def mean_cpu() -> float:
        return sum(w.cpu or 0.0 for w in measure(where).workers) / len(workers)

    before = mean_cpu()
    assert rounds(measure, where, 60) <= 10
    assert mean_cpu() >= 1.51 * before


def test_symmetric_traffic_is_begun_with_and_then_followed() -> None:
    """Evenly dealt, everybody talks to everybody: nothing gains at first, and in the end nothing crosses nodes."""
    workers = [worker("a1", 0.2), worker("b1", 0.2)]
    keys = [("s", index) for index in range(4)] + [("t", index) for index in range(6)]
    where = {key: ("a1", "b1")[key[1] % 2] for key in keys}
    flows = {(s, t): 10.0 for s in keys[:4] for t in keys[4:]}
    memory, moves = OnlineMemory(), 0
    for turn in range(12):
        here = [instance(*key, where[key]) for key in keys]
        found = decide_online(
            replace(view(workers, here, traffic=flows), taken_at_s=100.0 + 5 * turn), memory
        )
        memory = found.memory
        if found.move is None:
            break
        where[found.move.instance] = found.move.to_worker
        moves += 1
    assert len(set(where.values())) == 1
    assert moves == 5
    here = [instance(*key, where[key]) for key in keys]
    settled = decide_online(replace(view(workers, here, traffic=flows), taken_at_s=1000.0), memory)
    assert settled.move is None


def test_little_traffic_between_nodes_needs_no_start() -> None:
    workers = [worker("a1", 0.2), worker("b1", 0.2)]
    here = [instance("s", 0, "a1"), instance("t", 0, "a1"), instance("s", 1, "b1"), instance("t", 1, "b1")]
    flows = {(("s", 0), ("t", 0)): 100.0, (("s", 1), ("t", 1)): 100.0, (("s", 0), ("t", 1)): 30.0}
    assert decide_online(view(workers, here, traffic=flows)).move is None
