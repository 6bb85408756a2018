"""`sticky`: only new and changed instances are placed, and so that the fewest tasks change worker (paper 1, §IV-C).

An instance that runs the same tasks as before stays, whatever its node's load. A changed one goes where most of its tasks
already are, while the worker has room for another instance of the operator (`plan.room_of`), CPU and memory; what has no
tasks anywhere goes to workers already in use (the paper's consolidation), the least loaded first.

The choice is greedy by tasks kept, then improved by exchanging two instances or pushing one aside. Not exact: the problem
with CPU and memory limits is a multiple knapsack. Deviation: the paper counts tasks, and so does this, not bytes of state.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from updraft.placement.board import NOWHERE, Board
from updraft.plan.model import Worker
from updraft.plan.regroup import room_of

PASSES = 3


class _Seats:
    """Which instance could keep how many tasks where, and the room of every worker for every operator."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.operator = [demand.operator for demand in board.instances]
        workers = [
            Worker(id=worker, host="", location="", cores=int(cores))
            for worker, cores in zip(board.workers, board.cores, strict=True)
        ]
        self.most = {
            operator: list(room_of(workers, count).values())
            for operator, count in Counter(self.operator).items()
        }
        self.taken: dict[str, Counter[int]] = {operator: Counter() for operator in self.most}
        self.on: dict[tuple[str, int], set[int]] = {}
        self.kept = _kept(board)

    def roomy(self, instance: int, worker: int) -> bool:
        """Room for one more of the operator, CPU and memory."""
        operator = self.operator[instance]
        return self.taken[operator][worker] < self.most[operator][worker] and self.board.fits(
            instance, worker
        )

    def sit(self, instance: int, worker: int) -> None:
        self.board.put(instance, worker)
        self.taken[self.operator[instance]][worker] += 1
        self.on.setdefault((self.operator[instance], worker), set()).add(instance)

    def rise(self, instance: int) -> int:
        worker = int(self.board.at[instance])
        self.board.lift(instance)
        self.taken[self.operator[instance]][worker] -= 1
        self.on[self.operator[instance], worker].discard(instance)
        return worker

    def keeps(self, instance: int, worker: int) -> int:
        return self.kept[instance].get(worker, 0)


def sticky(board: Board) -> list[str]:
    """Unchanged instances stay; changed ones by most tasks kept; the rest consolidated."""
    seats = _Seats(board)
    changed: list[int] = []
    for instance in range(len(board.instances)):
        here = board.current(instance)
        if here == NOWHERE:
            changed.append(instance)
        else:
            seats.sit(instance, here)
    stayed = len(board.instances) - len(changed)
    wishes = sorted((-count, at, worker) for at in changed for worker, count in seats.kept[at].items())
    for _, instance, worker in wishes:
        if board.at[instance] == NOWHERE and seats.roomy(instance, worker):
            seats.sit(instance, worker)
    # Who has no tasks anywhere sits last, so that no one who has is kept from them; pushing aside needs everyone seated.
    for instance in changed:
        if board.at[instance] == NOWHERE:
            _consolidate(seats, instance)
    movable = set(changed)
    for _ in range(PASSES):
        if not sum(_improve(seats, instance, movable) for instance in changed):
            break
    kept = sum(seats.keeps(at, int(board.at[at])) for at in changed)
    tasks = sum(len(board.instances[at].tasks) for at in changed)
    return [
        f"{stayed} instances unchanged; of {tasks} tasks of {len(changed)} new or changed ones {kept} stay"
    ]


def _kept(board: Board) -> list[dict[int, int]]:
    """By instance and worker, the number of its tasks that worker runs now."""
    plan = board.request.current
    primaries = {} if plan is None else plan.primaries()
    kept: list[dict[int, int]] = []
    for demand in board.instances:
        workers = [primaries.get((demand.operator, task)) for task in demand.tasks]
        kept.append(
            dict(Counter(board.position[w] for w in workers if w is not None and w in board.position))
        )
    return kept


def _consolidate(seats: _Seats, instance: int) -> None:
    """Used workers with room, then unused ones, the least loaded of them; else softly anywhere."""
    board = seats.board
    operator = seats.operator[instance]
    room = np.array(seats.most[operator], dtype=np.int64)
    for worker, count in seats.taken[operator].items():
        room[worker] -= count
    fitting = board.has_memory(instance) & board.has_cpu(instance) & (room > 0)
    used = fitting & (board.node_count > 0)
    worker = board.least_loaded(used) if used.any() else board.least_loaded(fitting)
    if worker == NOWHERE:
        worker = board.least_loaded(board.has_memory(instance) & (room > 0))
    board.place_softly(instance, worker)
    if (seat := int(board.at[instance])) != NOWHERE:
        seats.taken[operator][seat] += 1
        seats.on.setdefault((operator, seat), set()).add(instance)


def _improve(seats: _Seats, instance: int, movable: set[int]) -> bool:
    """Give the instance a worker that keeps more of its tasks: a free seat, or one of another instance that loses less."""
    here = int(seats.board.at[instance])
    if here == NOWHERE:
        return False
    now = seats.keeps(instance, here)
    for worker, count in sorted(seats.kept[instance].items(), key=lambda wish: (-wish[1], wish[0])):
        if count <= now:
            return False
        seats.rise(instance)
        if seats.roomy(instance, worker):
            seats.sit(instance, worker)
            return True
        for other in sorted(seats.on.get((seats.operator[instance], worker), set()) & movable):
            if _push_aside(seats, instance, other, here, count - now):
                return True
        seats.sit(instance, here)
    return False


def _push_aside(seats: _Seats, instance: int, other: int, here: int, gain: int) -> bool:
    """`other` leaves its worker to the lifted `instance` for the best seat it can have, if less is lost than gained."""
    worker = seats.rise(other)
    if seats.roomy(instance, worker):
        seats.sit(instance, worker)
        seats_left = sorted({here, *seats.kept[other]} - {worker}, key=lambda w: (-seats.keeps(other, w), w))
        for seat in seats_left:
            if seats.keeps(other, worker) - seats.keeps(other, seat) < gain and seats.roomy(other, seat):
                seats.sit(other, seat)
                return True
        seats.rise(instance)
    seats.sit(other, worker)
    return False
