"""The process that owns a local cluster: starts master and workers, answers requests, ends them with itself.

Every child is started from this process's only thread and armed to die with it, so that a SIGKILL of the
supervisor takes master and workers along; executors end when their worker is gone, and Python workers when
their executor is gone.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from updraft.cluster import control, daemons
from updraft.cluster.processes import ProcessId, end, identify, is_alive, marked
from updraft.cluster.record import Node, Phase, Record, forget, record_path, save
from updraft.errors import ClusterError, UpdraftError

if TYPE_CHECKING:
    from updraft.enforce import Enforcer

_LOOP_S = 0.25
_POLL_S = 0.1
_PORT_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to start, and for whom: with an owner, the cluster ends when that process does."""

    name: str
    cluster_id: str
    home: Path
    directory: Path
    nodes: int
    cores_per_node: int
    memory: str
    start_timeout_s: float
    owner: ProcessId | None = None
    cpu_quota: float | None = None  # cores of each node, enforced by a cgroup of its own
    apart: bool = False  # each node has a loopback address of its own, so that it is another host to Spark
    classes: daemons.Classes | None = None  # from where executors load Spark's classes quickly


class Supervisor:
    """Holds the child processes of one cluster. `run` is its whole life."""

    def __init__(self, settings: Settings, on_ready: Callable[[Record], None] = lambda _: None) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._children: dict[ProcessId, subprocess.Popen[bytes]] = {}
        self._named = 0
        self._quotas: Enforcer | None = None
        self._stopping = False
        self._record = Record(
            name=settings.name,
            cluster_id=settings.cluster_id,
            directory=settings.directory,
            phase=Phase.STARTING,
            supervisor=_me(),
        )

    def run(self) -> None:
        """Start everything, serve until asked to stop, end everything; ClusterError if it cannot start."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        self._write()
        try:
            self._start()
            with control.listen(self._settings.directory) as server:
                self._write(phase=Phase.READY)
                self._on_ready(self._record)
                while self._wanted():
                    control.answer_one(server, self._handle, _LOOP_S)
                    self._reap()
        except ClusterError as error:
            self._end_children()
            # Asked to stop while starting: an ordinary end, not a failure.
            if not self._stopping:
                self._write(phase=Phase.FAILED, problem=str(error))
                raise
        finally:
            self._end_children()
            if self._record.phase is not Phase.FAILED:
                forget(self._settings.home, self._settings.name)

    def _start(self) -> None:
        env = daemons.environment(
            self._record.cluster_id, self._settings.directory, classes=self._settings.classes
        )
        if self._settings.cpu_quota is not None:
            self._quotas = self._limits()
        self._started(lambda: self._start_master(env))
        nodes = self._add_nodes(self._settings.nodes, self._settings.cores_per_node, self._settings.memory)
        self._write(nodes=nodes)

    def _start_master(self, env: dict[str, str]) -> bool:
        port, ui_port = daemons.free_port(), daemons.free_port()
        child = daemons.start_master(env, self._settings.directory, port=port, ui_port=ui_port)
        master = self._adopt(child)
        ui_url = f"http://{daemons.HOST}:{ui_port}"
        self._write(master=master, master_url=f"spark://{daemons.HOST}:{port}", ui_url=ui_url)
        return self._until(lambda: daemons.workers_seen(ui_url) is not None, [master])

    def _limits(self) -> Enforcer | None:
        """What limits nodes; None, and a warning in the record, where no cgroup can be written."""
        from updraft.enforce import Kind, choose_enforcer  # they need our processes

        reasons: list[str] = []
        chosen = choose_enforcer(reasons.append).enforcer
        if chosen.kind is not Kind.ACCOUNTING:
            return chosen
        self._write(
            warning=f"nodes are not limited to {self._settings.cpu_quota:g} cores: no cgroup can be written here "
            f"({'; '.join(reasons)})"
        )
        return None

    def _add_nodes(self, count: int, cores: int, memory: str) -> tuple[Node, ...]:
        """Start workers and wait until the master lists them; all of them or, on an error, none."""
        nodes: list[Node] = []

        def start_all() -> bool:
            self._end_nodes(nodes)
            nodes[:] = [self._start_worker(cores, memory) for _ in range(count)]
            ports = {node.port for node in nodes}
            return self._until(lambda: ports <= self._registered(), [node.process for node in nodes])

        try:
            self._started(start_all)
        except ClusterError:
            self._end_nodes(nodes)
            raise
        return tuple(nodes)

    def _start_worker(self, cores: int, memory: str) -> Node:
        self._named += 1
        name = f"node{self._named}"
        top = self._settings.directory
        port = daemons.free_port()
        child = daemons.start_worker(
            daemons.environment(self._record.cluster_id, top, name, self._settings.classes),
            top / name,
            master_url=self._record.master_url,
            port=port,
            cores=cores,
            memory=memory,
            host=daemons.host_of(self._named) if self._settings.apart else daemons.HOST,
        )
        process = self._adopt(child)
        quota = self._settings.cpu_quota
        if self._quotas is not None and quota is not None:
            self._quotas.open(name, quota)
            with suppress(UpdraftError):  # it ended at once, which is noticed elsewhere
                self._quotas.adopt(name, child.pid)
        return Node(
            name=name,
            process=process,
            port=port,
            cores=cores,
            memory=memory,
            directory=top / name,
            cpu_quota=None if self._quotas is None else quota,
        )

    def _started(self, attempt: Callable[[], bool]) -> None:
        """Try again with other ports if a process ends at once: somebody may have taken a port meanwhile."""
        for _ in range(_PORT_TRIES):
            named = self._named
            if attempt():
                return
            self._named = named
        raise ClusterError(
            f"Spark's processes end right after their start; see the logs in {self._settings.directory}"
        )

    def _until(self, ready: Callable[[], bool], needed: list[ProcessId]) -> bool:
        """Wait until ready; False if a needed process ended first."""
        deadline = time.monotonic() + self._settings.start_timeout_s
        while not ready():
            self._reap()
            if not self._wanted():
                raise ClusterError("stopped while starting")
            if not all(is_alive(process) for process in needed):
                return False
            if time.monotonic() > deadline:
                waited = f"{self._settings.start_timeout_s:g} s"
                raise ClusterError(f"not ready after {waited}; see the logs in {self._settings.directory}")
            time.sleep(_POLL_S)
        return True

    def _registered(self) -> set[int]:
        seen = daemons.workers_seen(self._record.ui_url) or ()
        return {worker.port for worker in seen if worker.alive}

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "add":
                (node,) = self._add_nodes(1, int(request["cores"]), str(request["memory"]))
                self._write(nodes=(*self._record.nodes, node))
                return {"node": node.name}
            case "remove":
                leaving = [node for node in self._record.nodes if node.name == request["node"]]
                if not leaving:
                    known = ", ".join(node.name for node in self._record.nodes) or "none"
                    raise ClusterError(
                        f"no node '{request['node']}' in cluster '{self._record.name}'; nodes: {known}"
                    )
                self._end_nodes(leaving)
                self._write(nodes=tuple(node for node in self._record.nodes if node not in leaving))
                return {"node": leaving[0].name}
            case other:
                raise ClusterError(f"the supervisor does not know '{other}'")

    def _wanted(self) -> bool:
        owner = self._settings.owner
        return not self._stopping and (owner is None or is_alive(owner))

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _adopt(self, child: subprocess.Popen[bytes]) -> ProcessId:
        # A child that ended at once is still there as our zombie; its name then only has to be unique.
        process = identify(child.pid) or ProcessId(pid=child.pid, started=-1)
        self._children[process] = child
        return process

    def _reap(self) -> None:
        self._children = {key: child for key, child in self._children.items() if child.poll() is None}

    def _end(self, processes: Iterable[ProcessId]) -> None:
        end(processes)
        self._reap()

    def _end_nodes(self, nodes: Iterable[Node]) -> None:
        leaving = list(nodes)
        self._end(node.process for node in leaving)
        for node in leaving:
            if self._quotas is not None:
                self._quotas.close(node.name)

    def _end_children(self) -> None:
        # Workers first: a worker that loses its master before its own end would try to reconnect.
        master = self._record.master
        self._end([process for process in self._children if process != master])
        self._end(list(self._children))
        end(p for p in marked(daemons.CLUSTER_VARIABLE, self._record.cluster_id) if p != _me())
        if self._quotas is not None:
            self._quotas.close_all()

    def _write(self, **changes: Any) -> None:
        self._record = replace(self._record, **changes)
        save(self._settings.home, self._record)


@contextmanager
def name_taken(settings: Settings) -> Iterator[None]:
    """Held while a supervisor lives, so that two cannot start a cluster of the same name at once.

    A fork inherits it; the daemons do not, since Python closes its files on exec.
    """
    path = record_path(settings.home, settings.name).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(f"cluster '{settings.name}' is already running or starting") from None
        yield


def _me() -> ProcessId:
    me = identify(os.getpid())
    assert me is not None, "/proc does not list this process"
    return me


def to_wire(settings: Settings) -> dict[str, Any]:
    return asdict(settings)


def from_wire(raw: dict[str, Any]) -> Settings:
    known = dict(raw)
    known["home"], known["directory"] = Path(raw["home"]), Path(raw["directory"])
    known["owner"] = ProcessId(**raw["owner"]) if raw["owner"] else None
    if found := raw["classes"]:
        known["classes"] = daemons.Classes(archive=Path(found["archive"]), conf=Path(found["conf"]))
    return Settings(**known)
