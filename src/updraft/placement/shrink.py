"""Fewer nodes (paper 2, Algorithm 3): empty the least loaded node as long as others can take its workers whole.

Each kind of a node's instances goes to one worker elsewhere, the fullest node first; if one kind finds no target, it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from updraft.placement.board import NOWHERE, TOLERANCE, Board, Bools, Ints


def shrink(
    board: Board,
    kind: Ints,
    wanted: Sequence[int],
    open: Mapping[int, Bools],
    claim: Callable[[int, int], None],
) -> int:
    """Returns how many nodes were emptied. `kind` of every worker, `wanted` of every instance."""
    on_node: dict[int, list[int]] = {}
    for instance, worker in enumerate(board.at.tolist()):
        if worker != NOWHERE:
            on_node.setdefault(board.node_list[worker], []).append(instance)
    emptied = 0
    while len(on_node) > 1:
        load = {
            node: float(board.node_cpu[board.first[node]] - board.node_cpu_free[board.first[node]])
            for node in on_node
        }
        node = min(on_node, key=lambda node: (load[node], -node))
        groups: dict[int, list[int]] = {}
        for instance in on_node[node]:
            groups.setdefault(wanted[instance], []).append(instance)
        targets = _targets(board, kind, open, node, groups)
        if targets is None:
            break
        for which, worker in targets.items():
            for instance in groups[which]:
                board.lift(instance)
                board.put(instance, worker)
            claim(worker, which)
            on_node.setdefault(board.node_list[worker], []).extend(groups[which])
        del on_node[node]
        emptied += 1
    return emptied


def _targets(
    board: Board, kind: Ints, open: Mapping[int, Bools], node: int, groups: Mapping[int, list[int]]
) -> dict[int, int] | None:
    """One worker for each kind, on used nodes that can take it whole; None: there is none for one of them."""
    elsewhere = (board.node_count > 0) & (board.node_of != node)
    node_cpu, node_memory = board.node_cpu_free.copy(), board.node_memory_free.copy()
    chosen: dict[int, int] = {}
    for which, instances in sorted(groups.items()):
        cpu, memory = float(board.cpu[instances].sum()), float(board.memory[instances].sum())
        taken = np.isin(np.arange(len(kind)), list(chosen.values()))  # a free worker can take one kind only
        fits = (
            elsewhere
            & open[which]
            & ~taken
            & (np.minimum(node_cpu, board.worker_cpu_free) >= cpu - TOLERANCE)
            & (np.minimum(node_memory, board.worker_memory_free) >= memory)
        )
        if not fits.any():
            return None
        worker = int(np.where(fits, node_cpu, np.inf).argmin())
        here = slice(board.first[board.node_list[worker]], board.first[board.node_list[worker] + 1])
        node_cpu[here] -= cpu
        node_memory[here] -= memory
        chosen[which] = worker
    return chosen
