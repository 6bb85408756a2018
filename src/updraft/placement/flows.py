"""Traffic between instances as neighbour lists, and how much of it crosses nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from updraft.placement.board import NOWHERE, Board, Floats, Ints
from updraft.placement.model import Flows, InstanceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Instance i exchanges `rates[first[i]:first[i+1]]` bytes per second, both ways, with `others[...]`."""

    first: list[int]
    others: Ints
    rates: Floats
    ignored: int  # measured between instances that are not to be placed

    def of(self, instance: int) -> tuple[list[int], list[float]]:
        here = slice(self.first[instance], self.first[instance + 1])
        return self.others[here].tolist(), self.rates[here].tolist()

    def totals(self) -> Floats:
        """Traffic of each instance, in and out."""
        sums = np.concatenate(([0.0], np.cumsum(self.rates)))
        return np.asarray(sums[self.first[1:]] - sums[self.first[:-1]], dtype=np.float64)


def neighbours(board: Board) -> Neighbours:
    """Both directions of every measured pair; an instance's traffic with itself never leaves it and is left out."""
    position = {demand.key: at for at, demand in enumerate(board.instances)}
    pairs = [
        (position[a], position[b], rate)
        for (a, b), rate in board.request.traffic.items()
        if rate > 0 and a != b and a in position and b in position
    ]
    ignored = sum(a not in position or b not in position for a, b in board.request.traffic)
    one = np.array([pair[0] for pair in pairs], dtype=np.int64)
    two = np.array([pair[1] for pair in pairs], dtype=np.int64)
    rate = np.array([pair[2] for pair in pairs], dtype=np.float64)
    source, target, both = (
        np.concatenate((one, two)),
        np.concatenate((two, one)),
        np.concatenate((rate, rate)),
    )
    order = np.lexsort((target, source))  # the mapping's order must not matter
    first = np.searchsorted(source[order], np.arange(len(board.instances) + 1))
    return Neighbours(first=first.tolist(), others=target[order], rates=both[order], ignored=ignored)


def crossing_share(board: Board) -> float | None:
    """Share of the measured traffic that crosses nodes; None: there is none."""
    node = {
        demand.key: board.node_list[worker]
        for demand, worker in zip(board.instances, board.at.tolist(), strict=True)
        if worker != NOWHERE
    }
    return inter_node_share(board.request.traffic, node)


def inter_node_share(traffic: Flows, node_of: dict[InstanceKey, int]) -> float | None:
    """Bytes between instances on different nodes over all bytes; None: nothing was measured."""
    inside = crossing = 0.0
    for (sender, receiver), rate in traffic.items():
        if sender in node_of and receiver in node_of:
            same = node_of[sender] == node_of[receiver]
            inside, crossing = (inside + rate, crossing) if same else (inside, crossing + rate)
    total = inside + crossing
    return crossing / total if total else None
