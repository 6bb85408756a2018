"""`place`: instances to workers by the strategy of that name, copies to nodes of their own, and what could not be had.

The result depends on the request alone, not on the order of its tuples and mappings where that has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from updraft.placement.board import NOWHERE, Board
from updraft.placement.even import even
from updraft.placement.model import Lack, Placement, PlacementRequest, UnknownStrategy, Unmet
from updraft.placement.problems import check
from updraft.placement.replicas import place_copies
from updraft.placement.resource import resource
from updraft.placement.separated import separated
from updraft.placement.sticky import sticky
from updraft.placement.traffic import traffic

NAMED_MOVES = 20  # moves named one by one in the reasons

STRATEGIES: Mapping[str, Callable[[Board], list[str]]] = {
    "even": even,
    "replica_aware": even,  # what E-Storm ran: Storm's scheduler for the primaries, its own for the copies
    "resource": resource,
    "separated": separated,
    "sticky": sticky,
    "traffic": traffic,
}


def place(request: PlacementRequest, strategy: str = "sticky") -> Placement:
    """Where everything goes. Copies are placed after every strategy, wherever an operator has replicas."""
    if strategy not in STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        raise UnknownStrategy(f"there is no placement '{strategy}'; choose one of: {known}")
    check(request)
    board = Board(request)
    reasons = _beforehand(board)
    reasons += STRATEGIES[strategy](board)
    copies, about_copies = place_copies(board)
    return Placement(
        strategy=strategy,
        assignment=dict(
            sorted(
                (demand.key, board.workers[worker])
                for demand, worker in zip(board.instances, board.at.tolist(), strict=True)
                if worker != NOWHERE
            )
        ),
        copies=copies,
        reasons=(*reasons, *about_copies, *_moves(board)),
        unmet=(*board.unmet, *_overloads(board)),
    )


def _beforehand(board: Board) -> list[str]:
    """What is worth saying about the input, whatever the strategy."""
    reasons = [f"worker '{worker}' left: what it ran is placed anew" for worker in board.gone()]
    if not board.instances:
        return reasons
    cpu, memory = float(board.cpu.min()), float(board.memory.min())
    reasons += [
        f"node '{board.nodes[board.node_list[at]]}' is too small for any instance: "
        f"it has {board.node_cpu[at]:g} cores, the smallest needs {cpu:g}"
        if board.node_cpu[at] < cpu - 1e-9
        else f"node '{board.nodes[board.node_list[at]]}' is too small for any instance: "
        f"it has {board.node_memory[at]:.0f} bytes of memory, the smallest needs {memory:.0f}"
        for at in board.first[:-1]
        if board.node_cpu[at] < cpu - 1e-9 or board.node_memory[at] < memory
    ]
    unknown = sum(demand.cpu_cores is None for demand in board.instances)
    if unknown:
        reasons.append(
            f"CPU of {unknown} instances is not measured yet; assumed as of their operator or by default"
        )
    return reasons


def _moves(board: Board) -> list[str]:
    """Every instance that runs now and changes worker, the first ones by name."""
    moved = [
        f"{demand.operator}[{demand.index}]: worker '{board.workers[before]}' -> '{board.workers[after]}'"
        for at, (demand, after) in enumerate(zip(board.instances, board.at.tolist(), strict=True))
        if (before := board.current(at)) not in (NOWHERE, after) and after != NOWHERE
    ]
    more = len(moved) - NAMED_MOVES
    return [*moved[:NAMED_MOVES], *([f"and {more} more moves"] if more > 0 else [])]


def _overloads(board: Board) -> list[Unmet]:
    """Nodes with more CPU demand than cores, which is allowed, but slow."""
    heads = np.array(board.first[:-1], dtype=np.int64)
    over = heads[board.node_cpu_free[heads] < -1e-6].tolist() if len(heads) else []
    return [
        Unmet(
            lack=Lack.CPU,
            subject=f"node '{board.nodes[board.node_list[at]]}'",
            detail=f"demand of {board.node_cpu[at] - board.node_cpu_free[at]:.2f} cores on {board.node_cpu[at]:g}. "
            "Add a node or lower the load",
        )
        for at in over
    ]
