"""`even`: instances dealt to workers in turn, nodes taking turns before their second worker does (Storm's default).

It looks at neither load nor traffic nor at what runs where; only a worker without memory is passed over.
"""

from __future__ import annotations

import numpy as np

from updraft.placement.board import Board


def even(board: Board) -> list[str]:
    """Deal the instances in breadth-first order."""
    place_in_node = np.arange(len(board.workers)) - np.array(board.first)[board.node_of]
    deal = np.lexsort((board.node_of, place_in_node))
    turn = 0
    passed = 0
    for instance in range(len(board.instances)):
        free = np.roll(board.has_memory(instance)[deal], -turn)
        if not free.any():
            board.keep_or_report(instance)
            continue
        step = int(free.argmax())
        passed += step > 0
        board.put(instance, int(deal[(turn + step) % len(deal)]))
        turn = (turn + step + 1) % len(deal)
    reasons = [f"{len(board.instances)} instances dealt in turn to {len(board.workers)} workers"]
    if passed:
        reasons.append(f"{passed} times a worker without memory was passed over")
    return reasons
