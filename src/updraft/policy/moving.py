"""`online` as a policy of runs (paper 3): what the snapshot says of workers, instances and traffic, and one move a round.

A worker's load is the share of the time that rows take in which it works: Spark runs the levels of a batch one after the
other, so a worker that all others wait for need not be near 100 % CPU. It counts in full from a pressure of `core_max` on,
below in proportion: a topology with time to spare has no overloaded worker. Instances are measured alike.
"""

from __future__ import annotations

from dataclasses import replace

from updraft.policy.model import Decision, Forecast, InstanceLoad, Memory, Snapshot, TaskMove, hold
from updraft.policy.online import (
    OnlineDecision,
    OnlineInstance,
    OnlineMemory,
    OnlineMove,
    OnlineSettings,
    OnlineView,
    OnlineWorker,
    decide_online,
)
from updraft.policy.settings import Settings

RULE = "online (paper 3, OTD)"


def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """One move or none; parallelism and workers stay."""
    if snapshot.gaps or not snapshot.operators:
        return hold(snapshot, memory, RULE, *(snapshot.gaps or ("nothing measured yet",)))
    if len(snapshot.workers) < 2:
        return hold(snapshot, memory, RULE, "there is one worker: nowhere to move to")
    if memory.last_change_s is not None and snapshot.taken_at_s - memory.last_change_s < snapshot.period_s:
        return hold(snapshot, memory, RULE, "the last move is not measured yet")
    return moved(hold(snapshot, memory, RULE), snapshot, settings)


def moved(decision: Decision, snapshot: Snapshot, settings: Settings) -> Decision:
    """The decision with online's move of this round, if it has one."""
    found = one_move(snapshot, decision.memory, settings)
    memory = replace(decision.memory, moved_at_s=found.memory.moved_at_s)
    if found.move is None:
        return replace(
            decision,
            reasons=(*decision.reasons, *found.reasons),
            unmet=(*decision.unmet, *found.unmet),
            memory=memory,
        )
    return replace(
        decision,
        moves=(task_move(found.move, snapshot),),
        reasons=(*decision.reasons, *found.reasons),
        unmet=(*decision.unmet, *found.unmet),
        expected={**decision.expected, "crossing_bytes_per_s": -found.move.asc},
        memory=replace(memory, last_change_s=snapshot.taken_at_s),
        changed=True,
    )


def one_move(snapshot: Snapshot, memory: Memory, settings: Settings) -> OnlineDecision:
    """Online's decision on what a snapshot measured."""
    return decide_online(
        view_of(snapshot, settings), OnlineMemory(moved_at_s=memory.moved_at_s), OnlineSettings()
    )


def view_of(snapshot: Snapshot, settings: Settings) -> OnlineView:
    """The snapshot in online's words; see above for what load means here."""
    pressure = snapshot.pressure or 0.0
    full = min(1.0, pressure / settings.core_max) / pressure if pressure > 0 else 0.0
    apart = (
        len({worker.node for worker in snapshot.workers}) > 1
    )  # else all are on one host: each counts as a node
    busy: dict[str, float] = {}
    for operator in snapshot.operators:
        for instance in operator.instances:
            if instance.worker is not None:
                busy[instance.worker] = busy.get(instance.worker, 0.0) + (instance.busy or 0.0)
    return OnlineView(
        taken_at_s=snapshot.taken_at_s,
        workers=tuple(
            OnlineWorker(
                id=worker.id,
                node=worker.node if apart else worker.id,
                cores=worker.cores,
                cpu=full * busy.get(worker.id, 0.0) / max(1, worker.cores),
            )
            for worker in snapshot.workers
        ),
        instances=tuple(
            OnlineInstance(
                operator=operator.name,
                index=instance.index,
                worker=instance.worker,
                cpu_cores=None if instance.busy is None else full * instance.busy,
            )
            for operator in snapshot.operators
            for instance in operator.instances
            if instance.worker is not None
        ),
        traffic=snapshot.traffic,
    )


def task_move(move: OnlineMove, snapshot: Snapshot) -> TaskMove:
    """A move of an instance as a move of its tasks, or of itself if it has none."""
    operator, index = move.instance
    found = _instance(snapshot, operator, index)
    tasks = found.tasks if found is not None else ()
    return TaskMove(
        operator=operator, tasks=tasks, to_worker=move.to_worker, instance=None if tasks else index
    )


def _instance(snapshot: Snapshot, operator: str, index: int) -> InstanceLoad | None:
    for one in snapshot.operators:
        if one.name == operator:
            return next((i for i in one.instances if i.index == index), None)
    return None
