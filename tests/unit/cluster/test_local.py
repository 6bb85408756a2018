"""What can be said of clusters without starting one: wrong requests, stale records, no supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from updraft import cluster
from updraft.cluster.processes import ProcessId, identify
from updraft.cluster.record import Node, Phase, Record, load, save
from updraft.cluster.supervisor import from_wire, name_taken, to_wire
from updraft.errors import ClusterError


def stale_record(directory: Path, worker: ProcessId) -> Record:
    gone = ProcessId(pid=os.getpid(), started=1)
    node = Node(name="node1", process=worker, port=1, cores=1, memory="1g", directory=directory / "node1")
    return Record(
        name="default",
        cluster_id="0" * 32,
        directory=directory,
        phase=Phase.READY,
        supervisor=gone,
        nodes=(node,),
    )


def test_all_wrong_numbers_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster.up(0, 0, "lots", home=tmp_path)
    for part in ("nodes must be at least 1", "cores per node must be at least 1", "memory must look like"):
        assert part in str(caught.value)


def test_no_cluster(tmp_path: Path) -> None:
    assert cluster.status(home=tmp_path) is None
    assert cluster.down(home=tmp_path) is False
    with pytest.raises(ClusterError, match="no cluster 'default' is running"):
        cluster.add_node(home=tmp_path)
    with pytest.raises(ClusterError, match="no cluster 'other' is running"):
        cluster.remove_node("node1", "other", home=tmp_path)


def test_a_reused_pid_makes_a_record_stale_and_down_spares_that_process(tmp_path: Path) -> None:
    innocent = ProcessId(pid=os.getpid(), started=2)
    save(tmp_path, stale_record(tmp_path, innocent))
    now = cluster.status(home=tmp_path)
    assert now is not None
    assert not now.running
    assert not now.nodes[0].alive
    assert cluster.down(home=tmp_path) is True
    assert load(tmp_path, "default") is None


def test_down_ends_a_worker_that_outlived_its_supervisor(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = identify(child.pid)
    assert process is not None
    save(tmp_path, stale_record(tmp_path, process))
    assert cluster.down(home=tmp_path) is True
    assert child.wait(5) == -15


def test_starting_clears_a_stale_record_and_only_the_old_cluster_s_files(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    (directory / "node1" / "work").mkdir(parents=True)
    (directory / "notes.txt").write_text("mine")
    save(tmp_path, stale_record(directory, ProcessId(pid=os.getpid(), started=2)))
    settings = cluster.prepare(1, directory=directory, home=tmp_path, owner_pid=os.getpid())
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]
    assert load(tmp_path, "default") is None
    assert from_wire(to_wire(settings)) == settings


def test_a_name_can_be_taken_once(tmp_path: Path) -> None:
    settings = cluster.prepare(1, home=tmp_path)
    with (
        name_taken(settings),
        pytest.raises(ClusterError, match="already running or starting"),
        name_taken(settings),
    ):
        pass
    with name_taken(settings):
        pass
