"""What is written down about a local cluster, and where.

One JSON file per cluster, `<home>/clusters/<name>.json`, written only by the cluster's supervisor (atomic
rename) and read by everybody else. Home is $UPDRAFT_HOME, else $XDG_STATE_HOME/updraft, else
~/.local/state/updraft.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from updraft.cluster.processes import ProcessId
from updraft.errors import ClusterError

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One worker process; its port is what tells it from the others in the master's list."""

    name: str
    process: ProcessId
    port: int
    cores: int
    memory: str
    directory: Path
    cpu_quota: float | None = None  # cores that it and all it starts may use, together; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A cluster as its supervisor last wrote it down."""

    name: str
    cluster_id: str
    directory: Path
    phase: Phase
    supervisor: ProcessId
    master: ProcessId | None = None
    master_url: str = ""
    ui_url: str = ""
    nodes: tuple[Node, ...] = ()
    problem: str = ""
    warning: str = ""


def default_home(env: Mapping[str, str] | None = None) -> Path:
    env = os.environ if env is None else env
    if home := env.get("UPDRAFT_HOME"):
        return Path(home).absolute()
    state = env.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state).absolute() / "updraft"


def check_name(name: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise ClusterError(f"cluster name {name!r} is not allowed: use letters, digits, '-' and '_'")
    return name


def record_path(home: Path, name: str) -> Path:
    return home / "clusters" / f"{check_name(name)}.json"


def save(home: Path, record: Record) -> None:
    path = record_path(home, record.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Others must never read half a record.
    fresh = path.with_suffix(".json.new")
    fresh.write_text(json.dumps(asdict(record), default=str, indent=2))
    fresh.replace(path)


def load(home: Path, name: str) -> Record | None:
    path = record_path(home, name)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        return _parse(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"cannot read the cluster record {path} ({error}); remove the file") from error


def forget(home: Path, name: str) -> None:
    record_path(home, name).unlink(missing_ok=True)


def names(home: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (home / "clusters").glob("*.json")))


def _parse(raw: Mapping[str, Any]) -> Record:
    known = dict(raw)
    known["directory"] = Path(raw["directory"])
    known["phase"] = Phase(raw["phase"])
    known["supervisor"] = ProcessId(**raw["supervisor"])
    known["master"] = ProcessId(**raw["master"]) if raw["master"] else None
    known["nodes"] = tuple(_parse_node(node) for node in raw["nodes"])
    return Record(**known)


def _parse_node(raw: Mapping[str, Any]) -> Node:
    known = dict(raw)
    known["directory"] = Path(raw["directory"])
    known["process"] = ProcessId(**raw["process"])
    return Node(**known)
