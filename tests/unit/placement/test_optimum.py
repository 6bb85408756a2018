"""How far each strategy is from the best assignment there is, found by trying all of them.

The gaps over seeded cases are printed, and their mean and worst bounded.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product

import pytest
from tests.unit.placement.build import cluster, demands, optimum, request, running

from updraft.placement import InstanceKey, PlacementRequest, place

CASES = 40


def report(capsys: pytest.CaptureFixture[str], what: str, gaps: Iterable[float]) -> tuple[float, float]:
    found = list(gaps)
    mean, worst = sum(found) / len(found), max(found)
    exact = sum(gap < 1e-9 for gap in found)
    with capsys.disabled():
        print(  # noqa: T201
            f"\n  gap to optimum, {what}: mean {mean:.2%}, worst {worst:.2%}, exact {exact}/{len(found)}"
        )
    return mean, worst


def crossing(asked: PlacementRequest, assignment: Mapping[InstanceKey, str]) -> float:
    node_of = {worker.id: worker.node for worker in asked.workers}
    return sum(
        rate for (a, b), rate in asked.traffic.items() if node_of[assignment[a]] != node_of[assignment[b]]
    )


def test_even_is_as_even_as_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    gaps = []
    for count, nodes in product(range(1, 8), (1, 2, 3)):
        asked = request(demands("op", *[0.1] * count), cluster(nodes))
        best, _ = optimum(asked, lambda found: max(Counter(found.values()).values()))
        gaps.append(max(Counter(place(asked, "even").assignment.values()).values()) / best - 1)
    assert report(capsys, "even (instances on the fullest worker)", gaps) == (0, 0)


@pytest.mark.parametrize("dense", [False, True])
def test_traffic(capsys: pytest.CaptureFixture[str], dense: bool) -> None:
    """Least inter-node traffic with at most ceil(E/N) per node; sparse pairs or all to all."""
    gaps = []
    for seed in range(CASES):
        draw = random.Random(seed)
        nodes, senders, receivers = draw.choice([2, 3]), draw.randint(2, 4), draw.randint(2, 4)
        instances = (*demands("split", *[0.1] * senders), *demands("count", *[0.1] * receivers, tasks=1))
        flows = {
            (("split", i), ("count", k)): draw.expovariate(1e-3)
            for i in range(senders)
            for k in range(receivers)
            if dense or draw.random() < 0.4
        }
        asked = request(instances, cluster(nodes), traffic=flows)
        most = -(-len(instances) // nodes)

        def cost(
            found: Mapping[InstanceKey, str], asked: PlacementRequest = asked, most: int = most
        ) -> float | None:
            return None if max(Counter(found.values()).values()) > most else crossing(asked, found)

        best, _ = optimum(asked, cost)
        ours = crossing(asked, place(asked, "traffic").assignment)
        total = sum(flows.values())
        assert cost(place(asked, "traffic").assignment) is not None
        gaps.append((ours - best) / total if total else 0.0)
    mean, worst = report(capsys, f"traffic, {'dense' if dense else 'sparse'} (share of all bytes)", gaps)
    assert mean <= 0.02
    assert worst <= 0.15


def test_resource(capsys: pytest.CaptureFixture[str]) -> None:
    """Fewest nodes that have the CPU and memory."""
    gaps = []
    for seed in range(CASES):
        draw = random.Random(seed)
        cpu = [draw.choice([0.3, 0.5, 0.8, 1.0]) for _ in range(draw.randint(3, 7))]
        asked = request(demands("op", *cpu, memory=20), cluster(4, cores=2, memory=100))
        limits = dict(zip([f"{node}1" for node in "abcd"], [2.0] * 4, strict=True))

        def cost(
            found: Mapping[InstanceKey, str],
            cpu: list[float] = cpu,
            limits: dict[str, float] = limits,
        ) -> float | None:
            load: Counter[str] = Counter()
            for (_, index), worker in found.items():
                load[worker] += cpu[index]  # type: ignore[assignment]
            within = all(amount <= limits[worker] + 1e-9 for worker, amount in load.items())
            return len(load) if within and max(Counter(found.values()).values()) <= 5 else None

        best, _ = optimum(asked, cost)
        placement = place(asked, "resource")
        assert placement.unmet == ()
        gaps.append(len(set(placement.assignment.values())) / best - 1)
    mean, worst = report(capsys, "resource (nodes used)", gaps)
    assert mean <= 0.1
    assert worst <= 1.0


def test_sticky(capsys: pytest.CaptureFixture[str]) -> None:
    """Fewest tasks moved with at most `room_of` instances per worker, after a rescale or a random regrouping."""
    gaps = []
    for seed in range(CASES):
        draw = random.Random(seed)
        workers, cores = draw.choice([(2, 1), (3, 1), (3, 2)])
        before = demands("op", *[0.1] * draw.choice([2, 3, 4, 6]), tasks=1)
        before = demands("op", *[0.1] * len(before), tasks=12 // len(before))
        ids = [f"{chr(ord('a') + at)}1" for at in range(workers)]
        current = running(before, [draw.choice(ids) for _ in before])
        after = demands("op", *[0.1] * (count := draw.choice([2, 3, 4, 6])), tasks=12 // count)
        asked = request(after, cluster(workers, cores=cores), current=current)
        primaries = current.primaries()
        unchanged = {d.key: i.worker for d in after for i in current.instances["op"] if i.tasks == d.tasks}
        most = -(-count // (workers * cores)) * cores

        def moved(
            found: Mapping[InstanceKey, str], after: tuple = after, primaries: Mapping = primaries
        ) -> int:
            return sum(primaries["op", task] != found[d.key] for d in after for task in d.tasks)

        def cost(
            found: Mapping[InstanceKey, str],
            most: int = most,
            unchanged: Mapping[InstanceKey, str | None] = unchanged,
            moved: object = moved,
        ) -> float | None:
            stays = all(found[key] == worker for key, worker in unchanged.items())
            new = Counter(worker for key, worker in found.items() if key not in unchanged)
            counts = Counter(found.values())
            return moved(found) if stays and all(counts[w] <= most for w in new) else None  # type: ignore[operator]

        try:
            best, _ = optimum(asked, cost)
        except AssertionError:
            continue  # what must stay fills every worker
        gaps.append((moved(place(asked, "sticky").assignment) - best) / 12)
    assert len(gaps) > CASES / 2
    mean, worst = report(capsys, "sticky (share of tasks moved)", gaps)
    assert mean <= 0.01
    assert worst <= 0.1


def test_separated(capsys: pytest.CaptureFixture[str]) -> None:
    """Fewest nodes that have the CPU, with the kinds on workers of their own."""
    gaps = []
    for seed in range(CASES):
        draw = random.Random(seed)
        cpu = [draw.choice([0.3, 0.5, 0.8, 1.0]) for _ in range(draw.randint(2, 5))]
        half = len(cpu) // 2
        instances = (*demands("split", *cpu[:half]), *demands("count", *cpu[half:], tasks=1))
        asked = request(instances, cluster(3, workers=2, cores=2, node_cores=2))

        def cost(found: Mapping[InstanceKey, str], demand: tuple = instances) -> float | None:
            load: Counter[str] = Counter()
            for d in demand:
                load[found[d.key][0]] += d.cpu_cores
            kinds = {(worker, operator) for (operator, _), worker in found.items()}
            apart = len({worker for worker, _ in kinds}) == len(kinds)
            return len(load) if apart and max(load.values()) <= 2 + 1e-9 else None

        best, _ = optimum(asked, cost)
        placement = place(asked, "separated")
        assert cost(placement.assignment) is not None
        gaps.append(len({worker[0] for worker in placement.assignment.values()}) / best - 1)
    mean, worst = report(capsys, "separated (nodes used)", gaps)
    assert mean <= 0.05
    assert worst <= 0.5


def test_copies(capsys: pytest.CaptureFixture[str]) -> None:
    """Most producers beside copies, within the capacity per node, never two copies of a task on one node.

    Greedy may have to exceed the capacity where another order would not; then it may also beat the optimum within it.
    """
    gaps, beyond = [], 0
    for seed in range(CASES):
        draw = random.Random(seed)
        nodes = draw.choice([3, 4])
        instances = (*demands("split", *[0.1] * 4), *demands("count", *[0.1] * 4, tasks=1))
        names = [f"{chr(ord('a') + at)}1" for at in range(nodes)]
        at = [draw.choice(names) for _ in instances]
        asked = request(
            instances,
            cluster(nodes),
            replicas={"count": 2},
            edges=(("split", "count"),),
            current=running(instances, at),
        )
        producers = Counter(at[:4])
        most = -(-4 // nodes)
        best = max(
            sum(producers[worker] for worker in copies)
            for copies in product(names, repeat=4)
            if all(copy != home for copy, home in zip(copies, at[4:], strict=True))
            and max(Counter(copies).values()) <= most
        )
        found = [worker for (worker,) in place(asked, "sticky").copies["count"].values()]
        beyond += max(Counter(found).values()) > most
        gaps.append(max(0.0, (best - sum(producers[worker] for worker in found)) / 16))
    mean, worst = report(capsys, f"copies (share of pairs; {beyond} times beyond capacity)", gaps)
    assert beyond <= CASES / 8
    assert mean <= 0.05
    assert worst <= 0.25
