"""A plan says which instance runs which tasks on which worker, from which batch on.

Plans are frozen and versioned: the batch job is built from one plan, and another plan takes effect only at a
batch boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One Spark executor. `location` is the preference string Spark's scheduler understands."""

    id: str
    host: str
    location: str
    cores: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One parallel copy of an operator; runs as one Spark task per batch. Stateless instances have no tasks."""

    operator: str
    index: int
    tasks: tuple[int, ...] = ()
    worker: str | None = None  # None: anywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All instances of a topology, by operator."""

    version: int
    effective_from: int  # batch id
    instances: Mapping[str, tuple[Instance, ...]]

    def parallelism(self) -> dict[str, int]:
        """Number of instances by operator."""
        return {operator: len(found) for operator, found in sorted(self.instances.items())}

    def owner_of(self, operator: str) -> tuple[int, ...]:
        """For each task of a stateful operator, the index of the instance that runs it."""
        owner: dict[int, int] = {}
        for instance in self.instances[operator]:
            owner.update(dict.fromkeys(instance.tasks, instance.index))
        return tuple(owner[task] for task in range(len(owner)))
