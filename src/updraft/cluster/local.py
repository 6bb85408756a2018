"""Clusters on this machine: start, look at, change and end them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from updraft.cluster import control, daemons
from updraft.cluster.archive import classes_in, make_archive, rehearse
from updraft.cluster.daemons import Classes
from updraft.cluster.processes import ProcessId, end, identify, is_alive, marked, send, wait_gone
from updraft.cluster.record import Phase, Record, check_name, default_home, forget, load
from updraft.cluster.status import ClusterStatus, NodeStatus, status, status_of
from updraft.cluster.supervisor import Settings, Supervisor, name_taken, to_wire
from updraft.errors import ClusterError
from updraft.java import require_java

_MEMORY = re.compile(r"[1-9]\d*[mgMG]")
LEAST_QUOTA = 0.05  # with less of a core a JVM does not even register
_POLL_S = 0.1
_STOP_S = 20.0
_APPEAR_S = 15.0


def up(
    nodes: int,
    cores_per_node: int = 1,
    memory: str = "2g",
    directory: Path | None = None,
    *,
    name: str = "default",
    home: Path | None = None,
    owner_pid: int | None = None,
    timeout_s: float = 60.0,
    cpu_quota: float | None = None,
    apart: bool = False,
    classes: Classes | None = None,
) -> ClusterStatus:
    """Start a cluster in the background and wait until every worker is registered.

    With `owner_pid`, it also ends when that process does, however that ends. `cpu_quota`: cores that each node may use,
    by a cgroup of its own; where none can be written, the status has a warning. `apart`: each node has a loopback address of
    its own and so is a host of its own to Spark and to placement. `classes`: executors start from an archive (`quick_start`).
    """
    settings = prepare(
        nodes,
        cores_per_node,
        memory,
        directory,
        name=name,
        home=home,
        owner_pid=owner_pid,
        timeout_s=timeout_s,
        cpu_quota=cpu_quota,
        apart=apart,
        classes=classes,
    )
    with (settings.directory / "supervisor.log").open("ab") as log:
        # It forks itself away and this returns at once; from then on only the record tells how it goes.
        begun = subprocess.run(
            [sys.executable, "-m", "updraft.cluster", json.dumps(to_wire(settings), default=str)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if begun.returncode != 0:
        raise ClusterError(f"cluster '{name}' did not start: {_last_line(Path(log.name))}")
    try:
        return _await_ready(settings)
    except KeyboardInterrupt:
        # Nobody would know of a cluster whose start was broken off.
        down(name, home=settings.home)
        raise


def run_in_foreground(settings: Settings, on_ready: Callable[[Record], None]) -> None:
    """Be the supervisor in this process until SIGINT or SIGTERM."""
    with name_taken(settings):
        try:
            Supervisor(settings, on_ready).run()
        finally:
            forget(settings.home, settings.name)


def prepare(
    nodes: int,
    cores_per_node: int = 1,
    memory: str = "2g",
    directory: Path | None = None,
    *,
    name: str = "default",
    home: Path | None = None,
    owner_pid: int | None = None,
    timeout_s: float = 60.0,
    cpu_quota: float | None = None,
    apart: bool = False,
    classes: Classes | None = None,
) -> Settings:
    """Check what was asked for, all problems at once, and make the cluster's directory fresh."""
    check_name(name)
    problems = _problems(nodes, cores_per_node, memory, cpu_quota)
    owner = identify(owner_pid) if owner_pid is not None else None
    if owner_pid is not None and owner is None:
        problems.append(f"owner process {owner_pid} does not exist")
    if problems:
        raise ClusterError(f"cannot start cluster '{name}': " + "; ".join(problems))
    require_java()
    home = home or default_home()
    if (before := load(home, name)) is not None:
        if is_alive(before.supervisor):
            hint = f"'updraft cluster down --name {name}' ends it"
            raise ClusterError(f"cluster '{name}' is already running at {before.master_url}; {hint}")
        _clear(home, before)
    directory = (directory or home / "clusters" / name).absolute()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_leftovers(directory)
    return Settings(
        name=name,
        cluster_id=uuid.uuid4().hex,
        home=home,
        directory=directory,
        nodes=nodes,
        cores_per_node=cores_per_node,
        memory=memory,
        start_timeout_s=timeout_s,
        owner=owner,
        cpu_quota=cpu_quota,
        apart=apart,
        classes=classes,
    )


def down(name: str = "default", *, home: Path | None = None) -> bool:
    """End exactly the processes of this cluster; False if there was nothing to end."""
    home = home or default_home()
    record = load(home, name)
    if record is None:
        return False
    if send(record.supervisor, signal.SIGTERM) and wait_gone([record.supervisor], _STOP_S):
        # It hangs; the kernel takes its children along.
        send(record.supervisor, signal.SIGKILL)
    _clear(home, record)
    return True


def add_node(
    name: str = "default", *, cores: int = 1, memory: str = "2g", home: Path | None = None
) -> NodeStatus:
    """Start one more worker and wait until the master lists it."""
    if problems := _problems(1, cores, memory):
        raise ClusterError(f"cannot add a node to cluster '{name}': " + "; ".join(problems))
    home = home or default_home()
    reply = control.ask(_running(home, name).directory, {"do": "add", "cores": cores, "memory": memory})
    return next(node for node in status_of(_running(home, name)).nodes if node.name == reply["node"])


