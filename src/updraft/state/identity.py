"""What a checkpoint belongs to, and whether a program may continue from it: pure comparison."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from updraft.errors import CheckpointError
from updraft.state.spec import TableSpec

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorIdentity:
    """The facts of a stateful operator that its stored state depends on."""

    tasks: int
    key: tuple[tuple[str, str], ...]  # column name and type; empty for object state
    tables: Mapping[str, str]  # table name to a readable description of its columns

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "tasks": self.tasks,
            "key": [list(column) for column in self.key],
            "tables": dict(sorted(self.tables.items())),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OperatorIdentity:
        """Inverse of `to_json`."""
        return cls(
            tasks=value["tasks"],
            key=tuple((name, kind) for name, kind in value["key"]),
            tables=dict(value["tables"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Topology and stateful operators of a checkpoint; `id` tells two checkpoints of one topology apart."""

    topology: str
    id: str
    operators: Mapping[str, OperatorIdentity]

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "format": FORMAT,
            "topology": self.topology,
            "id": self.id,
            "operators": {name: operator.to_json() for name, operator in sorted(self.operators.items())},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str) -> Identity:
        """Inverse of `to_json`; a format newer than this Updraft's is refused."""
        stored = value.get("format")
        if not isinstance(stored, int):
            raise CheckpointError(f"{where} does not describe a checkpoint; use another directory")
        if stored > FORMAT:
            raise CheckpointError(
                f"checkpoint {where} has format {stored}, newer than format {FORMAT} of this Updraft; "
                "upgrade Updraft, or use a new checkpoint"
            )
        return cls(
            topology=value["topology"],
            id=value["id"],
            operators={name: OperatorIdentity.from_json(o) for name, o in value["operators"].items()},
        )


def operator_identity(tasks: int, tables: Mapping[str, TableSpec], key: pa.Schema | None) -> OperatorIdentity:
    """Identity of an operator from its task count, tables and the key columns of its stream."""
    return OperatorIdentity(
        tasks=tasks,
        key=tuple((column.name, str(column.type)) for column in key or ()),
        tables={name: describe(spec) for name, spec in tables.items()},
    )


def describe(spec: TableSpec) -> str:
    """A table's declaration in one line."""
    columns = ", ".join(f"{column.name} {column.type}" for column in spec.values) or "no values"
    key = ", ".join(f"{column.name} {column.type}" for column in spec.key)
    return f"({key}) -> {columns}{'; ttl' if spec.ttl_ms else ''}{'; timers' if spec.timers else ''}"


def differences(stored: Identity, program: Identity, *, allow_dropped: Collection[str] = ()) -> list[str]:
    """Every reason why a program cannot continue from a checkpoint, each with what to do."""
    if stored.topology != program.topology:
        return [
            (
                f"it belongs to topology '{stored.topology}', not '{program.topology}': "
                "rename the topology back, or use a new checkpoint"
            )
        ]
    problems = []
    for name in sorted({*stored.operators, *program.operators}):
        before, now = stored.operators.get(name), program.operators.get(name)
        if before is None:
            known = ", ".join(sorted(stored.operators)) or "no stateful operator"
            problems.append(
                f"stateful operator '{name}' was added and would start without the earlier input: "
                f"rename it back if it had another name (the checkpoint has {known}), or use a new checkpoint"
            )
        elif now is None:
            if name not in allow_dropped:
                problems.append(
                    f"stateful operator '{name}' was removed or renamed: rename it back, use a new "
                    f"checkpoint, or drop its state with allow_dropped=({name!r},)"
                )
        else:
            problems.extend(_operator_differences(name, before, now))
    return problems


def _operator_differences(name: str, before: OperatorIdentity, now: OperatorIdentity) -> list[str]:
    problems = []
    if before.tasks != now.tasks:
        problems.append(
            f"operator '{name}' was re-partitioned: tasks={now.tasks}, but the checkpoint has "
            f"tasks={before.tasks}; set tasks={before.tasks} (change parallelism= instead), or use a new "
            "checkpoint"
        )
    if before.key != now.key:
        problems.append(
            f"the key of operator '{name}' changed from ({_columns(before.key)}) to ({_columns(now.key)}): "
            "cast or rename the key columns back, or use a new checkpoint"
        )
    elif before.tables != now.tables:
        problems.append(
            f"the state of operator '{name}' changed from {_tables(before)} to {_tables(now)}: "
            "restore the declaration, or use a new checkpoint"
        )
    return problems


def _columns(columns: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _tables(operator: OperatorIdentity) -> str:
    return "; ".join(f"{name} {text}" for name, text in sorted(operator.tables.items())) or "none"
