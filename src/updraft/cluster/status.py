"""How a cluster is now, from three witnesses: its record, the kernel (alive) and the master (registered)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from updraft.cluster import daemons
from updraft.cluster.processes import is_alive
from updraft.cluster.record import Phase, Record, default_home, load


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node as it is now: `alive` by the kernel, `registered` by the master."""

    name: str
    pid: int
    alive: bool
    registered: bool
    cores: int
    cores_used: int
    memory: str
    directory: Path
    cpu_quota: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """A cluster as it is now. `running` is False for the record of one that was killed."""

    name: str
    running: bool
    ready: bool
    master_url: str
    ui_url: str
    directory: Path
    supervisor_pid: int
    master_pid: int | None
    master_alive: bool
    nodes: tuple[NodeStatus, ...]
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return plain


def status(name: str = "default", *, home: Path | None = None) -> ClusterStatus | None:
    """How the cluster is now; None if there is no such cluster."""
    record = load(home or default_home(), name)
    return None if record is None else status_of(record)


def status_of(record: Record) -> ClusterStatus:
    running = is_alive(record.supervisor)
    seen = (daemons.workers_seen(record.ui_url) or ()) if running and record.ui_url else ()
    by_port = {worker.port: worker for worker in seen if worker.alive}
    return ClusterStatus(
        name=record.name,
        running=running,
        ready=running and record.phase is Phase.READY,
        master_url=record.master_url,
        ui_url=record.ui_url,
        directory=record.directory,
        supervisor_pid=record.supervisor.pid,
        master_pid=record.master.pid if record.master else None,
        master_alive=record.master is not None and is_alive(record.master),
        nodes=tuple(
            NodeStatus(
                name=node.name,
                pid=node.process.pid,
                alive=is_alive(node.process),
                registered=node.port in by_port,
                cores=node.cores,
                cores_used=by_port[node.port].cores_used if node.port in by_port else 0,
                memory=node.memory,
                directory=node.directory,
                cpu_quota=node.cpu_quota,
            )
            for node in record.nodes
        ),
        warning=record.warning,
    )
