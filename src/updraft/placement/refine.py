"""Less inter-node traffic by single moves and by swaps of two instances, until nothing helps or the passes are used up.

Moves and swaps keep all limits: count per node, CPU, memory. Each lowers the traffic across nodes, so it ends. A pass is
O(pairs + instances × instances per node).
"""

from __future__ import annotations

from updraft.placement.board import NOWHERE, Board
from updraft.placement.flows import Neighbours

PASSES = 4
CANDIDATE_NODES = 3  # nodes an instance talks most with; the others cannot gain more
LARGE = 2_000  # instances from which on one pass must do
MARGIN = 1e-6  # of an instance's traffic; below it a change is rounding


class _Talk:
    """For every instance, its traffic by node; kept true under moves."""

    def __init__(self, board: Board, talk: Neighbours) -> None:
        self.board = board
        self.partners = [list(zip(*talk.of(at), strict=True)) for at in range(len(board.instances))]
        self.node = [board.node_list[w] if w != NOWHERE else NOWHERE for w in board.at.tolist()]
        self.by_node: list[dict[int, float]] = []
        self.on: list[set[int]] = [set() for _ in board.nodes]
        for at, partners in enumerate(self.partners):
            mine: dict[int, float] = {}
            for other, rate in partners:
                mine[self.node[other]] = mine.get(self.node[other], 0.0) + rate
            self.by_node.append(mine)
            if self.node[at] != NOWHERE:
                self.on[self.node[at]].add(at)

    def gain(self, instance: int, node: int) -> float:
        """Less inter-node traffic if the instance went to that node."""
        mine = self.by_node[instance]
        return mine.get(node, 0.0) - mine.get(self.node[instance], 0.0)

    def moved(self, instance: int, node: int) -> None:
        """Record that the instance is on another node now."""
        before = self.node[instance]
        for other, rate in self.partners[instance]:
            theirs = self.by_node[other]
            theirs[before] -= rate
            theirs[node] = theirs.get(node, 0.0) + rate
        self.on[before].discard(instance)
        self.on[node].add(instance)
        self.node[instance] = node


def refine(board: Board, talk: Neighbours, most: int) -> int:
    """Improve the placement on the board; returns how many moves and swaps were made."""
    state = _Talk(board, talk)
    changes = 0
    for _ in range(PASSES if len(board.instances) < LARGE else 1):
        before = changes
        for instance in range(len(board.instances)):
            if state.node[instance] != NOWHERE:
                changes += _improve(board, state, instance, most)
        if changes == before:
            break
    return changes


def _improve(board: Board, state: _Talk, instance: int, most: int) -> bool:
    mine = state.by_node[instance]
    here = state.node[instance]
    least = MARGIN * sum(mine.values())
    enough = mine.get(here, 0.0) + least
    wanted = [node for node, rate in mine.items() if rate > enough and node not in (here, NOWHERE)]
    for node in sorted(wanted, key=lambda node: (-mine[node], node))[:CANDIDATE_NODES]:
        if board.node_count[board.first[node]] < most and _move(board, state, instance, node):
            return True
        if _swap(board, state, instance, node, least):
            return True
    return False


def _move(board: Board, state: _Talk, instance: int, node: int) -> bool:
    workers = [w for w in range(board.first[node], board.first[node + 1]) if board.fits(instance, w)]
    if not workers:
        return False
    board.lift(instance)
    board.put(instance, min(workers, key=lambda w: (board.worker_count[w] / board.cores[w], w)))
    state.moved(instance, node)
    return True


def _swap(board: Board, state: _Talk, instance: int, node: int, least: float) -> bool:
    """Exchange with the instance of that node that loses least by it, if both together gain."""
    here = state.node[instance]
    own = state.gain(instance, node)
    partners = dict(state.partners[instance])
    best, best_gain = NOWHERE, least
    for other in sorted(state.on[node]):
        # Traffic between the two crosses before and after, but both gains count it as saved.
        together = own + state.gain(other, here) - 2 * partners.get(other, 0.0)
        if together > best_gain:
            best, best_gain = other, together
    if best == NOWHERE:
        return False
    mine, theirs = int(board.at[instance]), int(board.at[best])
    board.lift(instance)
    board.lift(best)
    if board.fits(instance, theirs):
        board.put(instance, theirs)
        if board.fits(best, mine):
            board.put(best, mine)
            state.moved(instance, node)
            state.moved(best, here)
            return True
        board.lift(instance)
    board.put(instance, mine)
    board.put(best, theirs)
    return False
