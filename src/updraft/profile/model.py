"""A profile: what an application needs at a load (paper 5 §3.2), and its file.

SP: rows per row on every stream, averaged. OCUP: CPU of an instance by its input rate. OP: CPU of a worker by the sum of
its instances. ILP: the network that forecasts input load. A profile is an `Estimator`, so policies take it instead of what
they measure themselves. The file is JSON: people can read it, and reading it cannot run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from updraft.errors import UpdraftError
from updraft.monitor.snapshot import Shape
from updraft.policy.estimate import propagate
from updraft.policy.model import Stream
from updraft.predict.network import Network
from updraft.profile.curve import Curve

FORMAT = 1


class ProfileError(UpdraftError):
    """A profile that cannot be read or does not belong to the topology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selectivity:
    """SP of one stream: mean and standard deviation over the samples."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was learnt about one topology. `operators` in topological order."""

    topology: str
    operators: tuple[str, ...]
    selectivity: Mapping[tuple[str, str], Selectivity]  # by (producer, consumer)
    instance: Mapping[str, Curve]  # OCUP
    worker: Curve | None = None  # OP
    input_load: Network | None = None  # ILP
    samples: int = 0
    slot_s: float = 10.0  # of a sample; ILP forecasts in slots of it

    def operator_rates(self, input_rows_per_s: float) -> Mapping[str, float]:
        streams = tuple(
            Stream(producer=producer, consumer=consumer, selectivity=found.mean)
            for (producer, consumer), found in sorted(self.selectivity.items())
        )
        return propagate(self.operators, streams, input_rows_per_s)

    def instance_cores(self, operator: str, rows_per_s: float) -> float:
        curve = self.instance.get(operator)
        return curve(rows_per_s) if curve is not None else 0.0

    def worker_cores(self, instance_cores: float) -> float:
        # The overhead that was learnt never makes a worker cheaper than its instances.
        return instance_cores if self.worker is None else max(instance_cores, self.worker(instance_cores))

    def fits(self, shape: Shape) -> tuple[str, ...]:
        """Why this profile is not one of that topology; empty: it is."""
        problems = []
        if self.topology != shape.topology:
            problems.append(f"it is of topology '{self.topology}', not '{shape.topology}'")
        names = tuple(operator.name for operator in shape.operators)
        if sorted(self.operators) != sorted(names):
            problems.append(f"it knows operators {_named(self.operators)}, the topology has {_named(names)}")
        streams = {(producer, o.name) for o in shape.operators for producer in o.inputs}
        if set(self.selectivity) != streams:
            odd = sorted(set(self.selectivity) ^ streams)
            problems.append("streams differ: " + ", ".join(f"{a} → {b}" for a, b in odd))
        return tuple(problems)


def save(profile: Profile, path: Path) -> None:
    """Write a profile so that a reader never sees half of it."""
    text = json.dumps(_to_json(profile), indent=1)
    part = path.with_name(path.name + ".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def load(path: Path, shape: Shape | None = None) -> Profile:
    """Read a profile; one of another topology, or of a newer format, is refused with all reasons."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(f"there is no profile {path}; `updraft profile` makes one") from None
    except (OSError, ValueError) as error:
        raise ProfileError(f"profile {path} cannot be read: {error}") from error
    found = _from_json(value, path)
    problems = found.fits(shape) if shape is not None else ()
    if problems:
        raise ProfileError(
            f"profile {path} cannot be used: {'; '.join(problems)}. Profile this topology anew"
        )
    return found


def _to_json(profile: Profile) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "topology": profile.topology,
        "operators": list(profile.operators),
        "samples": profile.samples,
        "slot_s": profile.slot_s,
        "selectivity": [
            {"producer": p, "consumer": c, "mean": s.mean, "deviation": s.deviation}
            for (p, c), s in sorted(profile.selectivity.items())
        ],
        "instance": {name: curve.to_json() for name, curve in sorted(profile.instance.items())},
        "worker": profile.worker.to_json() if profile.worker is not None else None,
        "input_load": profile.input_load.to_json() if profile.input_load is not None else None,
    }


def _from_json(value: Any, path: Path) -> Profile:
    stored = value.get("format") if isinstance(value, dict) else None
    if not isinstance(stored, int):
        raise ProfileError(f"{path} is not a profile: it has no format number")
    if stored > FORMAT:
        raise ProfileError(
            f"profile {path} has format {stored}, newer than format {FORMAT} of this Updraft; upgrade it"
        )
    try:
        worker, ilp = value["worker"], value["input_load"]
        return Profile(
            topology=str(value["topology"]),
            operators=tuple(map(str, value["operators"])),
            samples=int(value["samples"]),
            slot_s=float(value.get("slot_s", 10.0)),
            selectivity={
                (str(s["producer"]), str(s["consumer"])): Selectivity(
                    mean=float(s["mean"]), deviation=float(s["deviation"])
                )
                for s in value["selectivity"]
            },
            instance={str(name): Curve.from_json(curve) for name, curve in value["instance"].items()},
            worker=Curve.from_json(worker) if worker is not None else None,
            input_load=Network.from_json(ilp) if ilp is not None else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProfileError(f"{path} is not a profile: {type(error).__name__}: {error}") from error


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(sorted(names)) or "none"
