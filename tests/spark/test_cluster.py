"""A real standalone cluster on this machine: it works, changes size, and nothing of it survives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from updraft import cluster
from updraft.cluster.daemons import CLUSTER_VARIABLE
from updraft.cluster.executors import executors
from updraft.cluster.processes import ProcessId, marked, wait_gone
from updraft.cluster.record import load
from updraft.enforce import Kind, places
from updraft.errors import ClusterError

pytestmark = pytest.mark.cluster

# Sees every executor: tasks wait until all three are there, and each tells the node it runs on.
JOB = """
import os, sys, time
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master(sys.argv[1]).config("spark.executor.memory", "512m")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "60s").getOrCreate())
def where(rows):
    time.sleep(0.5)
    return [os.environ["UPDRAFT_NODE"]]
nodes = spark.sparkContext.parallelize(range(6), 6).mapPartitions(where).collect()
print("NODES", *sorted(set(nodes)), flush=True)
if len(sys.argv) > 2:
    time.sleep(120)
spark.stop()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in cluster.names(tmp_path):
        cluster.down(name, home=tmp_path)


def members(home: Path) -> tuple[ProcessId, ...]:
    record = load(home, "default")
    assert record is not None
    return marked(CLUSTER_VARIABLE, record.cluster_id)


def start_job(master_url: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", JOB, master_url, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def first_nodes(job: subprocess.Popen[str]) -> list[str]:
    assert job.stdout is not None
    return next(line.split()[1:] for line in job.stdout if line.startswith("NODES"))


def listens_beyond_loopback(pids: set[int]) -> list[str]:
    """Addresses on which these processes listen that are not 127.0.0.0/8 or ::1 (also as v4-mapped)."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(str(descriptor.readlink()))
            except FileNotFoundError:
                continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, state, inode = fields[1].split(":")[0], fields[3], fields[9]
            local = address[-8:] == "0100007F" or address == "00000000000000000000000001000000"
            if state == "0A" and f"socket:[{inode}]" in inodes and not local:
                found.append(fields[1])
    return found


def test_a_job_runs_on_every_node_and_a_killed_supervisor_takes_everything_along(home: Path) -> None:
    started = cluster.up(3, home=home)
    assert [(node.name, node.alive, node.registered) for node in started.nodes] == [
        ("node1", True, True),
        ("node2", True, True),
        ("node3", True, True),
    ]
    with pytest.raises(ClusterError, match="already running"):
        cluster.up(1, home=home)

    job = start_job(started.master_url, "stay")
    try:
        assert first_nodes(job) == ["node1", "node2", "node3"]
        busy = cluster.status(home=home)
        assert busy is not None
        assert [node.cores_used for node in busy.nodes] == [1, 1, 1]
        # master, 3 workers, 3 executors, and at least a Python daemon for each
        assert len(members(home)) >= 10
        assert listens_beyond_loopback({process.pid for process in members(home)}) == []

        os.kill(started.supervisor_pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while members(home) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert members(home) == ()
    finally:
        job.kill()
        job.wait()
        if job.stdout is not None:
            job.stdout.close()

    stale = cluster.status(home=home)
    assert stale is not None
    assert not stale.running
    assert cluster.down(home=home) is True
    assert cluster.down(home=home) is False
    assert cluster.status(home=home) is None


def test_nodes_join_and_leave() -> None:
    with cluster.local_cluster(nodes=1) as running:
        assert running.add_node().name == "node2"
        running.remove_node("node1")
        assert [(node.name, node.registered) for node in running.status().nodes] == [("node2", True)]
        with pytest.raises(ClusterError, match=r"no node 'node1' in cluster 'local-.*'; nodes: node2"):
            running.remove_node("node1")
        assert running.add_node().name == "node3"
        directory = running.directory
    assert not directory.exists()


def test_a_cluster_ends_with_its_owner_even_by_sigkill(home: Path) -> None:
    held = "import os, time; time.sleep(300)"
    owner = subprocess.Popen([sys.executable, "-c", held])
    try:
        cluster.up(1, home=home, owner_pid=owner.pid)
        before = members(home)
        assert len(before) >= 2
    finally:
        owner.kill()
        owner.wait()
    assert wait_gone(before, 10) == ()
    # The supervisor removes the record after its children are gone.
    deadline = time.monotonic() + 5
    while cluster.status(home=home) is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert cluster.status(home=home) is None


def test_nodes_with_a_cpu_quota_leave_no_group_behind(home: Path) -> None:
    place = next(
        iter(places(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())), None
    )
    started = cluster.up(1, home=home, cpu_quota=0.5)
    if started.warning or place is None:
        assert "not limited" in started.warning
        return
    mine = f"updraft-{started.supervisor_pid}-"
    (group,) = [found for found in place.cpu.iterdir() if found.name.startswith(mine)]
    members_file = "tasks" if place.kind is Kind.CGROUP_V1 else "cgroup.threads"
    assert str(started.nodes[0].pid) in (group / members_file).read_text().split()
    assert started.nodes[0].cpu_quota == 0.5
    cluster.down(home=home)
    assert not group.exists()


def test_executors_start_from_the_archive_of_spark_s_classes(home: Path) -> None:
    classes = cluster.quick_start(home)
    assert classes is not None, "no archive could be made"
    started = cluster.up(1, home=home, classes=classes)
    job = start_job(started.master_url, "stay")
    try:
        assert job.stdout is not None
        assert job.stdout.readline().startswith("NODES")
        (executor,) = executors("default", home).values()
        assert str(classes.archive) in Path(f"/proc/{executor.pid}/maps").read_text()
    finally:
        job.kill()
        job.wait()
