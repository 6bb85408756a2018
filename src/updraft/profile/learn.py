"""From batches to a profile: samples per slot of time, as the paper's metric DB averages them, then SP, OCUP, OP and ILP.

70 % of the samples are learnt from, the rest says how good the profile is (paper 5 §5.1). The split is seeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from updraft.monitor.model import BatchMetrics
from updraft.monitor.snapshot import Shape, snapshot_of
from updraft.policy.model import Snapshot
from updraft.predict.ann import fit
from updraft.predict.network import Network
from updraft.predict.series import Series
from updraft.profile.curve import fit_curve, relative_error
from updraft.profile.model import Profile, ProfileError, Selectivity

TRAINED = 0.7
LEAST_SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Mean relative errors on samples that were not learnt from. None: nothing to compare with. `weighted`: what the estimates
    of operators, each with all its instances as in the paper's Fig. 7, are off in all, of the CPU of all: one that needs
    next to nothing has an error that says more about clocks than about the profile, and counts as little. `total`: of the sum
    of all operators, in which errors may cancel each other. `drift`: as `weighted`, but of each operator's mean over all
    samples, in which errors over time cancel (a "mean percentage error", as the paper calls its figure)."""

    instance: dict[str, float]
    worker: float | None
    total: float | None = None
    weighted: float | None = None
    drift: float | None = None

    @property
    def mean(self) -> float | None:
        """Over operators and workers, whatever they need."""
        found = [*self.instance.values(), *(() if self.worker is None else (self.worker,))]
        return sum(found) / len(found) if found else None


def samples_of(
    batches: Sequence[BatchMetrics], shape: Shape, *, slot_s: float = 10.0
) -> tuple[Snapshot, ...]:
    """One snapshot per slot; slots with gaps are left out."""
    if not batches:
        return ()
    in_order = sorted(batches, key=lambda b: b.batch_id)
    first, last = in_order[0].started_s, in_order[-1].ended_s
    by_slot: dict[int, list[BatchMetrics]] = defaultdict(list)
    for batch in in_order:
        by_slot[int((batch.ended_s - first) // slot_s)].append(batch)
    found = [
        snapshot_of(
            inside, shape, now_s=min(last, first + (at + 1) * slot_s), period_s=slot_s, slot_s=slot_s, slots=1
        )
        for at, inside in sorted(by_slot.items())
    ]
    return tuple(seen for seen in found if not seen.gaps)


def learn(
    batches: Sequence[BatchMetrics], shape: Shape, *, seed: int, slot_s: float = 10.0, networks: bool = True
) -> tuple[Profile, Accuracy]:
    """A profile and how good it is."""
    samples = samples_of(batches, shape, slot_s=slot_s)
    if len(samples) < LEAST_SAMPLES:
        raise ProfileError(
            f"{len(samples)} samples of {slot_s:.0f} s are too few to learn topology '{shape.topology}' from; "
            f"at least {LEAST_SAMPLES} are needed, with a load that varies"
        )
    order = np.random.default_rng(seed).permutation(len(samples))
    cut = max(LEAST_SAMPLES // 2, int(len(samples) * TRAINED))
    known, rest = [samples[at] for at in sorted(order[:cut])], [samples[at] for at in sorted(order[cut:])]
    names = tuple(operator.name for operator in shape.operators)
    instance = {
        name: fit_curve(*_instance_points(known, name), seed=seed, networks=networks) for name in names
    }
    x, y = _worker_points(known)
    worker = fit_curve(x, y, seed=seed, networks=networks) if x else None
    profile = Profile(
        topology=shape.topology,
        operators=names,
        selectivity=_selectivity(known),
        instance=instance,
        worker=worker,
        input_load=_input_load(samples, slot_s, seed) if networks else None,
        samples=len(samples),
        slot_s=slot_s,
    )
    return profile, accuracy(profile, rest)


def accuracy(profile: Profile, samples: Sequence[Snapshot]) -> Accuracy:
    """Estimates against what was measured."""
    instance: dict[str, float] = {}
    for name, curve in profile.instance.items():
        x, y = _instance_points(samples, name)
        if x:
            instance[name] = relative_error(curve, np.asarray(x), np.asarray(y))
    x, y = _worker_points(samples)
    worker = (
        relative_error(profile.worker, np.asarray(x), np.asarray(y))
        if profile.worker is not None and x
        else None
    )
    off = [found for seen in samples if (found := _off(profile, seen))]
    if not off:
        return Accuracy(instance=instance, worker=worker)
    by_operator = np.array([[each.get(name, 0.0) for name in profile.operators] for each in off])
    return Accuracy(
        instance=instance,
        worker=worker,
        total=float(np.abs(by_operator.sum(axis=1)).mean()),
        weighted=float(np.abs(by_operator).sum(axis=1).mean()),
        drift=float(np.abs(by_operator.mean(axis=0)).sum()),
    )


def _off(profile: Profile, seen: Snapshot) -> dict[str, float]:
    """By how much the estimate of each operator is off in one sample, as a part of the CPU that all were measured to need."""
    errors: dict[str, float] = {}
    measured = 0.0
    for o in seen.operators:
        found = [
            (profile.instance[o.name](one.rows_per_s), one.cores)
            for one in o.instances
            if o.name in profile.instance and one.rows_per_s is not None and one.cores is not None
        ]
        cores = sum(cores for _, cores in found)
        errors[o.name] = sum(estimated for estimated, _ in found) - cores
        measured += cores
    return {name: error / measured for name, error in errors.items()} if measured > 0 else {}


def _instance_points(samples: Sequence[Snapshot], operator: str) -> tuple[list[float], list[float]]:
    found = [
        (one.rows_per_s, one.cores)
        for seen in samples
        for o in seen.operators
        if o.name == operator
        for one in o.instances
        if one.rows_per_s is not None and one.cores is not None
    ]
    return [x for x, _ in found], [y for _, y in found]


def _worker_points(samples: Sequence[Snapshot]) -> tuple[list[float], list[float]]:
    xs: list[float] = []
    ys: list[float] = []
    for seen in samples:
        spent: dict[str, float] = defaultdict(float)
        for o in seen.operators:
            for one in o.instances:
                if one.worker is not None:
                    spent[one.worker] += one.cores or 0.0
        for worker in seen.workers:
            if worker.cpu is not None:
                xs.append(spent[worker.id])
                ys.append(worker.cpu * worker.usable_cores)
    return xs, ys


def _selectivity(samples: Sequence[Snapshot]) -> dict[tuple[str, str], Selectivity]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for seen in samples:
        for stream in seen.streams:
            found[stream.producer, stream.consumer].append(stream.selectivity)
    return {
        key: Selectivity(mean=float(np.mean(values)), deviation=float(np.std(values)))
        for key, values in sorted(found.items())
    }


def _input_load(samples: Sequence[Snapshot], slot_s: float, seed: int) -> Network | None:
    start_s = samples[0].taken_at_s - slot_s
    by_slot = {
        round((seen.taken_at_s - slot_s - start_s) / slot_s): seen.input_rows_per_s for seen in samples
    }
    values = tuple(by_slot.get(at) for at in range(max(by_slot) + 1))
    return fit(Series(start_s=start_s, slot_s=slot_s, values=values), seed=seed)
