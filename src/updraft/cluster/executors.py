"""The executors that run on the nodes of a local cluster, as processes: for those who measure or test what their loss does."""

from __future__ import annotations

from pathlib import Path

from updraft.cluster.daemons import CLUSTER_VARIABLE
from updraft.cluster.processes import ProcessId, marked
from updraft.cluster.record import load
from updraft.errors import ClusterError

_MAIN = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def executors(name: str, home: Path, app_id: str | None = None) -> dict[str, ProcessId]:
    """By executor id, which is that of `Worker.id`, the JVMs of an application; None: of the only one there is."""
    record = load(home, name)
    if record is None:
        raise ClusterError(f"no cluster '{name}' is running")
    found: dict[str, ProcessId] = {}
    for process in marked(CLUSTER_VARIABLE, record.cluster_id):
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if app_id is not None and app_id.encode() not in words:
            continue
        if _MAIN in words and b"--executor-id" in words:
            found[words[words.index(b"--executor-id") + 1].decode()] = process
    return found
