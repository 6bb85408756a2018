"""A plan says which instance runs which tasks on which worker, and who else holds them, from which batch on.

Plans are frozen and versioned: the batch job is built from one plan, and another plan takes effect only at a
batch boundary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from updraft.errors import UpdraftError

FORMAT = 1

TaskKey: TypeAlias = tuple[str, int]
"""(operator, task)"""

Copies: TypeAlias = Mapping[str, Mapping[int, tuple[str, ...]]]
"""Workers that hold a task besides its primary, by operator and task."""


class PlanError(UpdraftError):
    """A plan, or a step between plans, that is not possible."""


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
    tasks: tuple[int, ...] = ()  # ascending
    worker: str | None = None  # None: anywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All instances of a topology, by operator, and the extra copies of their tasks."""

    version: int
    effective_from: int  # batch id; a plan that is not in effect yet has the one of the plan it was made from
    instances: Mapping[str, tuple[Instance, ...]]
    copies: Copies = field(default_factory=dict)

    def parallelism(self) -> dict[str, int]:
        """Number of instances by operator."""
        return {operator: len(found) for operator, found in sorted(self.instances.items())}

    def owner_of(self, operator: str) -> tuple[int, ...]:
        """For each task of a stateful operator, the index of the instance that runs it."""
        owner: dict[int, int] = {}
        for instance in self.instances[operator]:
            owner.update(dict.fromkeys(instance.tasks, instance.index))
        return tuple(owner[task] for task in range(len(owner)))

    def primaries(self) -> dict[TaskKey, str | None]:
        """The worker that runs each task, of all operators."""
        return {
            (operator, task): instance.worker
            for operator, found in sorted(self.instances.items())
            for instance in found
            for task in instance.tasks
        }

    def primary(self, operator: str, task: int) -> str | None:
        """The worker that runs a task; None: anywhere."""
        for instance in self.instances.get(operator, ()):
            if task in instance.tasks:
                return instance.worker
        raise PlanError(f"plan {self.version} has no task {task} of operator '{operator}'")

    def extra(self, operator: str, task: int) -> tuple[str, ...]:
        """Workers that hold the task besides its primary."""
        return self.copies.get(operator, {}).get(task, ())

    def holders(self, operator: str, task: int) -> tuple[str, ...]:
        """All workers that hold the task, its primary first."""
        primary = self.primary(operator, task)
        return (*(() if primary is None else (primary,)), *self.extra(operator, task))

    def tasks_on(self, worker: str) -> tuple[TaskKey, ...]:
        """Tasks whose primary is on the worker."""
        return tuple(sorted(key for key, found in self.primaries().items() if found == worker))

    def copies_on(self, worker: str) -> tuple[TaskKey, ...]:
        """Tasks of which the worker holds an extra copy."""
        return tuple(
            sorted(
                (operator, task)
                for operator, tasks in self.copies.items()
                for task, workers in tasks.items()
                if worker in workers
            )
        )

    def workers(self) -> tuple[str, ...]:
        """Workers that run an instance or hold a copy, in order."""
        running = {instance.worker for found in self.instances.values() for instance in found}
        holding = {w for tasks in self.copies.values() for workers in tasks.values() for w in workers}
        return tuple(sorted({w for w in running if w is not None} | holding, key=worker_order))

    def same_placement(self, other: Plan) -> bool:
        """Whether nothing but version and batch differs."""
        return dict(self.instances) == dict(other.instances) and _held(self.copies) == _held(other.copies)

    def effective(self, batch: int) -> Plan:
        """This plan, in effect from that batch on."""
        return replace(self, effective_from=batch)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "format": FORMAT,
            "version": self.version,
            "effective_from": self.effective_from,
            "operators": {
                operator: {
                    "instances": [{"tasks": list(i.tasks), "worker": i.worker} for i in found],
                    "copies": {str(t): list(w) for t, w in sorted(self.copies.get(operator, {}).items())},
                }
                for operator, found in sorted(self.instances.items())
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """Inverse of `to_json`; what is not a plan, or one of a newer format, is refused."""
        stored = value.get("format") if isinstance(value, Mapping) else None
        if not isinstance(stored, int):
            raise PlanError("not a plan: it has no format number")
        if stored > FORMAT:
            raise PlanError(
                f"plan has format {stored}, newer than format {FORMAT} of this Updraft; upgrade it"
            )
        try:
            operators = sorted(value["operators"].items())
            return cls(
                version=int(value["version"]),
                effective_from=int(value["effective_from"]),
                instances={
                    operator: _instances(operator, found["instances"]) for operator, found in operators
                },
                copies={
                    operator: {int(task): tuple(map(str, w)) for task, w in found["copies"].items()}
                    for operator, found in operators
                    if found["copies"]
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"not a plan: {type(error).__name__}: {error}") from error


def worker_order(worker: str) -> tuple[int, str]:
    """Sort key of worker ids: executors 2 and 10 in that order."""
    return len(worker), worker


def _instances(operator: str, found: Iterable[Mapping[str, Any]]) -> tuple[Instance, ...]:
    return tuple(
        Instance(
            operator=operator,
            index=index,
            tasks=tuple(int(task) for task in one["tasks"]),
            worker=None if one["worker"] is None else str(one["worker"]),
        )
        for index, one in enumerate(found)
    )


def _held(copies: Copies) -> dict[TaskKey, frozenset[str]]:
    return {(o, t): frozenset(w) for o, tasks in copies.items() for t, w in tasks.items() if w}