def remove_node(node: str, name: str = "default", *, home: Path | None = None) -> None:
    """End one worker and with it its executors."""
    control.ask(_running(home or default_home(), name).directory, {"do": "remove", "node": node})


class LocalCluster:
    """A cluster that a program holds for the time of a `with` block."""

    def __init__(self, name: str, home: Path, started: ClusterStatus) -> None:
        self.name = name
        self.home = home
        self.master_url = started.master_url
        self.directory = started.directory

    def status(self) -> ClusterStatus:
        now = status(self.name, home=self.home)
        if now is None:
            raise ClusterError(f"cluster '{self.name}' has ended")
        return now

    def add_node(self, *, cores: int = 1, memory: str = "2g") -> NodeStatus:
        return add_node(self.name, cores=cores, memory=memory, home=self.home)

    def remove_node(self, node: str) -> None:
        remove_node(node, self.name, home=self.home)


@contextmanager
def local_cluster(
    nodes: int,
    cores_per_node: int = 1,
    memory: str = "2g",
    directory: Path | None = None,
    *,
    cpu_quota: float | None = None,
    apart: bool = False,
    classes: Classes | None = None,
) -> Iterator[LocalCluster]:
    """A cluster for the time of the block; it ends with this process too, even by SIGKILL.

    Without a directory a temporary one is used and removed at the end.
    """
    home = (directory or Path(tempfile.mkdtemp(prefix="updraft-"))).absolute()
    name = f"local-{os.getpid()}"
    try:
        started = up(
            nodes,
            cores_per_node,
            memory,
            home / name,
            name=name,
            home=home,
            owner_pid=os.getpid(),
            cpu_quota=cpu_quota,
            apart=apart,
            classes=classes,
        )
        try:
            yield LocalCluster(name, home, started)
        finally:
            down(name, home=home)
    finally:
        if directory is None:
            shutil.rmtree(home, ignore_errors=True)


def quick_start(home: Path | None = None, say: Callable[[str], None] = lambda text: None) -> Classes | None:
    """The archive of Spark's classes that executors start from, made now if there is none yet; None: it cannot be made."""
    classes = classes_in(home or default_home())

    def run_on(archive: Path) -> str:
        with local_cluster(1, memory="1g", classes=classes) as small:
            return rehearse(small.master_url, archive)

    return classes if make_archive(classes.archive, run_on, say) else None


def _problems(nodes: int, cores: int, memory: str, cpu_quota: float | None = None) -> list[str]:
    checks = [
        (
            cpu_quota is None or LEAST_QUOTA <= cpu_quota <= cores,
            f"the CPU quota of a node must be between {LEAST_QUOTA} and its {cores} core(s), not {cpu_quota}",
        ),
        (nodes >= 1, f"nodes must be at least 1, not {nodes}"),
        (cores >= 1, f"cores per node must be at least 1, not {cores}"),
        (_MEMORY.fullmatch(memory) is not None, f"memory must look like 512m or 2g, not {memory!r}"),
    ]
    return [problem for fine, problem in checks if not fine]


def _await_ready(settings: Settings) -> ClusterStatus:
    # The supervisor writes its record first of all, and gives up by itself when Spark does not come up.
    appears_by = time.monotonic() + _APPEAR_S
    while True:
        record = load(settings.home, settings.name)
        ours = record is not None and record.cluster_id == settings.cluster_id
        match record:
            case Record(phase=Phase.READY) if ours:
                return status_of(record)
            case Record(phase=Phase.FAILED) if ours:
                forget(settings.home, settings.name)
                raise ClusterError(f"cluster '{settings.name}' did not start: {record.problem}")
            case Record() if ours and is_alive(record.supervisor):
                pass
            case _ if ours or time.monotonic() > appears_by:
                break
        time.sleep(_POLL_S)
    log = settings.directory / "supervisor.log"
    raise ClusterError(f"cluster '{settings.name}' did not start: its supervisor is gone; see {log}")


def _last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["no reason given"])[-1]


def _running(home: Path, name: str) -> Record:
    record = load(home, name)
    if record is None or not is_alive(record.supervisor):
        raise ClusterError(
            f"no cluster '{name}' is running: start it with 'updraft cluster up --name {name}'"
        )
    return record


def _clear(home: Path, record: Record) -> None:
    """End what a killed supervisor may have left and remove its record; logs stay for the reader."""
    named: list[ProcessId] = [node.process for node in record.nodes]
    end([*named, *([record.master] if record.master else [])])
    end(marked(daemons.CLUSTER_VARIABLE, record.cluster_id))
    for node in record.nodes:
        shutil.rmtree(node.directory / "local", ignore_errors=True)
    if any(node.cpu_quota is not None for node in record.nodes):
        from updraft.enforce import choose_enforcer

        choose_enforcer(lambda _: None)  # which removes the groups of processes that are no more
    forget(home, record.name)


def _remove_leftovers(directory: Path) -> None:
    """Logs and shuffle files of the cluster that used this directory before; nothing else is touched."""
    for path in directory.glob("node[0-9]*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
    for log in ("master.log", "supervisor.log"):
        (directory / log).unlink(missing_ok=True)
