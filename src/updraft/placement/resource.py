"""`resource`: the node whose free CPU, memory and bandwidth are nearest to what the instance needs (R-Storm, Peng et al.,
Middleware 2015, Algorithms 1-4).

Instances in breadth-first order, operators taking turns. The first goes to the node with the most free of the rack with the
most free: the reference node. Every other one to the worker with the least distance
d² = w_c·((free cores − cores)/C)² + w_m·((free memory − memory)/M)² + w_b·n², where C and M are the largest node's, and n,
the network distance to the reference node, is 0 on it, ½ in its rack, 1 elsewhere. Memory is a hard limit, CPU a soft one:
where no node has the CPU, the one with most left per core takes it, and it is reported.

Deviation: a node without the CPU is not a candidate while another has it (R-Storm lets the distance alone decide).
"""

from __future__ import annotations

import numpy as np

from updraft.placement.board import Board, Floats
from updraft.placement.order import interleaved

CPU_WEIGHT = MEMORY_WEIGHT = BANDWIDTH_WEIGHT = 1.0


def resource(board: Board) -> list[str]:
    """Greedy by distance."""
    order = interleaved(board.instances)
    if not order:
        return ["no instance to place"]
    reference = _reference(board, order[0])
    network = _network(board, reference)
    cpu_unit = max(float(board.node_cpu.max()), 1e-9)
    known = np.isfinite(board.node_memory)
    memory_unit = max(float(board.node_memory[known].max(initial=0.0)), 1.0)
    free_memory = np.zeros_like(board.node_memory)
    for instance in order:
        candidates = board.has_memory(instance) & board.has_cpu(instance)
        np.copyto(free_memory, board.node_memory_free, where=known)
        spare_cpu = (board.node_cpu_free - board.cpu[instance]) / cpu_unit
        spare_memory = (free_memory - board.memory[instance]) / memory_unit
        distance = CPU_WEIGHT * spare_cpu**2 + MEMORY_WEIGHT * spare_memory**2 + network
        distance[~candidates] = np.inf
        nearest = int(distance.argmin())
        board.place_softly(instance, nearest if candidates[nearest] else -1)
    used = int(np.count_nonzero(np.bincount(board.node_of[board.at[board.at >= 0]])))
    reason = (
        f"{used} of {len(board.nodes)} nodes used; nearest in CPU, memory and network "
        f"to reference node '{board.nodes[board.node_list[reference]]}'"
    )
    return [reason]


def _reference(board: Board, instance: int) -> int:
    """Where the first instance goes: the node with the most free, in the rack with the most free."""
    memory = np.where(np.isfinite(board.node_memory), board.node_memory, 0.0)
    size = board.node_cpu / max(float(board.node_cpu.max()), 1e-9) + memory / max(float(memory.max()), 1.0)
    names, rack = np.unique(board.racks, return_inverse=True)
    heads = np.zeros(len(board.workers), dtype=bool)
    heads[board.first[:-1]] = True  # a node's figures stand once per worker and must count once
    richest = int(np.bincount(rack, weights=np.where(heads, size, 0.0), minlength=len(names)).argmax())
    candidates = (rack == richest) & board.has_memory(instance) & board.has_cpu(instance)
    return int(np.where(candidates, size, -1.0).argmax())


def _network(board: Board, reference: int) -> Floats:
    """w_b·n² for every worker."""
    same_node = board.node_of == board.node_of[reference]
    same_rack = board.racks == board.racks[reference]
    steps = np.where(same_node, 0.0, np.where(same_rack, 0.5, 1.0))
    return np.asarray(BANDWIDTH_WEIGHT * steps**2, dtype=np.float64)
