"""`traffic`: instances that talk to each other on one node (T-Storm, Xu et al., ICDCS 2014, Algorithm 1).

Instances by descending traffic; each goes to the node that adds the least inter-node traffic, that is, the one its placed
partners exchange most with, among nodes with CPU and memory and fewer than ceil(γ·E/N) instances.

Deviations: the greedy result is then improved by moves and swaps (`refine.py`), since its first choices are blind, and compared
with what the same improvement makes of a packed start; where
no node satisfies all limits the count limit goes first, then CPU (reported); without any measured traffic it deals evenly.
"""

from __future__ import annotations

import math

import numpy as np

from updraft.placement.board import NOWHERE, Board
from updraft.placement.even import even
from updraft.placement.flows import Neighbours, crossing_share, neighbours
from updraft.placement.refine import refine

PACKED_AT_MOST = 2_000  # instances for which a second start is tried; it takes as long as the first


def traffic(board: Board) -> list[str]:
    """Greedy by traffic, then improvement."""
    talk = neighbours(board)
    totals = talk.totals()
    if not totals.any():
        return ["no traffic measured yet: dealt evenly", *even(board)]
    most = math.ceil(board.request.consolidation * len(board.instances) / len(board.nodes))
    order = np.lexsort((np.arange(len(totals)), -totals)).tolist()
    nodes = [NOWHERE] * len(board.instances)
    for instance in order:
        board.place_softly(instance, _best(board, talk, instance, nodes, most))
        if (worker := int(board.at[instance])) != NOWHERE:
            nodes[instance] = board.node_list[worker]
    greedy = crossing_share(board)
    moved = refine(board, talk, most)
    final = crossing_share(board)
    if final and len(order) <= PACKED_AT_MOST and _packed(board, talk, order, most, final):
        final = crossing_share(board)
    summary = (
        f"at most {most} instances per node (γ {board.request.consolidation:g}, {len(board.nodes)} nodes); "
        f"inter-node share of traffic {greedy or 0:.1%} after the greedy pass, "
        f"{final or 0:.1%} after {moved} improvements"
    )
    reasons = [summary]
    if talk.ignored:
        reasons.append(f"traffic of {talk.ignored} pairs ignored: their instances are no more")
    return reasons


def _packed(board: Board, talk: Neighbours, order: list[int], most: int, share: float) -> bool:
    """Try again from another start, all on as few nodes as the limits allow; False: it is no better, and undone.

    Where everybody talks to everybody, dealt evenly is a saddle: no single move or swap gains anything, all together would.
    """
    before = board.at.copy()
    if (before == NOWHERE).any():
        return False
    for instance in order:
        board.lift(instance)
    nodes = sorted(
        range(len(board.nodes)), key=lambda node: (-float(board.node_cpu[board.first[node]]), node)
    )
    for instance in order:
        found = (
            worker_on(board, instance, node) for node in nodes if board.node_count[board.first[node]] < most
        )
        board.put(instance, next((worker for worker in found if worker != NOWHERE), int(before[instance])))
    refine(board, talk, most)
    if (crossing_share(board) or 0.0) < share - 1e-9 and not (board.node_cpu_free < -1e-6).any():
        return True
    for instance in order:
        board.lift(instance)
    for instance in order:
        board.put(instance, int(before[instance]))
    return False


def _best(board: Board, talk: Neighbours, instance: int, nodes: list[int], most: int) -> int:
    """The worker that adds the least inter-node traffic; NOWHERE: no worker has CPU and memory."""
    gain: dict[int, float] = {}
    for other, rate in zip(*talk.of(instance), strict=True):
        if (node := nodes[other]) != NOWHERE:
            gain[node] = gain.get(node, 0.0) + rate
    for node in sorted(gain, key=lambda node: (-gain[node], node)):
        if (
            board.node_count[board.first[node]] < most
            and (worker := worker_on(board, instance, node)) != NOWHERE
        ):
            return worker
    fitting = board.has_memory(instance) & board.has_cpu(instance)
    within = fitting & (board.node_count < most)
    return board.least_loaded(within) if within.any() else board.least_loaded(fitting)


def worker_on(board: Board, instance: int, node: int) -> int:
    """The worker of a node with room for the instance and the fewest instances per core; NOWHERE: none."""
    fitting = [w for w in range(board.first[node], board.first[node + 1]) if board.fits(instance, w)]
    return min(fitting, key=lambda w: (board.worker_count[w] / board.cores[w], w), default=NOWHERE)
