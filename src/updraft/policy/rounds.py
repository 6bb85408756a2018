"""Several topologies in one application: at most one is changed per round (paper 1 §IV-A), so that its effect on the others
is seen before the next. Who cannot keep up goes first, then who was changed longest ago; the others wait, and say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from updraft.policy.model import Decision, Memory, Snapshot


def one_per_round(
    decisions: Mapping[str, Decision], snapshots: Mapping[str, Snapshot], memories: Mapping[str, Memory]
) -> dict[str, Decision]:
    """The decisions with all changes but one held back. `memories`: those the decisions were made with."""
    changing = sorted(name for name, decision in decisions.items() if decision.changed)
    if len(changing) < 2:
        return dict(decisions)
    chosen = min(changing, key=lambda name: _order(name, snapshots[name], memories[name]))
    return {
        name: decision
        if name == chosen or not decision.changed
        else waiting(
            decision, snapshots[name], memories[name], f"topology '{chosen}' is changed in this round"
        )
        for name, decision in sorted(decisions.items())
    }


def _order(name: str, snapshot: Snapshot, memory: Memory) -> tuple[float, float, str]:
    last = memory.last_change_s if memory.last_change_s is not None else float("-inf")
    return -(snapshot.pressure or 0.0), last, name


def waiting(decision: Decision, snapshot: Snapshot, memory: Memory, why: str) -> Decision:
    """Nothing is changed, so the memory must not believe it was: change and cooldown are taken back, wants stay."""
    kept = replace(
        decision.memory,
        last_change_s=memory.last_change_s,
        last_added_s=memory.last_added_s,
        change=memory.change,
        taken=memory.taken,
        rejected=memory.rejected,
        shares=memory.shares,
        workers_asked=memory.workers_asked,
        workers_asked_s=memory.workers_asked_s,
        moved_at_s=memory.moved_at_s,
        move=memory.move,
    )
    return replace(
        decision.of(snapshot.configuration),
        shares=memory.shares,
        moves=(),
        changed=False,
        blocked=(*decision.blocked, f"{_wanted(decision, snapshot)} waits: {why}"),
        memory=kept,
    )


def _wanted(decision: Decision, snapshot: Snapshot) -> str:
    if decision.configuration != snapshot.configuration:
        return str(decision.configuration)
    if decision.moves:
        return "a move of " + ", ".join(sorted({f"'{move.operator}'" for move in decision.moves}))
    return "another CPU share"
