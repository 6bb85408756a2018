"""`separated`: stateful and stateless instances never share a worker, and as few workers as possible are disturbed (paper 2,
§III-C, Algorithms 1-3).

A worker is *stateful* or *stateless* by what it runs (both: stateful), or free. A node with several workers keeps one for
each kind. Algorithm 1: on a node whose demand exceeds its CPU, the stateless workers are disturbed if the stateful demand
alone fits, else the stateful ones if the stateless demand alone fits, else both. Algorithm 2: what must be placed goes to
used nodes without disturbing another worker, then to used nodes disturbing one, then to free nodes, nodes in order, instances
breadth first, stateful before stateless on used nodes. Algorithm 3 (`shrink.py`): if nothing was overloaded, empty nodes.

Deviations: an instance of a disturbed worker stays if its own worker still has the CPU, since here only what moves is
disturbed and nothing is restarted; and targets are found instance by instance, not by total demand, because room that is
enough in total may be enough on no single node. Where no worker of the kind is left, the instance is placed anyway and
the broken separation reported.
"""

from __future__ import annotations

import numpy as np

from updraft.placement.board import NOWHERE, TOLERANCE, Board, Bools, name_of
from updraft.placement.model import Lack, Unmet
from updraft.placement.shrink import shrink

FREE, STATEFUL, STATELESS = 0, 1, 2


class Kinds:
    """The kind of every worker, and who may still take which kind."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.kind = np.zeros(len(board.workers), dtype=np.int64)
        self.wanted = [STATEFUL if board.stateful[d.operator] else STATELESS for d in board.instances]
        for instance, kind in enumerate(self.wanted):
            here = board.current(instance)
            if here != NOWHERE and (kind == STATEFUL or self.kind[here] == FREE):
                self.kind[here] = kind
        self.open = {kind: np.zeros(len(board.workers), dtype=np.bool_) for kind in (STATEFUL, STATELESS)}
        for node in range(len(board.nodes)):
            self._update(node)

    def claim(self, worker: int, kind: int) -> None:
        """A free worker becomes one of that kind."""
        if self.kind[worker] == FREE:
            self.kind[worker] = kind
            self._update(self.board.node_list[worker])

    def _update(self, node: int) -> None:
        here = slice(self.board.first[node], self.board.first[node + 1])
        kinds = self.kind[here]
        free = kinds == FREE
        for kind, other in ((STATEFUL, STATELESS), (STATELESS, STATEFUL)):
            # The last free worker of a node that has several is kept for the kind that has none there.
            spare = np.count_nonzero(free) > 1 or len(kinds) == 1 or bool((kinds == other).any())
            self.open[kind][here] = (kinds == kind) | (free & spare)


def separated(board: Board) -> list[str]:
    """Keep what may stay, disturb overloaded nodes, place the rest, then try to use fewer nodes."""
    kinds = Kinds(board)
    homeless: list[int] = []
    for instance, kind in enumerate(kinds.wanted):
        here = board.current(instance)
        if here != NOWHERE and kinds.kind[here] == kind:
            board.put(instance, here)
        else:
            homeless.append(instance)
    disturbed = _overloaded(board, kinds)
    lifted = [at for at in np.flatnonzero(board.at != NOWHERE).tolist() if disturbed[board.at[at]]]
    homes = {instance: int(board.at[instance]) for instance in lifted}
    for instance in lifted:
        board.lift(instance)
    left: list[int] = []
    for instance, home in homes.items():
        if board.fits(instance, home):
            board.put(instance, home)
        else:
            left.append(instance)
    moved = sorted(homeless + left)
    rest = [at for kind in (STATEFUL, STATELESS) for at in moved if kinds.wanted[at] == kind]
    rest = [at for at in rest if not _place(board, kinds, disturbed, at, used_only=True)]
    for instance in sorted(rest):
        if not _place(board, kinds, disturbed, instance, used_only=False):
            _place_anyway(board, kinds, instance, homes.get(instance, board.current(instance)))
    emptied = 0 if left else shrink(board, kinds.kind, kinds.wanted, kinds.open, kinds.claim)
    board.may_hold_state = kinds.open[STATEFUL].copy()
    used = int(np.count_nonzero(np.bincount(board.node_of[board.at[board.at >= 0]])))
    reason = (
        f"{len(homeless)} instances new, without their worker or beside the other kind; "
        f"{int(np.count_nonzero(disturbed))} workers disturbed, {len(left)} instances moved off overloaded nodes; "
        f"{emptied} nodes emptied, {used} of {len(board.nodes)} used"
    )
    return [reason]


def _overloaded(board: Board, kinds: Kinds) -> Bools:
    """Algorithm 1, step 1: the workers to disturb. Those with more demand than cores of their own are, in any case."""
    disturbed: Bools = board.worker_cpu_free < -TOLERANCE
    demand = board.cores - board.worker_cpu_free
    for node in np.flatnonzero(board.node_cpu_free[board.first[:-1]] < -TOLERANCE).tolist():
        here = slice(board.first[node], board.first[node + 1])
        capacity = board.node_cpu[here.start] + TOLERANCE
        stateful, stateless = kinds.kind[here] == STATEFUL, kinds.kind[here] == STATELESS
        if demand[here][stateful].sum() <= capacity:
            disturbed[here] |= stateless
        elif demand[here][stateless].sum() <= capacity:
            disturbed[here] |= stateful
        else:
            disturbed[here] |= stateful | stateless
    return disturbed


def _place(board: Board, kinds: Kinds, touched: Bools, instance: int, *, used_only: bool) -> bool:
    """Algorithm 2: the first worker with room, by how many more workers are disturbed."""
    kind = kinds.wanted[instance]
    fitting = kinds.open[kind] & board.has_memory(instance) & board.has_cpu(instance)
    used = fitting & (board.node_count > 0)
    free_of_charge = used & (touched | (kinds.kind == FREE))
    for candidates in (free_of_charge, used) if used_only else (free_of_charge, used, fitting):
        worker = int(candidates.argmax())
        if candidates[worker]:
            board.put(instance, worker)
            kinds.claim(worker, kind)
            touched[worker] = True
            return True
    return False


def _place_anyway(board: Board, kinds: Kinds, instance: int, home: int) -> None:
    """No CPU for it anywhere: where it was, else where most is left; the other kind's workers only if there is no other."""
    kind = kinds.wanted[instance]
    memory = board.has_memory(instance)
    if home != NOWHERE and kinds.kind[home] == kind and memory[home]:
        board.put(instance, home)
        return
    worker = board.least_loaded(memory & kinds.open[kind])
    if worker != NOWHERE:
        board.put(instance, worker)
        kinds.claim(worker, kind)
        return
    board.place_softly(instance, NOWHERE)
    if board.at[instance] != NOWHERE:
        what = "stateful" if kind == STATEFUL else "stateless"
        board.unmet.append(
            Unmet(
                lack=Lack.SEPARATION,
                subject=name_of(board.instances[instance]),
                detail=f"no worker is left for {what} instances; it shares worker '{board.workers[board.at[instance]]}' "
                "with the other kind. Start another worker, two per node",
            )
        )
