"""Another number of instances for an operator so that the fewest tasks change worker (paper 1, §IV-C).

How many instances each worker gets is decided in `share.py`; here, which tasks they are: a worker keeps what it has, in
contiguous runs where it is free to choose. No worker gets more instances than `room_of` allows: else a scale-out would
pile all instances onto the old workers, move nothing and gain nothing. Room is rounds × cores with the least rounds
that fit, so it costs no speed to leave a worker out where the rounds are the same (the paper's consolidation).
Deviation: the paper assumes equal state per task, and so does this; the number of tasks is minimised, not bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from updraft.plan.initial import split_tasks
from updraft.plan.model import Instance, PlanError, Worker, worker_order
from updraft.plan.share import least_loaded, share_instances


def regroup(
    current: Sequence[Instance],
    tasks: int,
    parallelism: int,
    workers: Iterable[Worker],
    *,
    operator: str | None = None,
    room: Mapping[str, int] | None = None,
    load: Mapping[str, float] | None = None,
) -> tuple[Instance, ...]:
    """`parallelism` instances over tasks 0..tasks-1 (0: stateless), sizes within one task of each other.

    `room`: the most instances per worker; `load`: what else workers run, to choose among those that are equal. What is
    already balanced and within room stays as it is. Without workers (embedded Spark) instances have none.
    """
    name = operator if operator is not None else current[0].operator
    here = sorted(workers, key=lambda worker: worker_order(worker.id))
    most = dict(room) if room is not None else room_of(here, parallelism)
    if here and sum(most.get(worker.id, 0) for worker in here) < parallelism:
        raise PlanError(
            f"operator '{name}': {parallelism} instances do not fit the room of {len(here)} workers"
        )
    if not here:
        return _numbered(name, [(None, group) for group in split_tasks(tasks, parallelism)])
    if _settled(current, tasks, parallelism, most):
        return tuple(current)
    ids = [worker.id for worker in here if most.get(worker.id, 0) > 0]
    if not tasks:
        return _numbered(name, [(w, ()) for w in _stateless(current, parallelism, ids, most, load or {})])
    own: dict[str, list[int]] = {worker: [] for worker in ids}
    for instance in current:
        if instance.worker in own:
            own[instance.worker] += instance.tasks
    shares = share_instances(
        {worker: len(own[worker]) for worker in ids}, tasks, parallelism, most, load or {}
    )
    sizes = {worker: (tasks // parallelism) * i + b for worker, (i, b) in shares.items()}
    placed = _hand_out(own, sizes, range(tasks))
    groups = [
        (worker, tuple(placed[worker][at] for at in group))
        for worker, (count, _) in shares.items()
        if count
        for group in split_tasks(len(placed[worker]), count)
    ]
    return _numbered(name, groups)


def room_of(workers: Iterable[Worker], parallelism: int) -> dict[str, int]:
    """The most instances per worker so that all run in the least rounds: a worker runs as many at once as it has cores."""
    cores = {worker.id: max(1, worker.cores) for worker in workers}
    rounds = -(-parallelism // max(1, sum(cores.values())))
    return {worker: rounds * count for worker, count in cores.items()}


def _settled(current: Sequence[Instance], tasks: int, parallelism: int, room: Mapping[str, int]) -> bool:
    """Whether the instances are already what is asked for: then nothing changes, not even the grouping."""
    if len(current) != parallelism or sorted(t for i in current for t in i.tasks) != list(range(tasks)):
        return False
    sizes = [len(instance.tasks) for instance in current]
    count: dict[str | None, int] = {}
    for instance in current:
        count[instance.worker] = count.get(instance.worker, 0) + 1
    fits = all(w is not None and n <= room.get(w, 0) for w, n in count.items())
    return fits and max(sizes) - min(sizes) <= 1


def _stateless(
    current: Sequence[Instance],
    parallelism: int,
    workers: Sequence[str],
    room: Mapping[str, int],
    load: Mapping[str, float],
) -> list[str]:
    """Workers of stateless instances: who is there stays, the rest goes to the least loaded."""
    counts = dict.fromkeys(workers, 0)
    stay = [i.worker for i in current if i.worker in counts]
    for worker in stay[:parallelism]:
        if worker is not None and counts[worker] < room[worker]:
            counts[worker] += 1
    while sum(counts.values()) < parallelism:
        counts[least_loaded(workers, counts, room, load)] += 1
    return [worker for worker in workers for _ in range(counts[worker])]


def _hand_out(
    own: Mapping[str, list[int]], sizes: Mapping[str, int], tasks: Iterable[int]
) -> dict[str, list[int]]:
    """Which tasks: a worker that has too many gives its shortest runs first, then the end of its longest; what is left
    over is dealt in order, so that tasks that travel together stay neighbours."""
    kept = {worker: sorted(_runs_first(mine)[: sizes[worker]]) for worker, mine in own.items()}
    staying = {task for mine in kept.values() for task in mine}
    rest = [task for task in tasks if task not in staying]
    for worker in sorted(kept, key=lambda w: (not kept[w], kept[w][:1], worker_order(w))):
        missing = sizes[worker] - len(kept[worker])
        kept[worker], rest = sorted(kept[worker] + rest[:missing]), rest[missing:]
    return kept


def _runs_first(tasks: Iterable[int]) -> list[int]:
    """Tasks ordered by the length of the contiguous run they are in, longest first."""
    runs: list[list[int]] = []
    for task in sorted(tasks):
        if runs and runs[-1][-1] == task - 1:
            runs[-1].append(task)
        else:
            runs.append([task])
    return [task for run in sorted(runs, key=lambda run: (-len(run), run[0])) for task in run]


def _numbered(operator: str, groups: Iterable[tuple[str | None, tuple[int, ...]]]) -> tuple[Instance, ...]:
    ordered = sorted(groups, key=lambda group: (group[1][:1], worker_order(group[0] or "")))
    return tuple(
        Instance(operator=operator, index=index, tasks=tasks, worker=worker)
        for index, (worker, tasks) in enumerate(ordered)
    )
