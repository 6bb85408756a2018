"""`adaptive`: paper 2 §III-A. CPU demand and share per instance; what scales is the share, not the number of instances.

κ = mean CPU per row over φ slots (eq. 2); demand R = ψ · κ with ψ = predicted rows plus mean queue change (eq. 1, 3); per
instance r = R / T (eq. 4), raised at once, lowered only when the accumulated decrease reaches θ/2; allocated
r̂ = ceil((r + θ/2) / θ) · θ (eq. 5). Workers: as many as the shares add up to. Predicted rows come with the forecast
(`predict/operators.py`); without one, the measured rate is used.

Deviations, with Execution.STAGES (Spark; PIPELINE is the paper's model): the paper keeps every operator at its maximum because
a change of parallelism restarts workers. Here it does not, and more instances than cores only wait for each other, so
parallelism is sized as in `sizing.py` for the same load. An instance works only in its level's turn, so a share of r would
make each level last as long as the whole batch may: shares are scaled so that all levels together fit. A backlog
counts as in `load.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from updraft.policy.load import planned_load
from updraft.policy.model import Decision, Forecast, Memory, OperatorLoad, Slot, Snapshot, hold
from updraft.policy.settings import Execution, Settings, bounds
from updraft.policy.symbiotic import sizer_of

RULE = "adaptive (paper 2 §III-A)"


def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """Shares for the predicted demand, and the workers that can give them."""
    load = planned_load(snapshot, forecast, settings)
    if load is None:
        return hold(snapshot, memory, RULE, "input rate not measured")
    demands = _demands(snapshot, forecast, load.rows_per_s, settings)
    parallelism, memory = _parallelism(snapshot, demands, load.rows_per_s, settings, memory)
    found = shares_for(snapshot, forecast, memory, settings, parallelism, load.rows_per_s)
    shares, held = found.by_operator, found.held
    unmet = [
        f"operator '{name}' needs {demand:.1f} cores and may have {parallelism[name]} instances of one core: "
        "raise its max_parallelism"
        for name, demand in demands.items()
        if demand / parallelism[name] > 1
    ]
    workers, wanted = _workers(snapshot, shares, parallelism, settings)
    if workers < wanted:
        unmet.append(f"shares need {wanted} workers, max_workers is {settings.max_workers}")
    return Decision(
        parallelism=parallelism,
        workers=workers,
        shares=shares,
        rule=RULE,
        reasons=(f"{load.reason}: shares " + ", ".join(f"{n} {s:.1f}" for n, s in sorted(shares.items())),),
        unmet=tuple(unmet),
        expected={"cores": sum(held[name] * parallelism[name] for name in held)},
        memory=replace(memory, demand_cores=held),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundShares:
    """Cores of each instance by operator, and the demands per instance that they hold for."""

    by_operator: Mapping[str, float]
    held: Mapping[str, float]


def shares_for(
    snapshot: Snapshot,
    forecast: Forecast | None,
    memory: Memory,
    settings: Settings,
    parallelism: Mapping[str, int],
    rows_per_s: float,
) -> FoundShares:
    """Shares for a load and a parallelism: raised at once, lowered lazily, in steps of θ."""
    demands = _demands(snapshot, forecast, rows_per_s, settings)
    held = {
        name: _held(demand / parallelism[name], memory.demand_cores.get(name), settings.theta)
        for name, demand in demands.items()
    }
    stretched = _stretched(snapshot, held, settings)
    shares = {name: _kept(r, memory.shares.get(name), settings.theta) for name, r in stretched.items()}
    return FoundShares(by_operator=shares, held=held)


def _demands(
    snapshot: Snapshot, forecast: Forecast | None, rows_per_s: float, settings: Settings
) -> dict[str, float]:
    """Cores that each operator needs at a load (eq. 1-3)."""
    more = rows_per_s / snapshot.input_rows_per_s if snapshot.input_rows_per_s else 1.0
    predicted = forecast.operators if forecast is not None else {}
    return {
        o.name: _demand_cores(o, predicted.get(o.name), snapshot.slot_s, settings) * max(1.0, more)
        for o in snapshot.operators
    }


def cpu_s_per_row(slots: Sequence[Slot]) -> float | None:
    """κ of eq. 2: the mean over slots of CPU per row; slots without rows say nothing."""
    found = [slot.cpu_s / slot.rows_in for slot in slots if slot.rows_in > 0]
    return sum(found) / len(found) if found else None


def _demand_cores(
    operator: OperatorLoad, predicted_per_s: float | None, slot_s: float, settings: Settings
) -> float:
    slots = operator.slots[-settings.phi :]
    kappa = cpu_s_per_row(slots)
    kappa = operator.cpu_s_per_row if kappa is None else kappa
    arriving = predicted_per_s if predicted_per_s is not None else operator.rows_in_per_s
    if kappa is None or arriving is None:
        return sum(instance.cores or 0.0 for instance in operator.instances)
    change = sum(slot.queue_change_rows for slot in slots) / len(slots) if slots else 0.0
    return max(0.0, arriving + change / slot_s) * kappa


def _parallelism(
    snapshot: Snapshot, demands: Mapping[str, float], rows_per_s: float, settings: Settings, memory: Memory
) -> tuple[dict[str, int], Memory]:
    if settings.execution is Execution.STAGES:
        sizer, memory = sizer_of(snapshot, settings, memory)
        return sizer.settled_parallelism(rows_per_s), memory
    most = {o.name: _most(o, demands[o.name], settings) for o in snapshot.operators}
    return most, memory


def _most(operator: OperatorLoad, demand_cores: float, settings: Settings) -> int:
    """The operator's maximum; without one, so many that none needs more than core_max."""
    lowest, highest = bounds(settings, operator)
    if highest is not None:
        return max(lowest, highest)
    return max(lowest, operator.parallelism, ceil(demand_cores / settings.core_max))


