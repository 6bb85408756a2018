"""What is written down about a cluster comes back the same, and nonsense is refused with a remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from updraft.cluster.processes import ProcessId
from updraft.cluster.record import Node, Phase, Record, default_home, forget, load, names, record_path, save
from updraft.errors import ClusterError

NODE = Node(
    name="node1",
    process=ProcessId(pid=12, started=34),
    port=4001,
    cores=2,
    memory="2g",
    directory=Path("/c/node1"),
)
RECORD = Record(
    name="mine",
    cluster_id="abc",
    directory=Path("/c"),
    phase=Phase.READY,
    supervisor=ProcessId(pid=1, started=2),
    master=ProcessId(pid=3, started=4),
    master_url="spark://127.0.0.1:4000",
    ui_url="http://127.0.0.1:4002",
    nodes=(NODE,),
)


@pytest.mark.parametrize("record", [RECORD, replace(RECORD, master=None, nodes=(), phase=Phase.STARTING)])
def test_round_trip(tmp_path: Path, record: Record) -> None:
    save(tmp_path, record)
    assert load(tmp_path, "mine") == record
    assert names(tmp_path) == ("mine",)
    forget(tmp_path, "mine")
    forget(tmp_path, "mine")
    assert load(tmp_path, "mine") is None


def test_a_broken_record_names_the_file(tmp_path: Path) -> None:
    save(tmp_path, RECORD)
    record_path(tmp_path, "mine").write_text('{"name": "mine"')
    with pytest.raises(ClusterError, match=r"cannot read the cluster record .*mine\.json"):
        load(tmp_path, "mine")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "a b", "x" * 80])
def test_unsafe_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match="not allowed"):
        load(tmp_path, name)


def test_home_follows_the_environment() -> None:
    assert default_home({"UPDRAFT_HOME": "/u", "XDG_STATE_HOME": "/x"}) == Path("/u")
    assert default_home({"XDG_STATE_HOME": "/x"}) == Path("/x/updraft")
    assert default_home({}) == Path.home() / ".local/state/updraft"
