"""`replica_aware`: copies of a task on nodes of their own, whatever strategy placed the primaries (paper 4, Algorithm 1).

n copies over N nodes: at most ceil(n/N) per node. Operators breadth first, taking turns, one copy each; a copy goes to the
node with the most communicating pairs inside, ties to the one with most capacity left, never to a node that holds the task
already. Pairs are the primaries of the operator's producers there: a copy is fed by them all and emits nothing.

Deviations: a copy that exists already, or the task's former primary, is kept while it breaks nothing, since a copy costs
bytes; where all nodes with capacity left hold the task, capacity gives way (the paper's greedy would be stuck).
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from updraft.placement.board import NOWHERE, Board
from updraft.placement.model import Lack, Unmet
from updraft.placement.order import interleaved, operators_breadth_first
from updraft.plan.model import TaskKey, worker_order


class _Shadows:
    """Who holds which task, and the capacity left per node; Algorithm 1's A."""

    def __init__(self, board: Board, copies: int) -> None:
        self.board = board
        eligible = {board.node_list[w] for w in np.flatnonzero(board.may_hold_state).tolist()}
        self.nodes = sorted(eligible)
        self.left = {node: math.ceil(copies / max(1, len(self.nodes))) for node in self.nodes}
        self.on_worker = np.zeros(len(board.workers), dtype=np.int64)
        self.found: dict[TaskKey, list[str]] = {}

    def worker_on(self, node: int, memory_bytes: float) -> int:
        """The worker of the node with the fewest copies that may hold the task."""
        board = self.board
        fits = [
            w
            for w in range(board.first[node], board.first[node + 1])
            if board.may_hold_state[w]
            and board.worker_memory_free[w] >= memory_bytes
            and board.node_memory_free[w] >= memory_bytes
        ]
        return min(fits, key=lambda w: (int(self.on_worker[w]), w), default=NOWHERE)

    def hold(self, key: TaskKey, worker: int, memory_bytes: float) -> None:
        self.found.setdefault(key, []).append(self.board.workers[worker])
        self.left[self.board.node_list[worker]] -= 1
        self.on_worker[worker] += 1
        self.board.reserve_memory(worker, memory_bytes)


def place_copies(board: Board) -> tuple[dict[str, dict[int, tuple[str, ...]]], list[str]]:
    """Extra copies by operator and task, for all operators with replicas, and the reasons."""
    extra = {
        operator.name: operator.replicas - 1 for operator in board.request.operators if operator.stateful
    }
    order = [at for at in interleaved(board.instances) if extra.get(board.instances[at].operator, 0)]
    wanted = sum(extra[board.instances[at].operator] * len(board.instances[at].tasks) for at in order)
    if not wanted:
        return {}, []
    shadows = _Shadows(board, wanted)
    queues = {
        name: _ranking(board, shadows, name)
        for name in operators_breadth_first(board.request)
        if extra.get(name)
    }
    had = {} if board.request.current is None else board.request.current.primaries()
    missing: dict[str, int] = {}
    kept = 0
    for at in order:
        demand = board.instances[at]
        memory = float(board.memory[at]) / max(1, len(demand.tasks))
        home = int(board.at[at])
        for task in demand.tasks:
            key = (demand.operator, task)
            holding = {board.node_list[home]} if home != NOWHERE else set()
            for worker in _held_before(board, key, had.get(key)):
                if len(shadows.found.get(key, ())) < extra[demand.operator] and _keep(
                    shadows, worker, holding, memory
                ):
                    shadows.hold(key, worker, memory)
                    holding.add(board.node_list[worker])
                    kept += 1
            while len(shadows.found.get(key, ())) < extra[demand.operator]:
                worker = _next(shadows, queues[demand.operator], holding, memory)
                if worker == NOWHERE:
                    lacking = extra[demand.operator] - len(shadows.found.get(key, ()))
                    missing[demand.operator] = missing.get(demand.operator, 0) + lacking
                    break
                shadows.hold(key, worker, memory)
                holding.add(board.node_list[worker])
    board.unmet += [
        _unmet(board, shadows, name, extra[name], count) for name, count in sorted(missing.items())
    ]
    copies: dict[str, dict[int, tuple[str, ...]]] = {}
    for (operator, task), workers in sorted(shadows.found.items()):
        copies.setdefault(operator, {})[task] = tuple(sorted(workers, key=worker_order))
    placed = sum(len(workers) for workers in shadows.found.values())
    return copies, [
        f"{placed} of {wanted} copies placed on {len(shadows.nodes)} nodes, {kept} where they were"
    ]


def _ranking(board: Board, shadows: _Shadows, operator: str) -> list[tuple[int, int, int]]:
    """Heap of (−pairs inside, −capacity left, node) of all nodes that may hold state."""
    producers = {producer for producer, consumer in board.request.edges if consumer == operator}
    pairs: dict[int, int] = {}
    for demand, worker in zip(board.instances, board.at.tolist(), strict=True):
        if demand.operator in producers and worker != NOWHERE:
            pairs[board.node_list[worker]] = pairs.get(board.node_list[worker], 0) + 1
    queue = [(-pairs.get(node, 0), -shadows.left[node], node) for node in shadows.nodes]
    heapq.heapify(queue)
    return queue


def _next(shadows: _Shadows, queue: list[tuple[int, int, int]], holding: set[int], memory: float) -> int:
    """The best node that does not hold the task; entries whose capacity changed since are put back first."""
    aside: list[tuple[int, int, int]] = []
    chosen = NOWHERE
    while queue and chosen == NOWHERE:
        pairs, left, node = heapq.heappop(queue)
        if -left != shadows.left[node]:
            if shadows.left[node] > 0:
                heapq.heappush(queue, (pairs, -shadows.left[node], node))
            continue
        aside.append((pairs, left, node))
        if node not in holding and shadows.left[node] > 0:
            chosen = shadows.worker_on(node, memory)
    for entry in aside:
        heapq.heappush(queue, entry)
    if chosen == NOWHERE:
        beyond = sorted((-shadows.left[node], node) for node in shadows.nodes if node not in holding)
        chosen = next((w for _, node in beyond if (w := shadows.worker_on(node, memory)) != NOWHERE), NOWHERE)
    return chosen


def _held_before(board: Board, key: TaskKey, primary: str | None) -> list[int]:
    """Workers that hold the task now, copies first: they need no bytes."""
    plan = board.request.current
    names = () if plan is None else (*plan.extra(*key), *((primary,) if primary is not None else ()))
    return [board.position[name] for name in names if name in board.position]


def _keep(shadows: _Shadows, worker: int, holding: set[int], memory: float) -> bool:
    board = shadows.board
    node = board.node_list[worker]
    return (
        bool(board.may_hold_state[worker])
        and node not in holding
        and shadows.left.get(node, 0) > 0
        and bool(board.has_memory_for(memory)[worker])
    )


def _unmet(board: Board, shadows: _Shadows, operator: str, extra: int, count: int) -> Unmet:
    enough = len(shadows.nodes) > extra
    cause = (
        "not enough memory on nodes that do not hold them"
        if enough
        else f"only {len(shadows.nodes)} of {len(board.nodes)} nodes may hold state"
    )
    return Unmet(
        lack=Lack.COPIES,
        subject=f"operator '{operator}'",
        detail=f"{count} copies of its tasks are not placed: replicas={extra + 1}, but {cause}. "
        "Add nodes or lower replicas",
    )