def _held(wanted: float, before: float | None, theta: float) -> float:
    """Raise at once, lower lazily: a decrease counts when it has added up to half a step."""
    if before is None or wanted >= before or before - wanted >= theta / 2:
        return wanted
    return before


def _allocated(r: float, theta: float) -> float:
    """Eq. 5; an instance is one thread and cannot use more than a core."""
    return min(1.0, ceil((r + theta / 2) / theta - 1e-9) * theta)


def _kept(r: float, before: float | None, theta: float) -> float:
    """The share of eq. 5, but raised only when its margin is used up: r at the edge of a step would flap."""
    wanted = _allocated(r, theta)
    return before if before is not None and wanted > before >= r else wanted


def _stretched(snapshot: Snapshot, held: Mapping[str, float], settings: Settings) -> dict[str, float]:
    """Shares while an instance's level has its turn."""
    if settings.execution is Execution.PIPELINE:
        return dict(held)
    levels: dict[int, float] = {}
    for operator in snapshot.operators:
        levels[operator.level] = max(levels.get(operator.level, 0.0), held[operator.name])
    source = snapshot.source_s_per_row * (snapshot.input_rows_per_s or 0.0)
    total = sum(levels.values()) + source
    return {
        o.name: held[o.name] * total / levels[o.level] if levels[o.level] > 0 else 0.0
        for o in snapshot.operators
    }


def _workers(
    snapshot: Snapshot, shares: Mapping[str, float], parallelism: Mapping[str, int], settings: Settings
) -> tuple[int, int]:
    """(workers, workers wanted): cores for all shares; in stages, one for every instance of the widest level."""
    if not snapshot.workers:
        return 0, 0
    cores = min(worker.cores for worker in snapshot.workers)
    if settings.execution is Execution.PIPELINE:
        needed = sum(shares[name] * count for name, count in parallelism.items())
    else:
        widest: dict[int, int] = {}
        for operator in snapshot.operators:
            widest[operator.level] = widest.get(operator.level, 0) + parallelism[operator.name]
        needed = float(max(widest.values(), default=0))
    wanted = max(settings.min_workers, ceil(needed / cores - 1e-9))
    return (wanted if settings.max_workers is None else min(wanted, settings.max_workers)), wanted
