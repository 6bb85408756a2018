"""Two nodes with addresses of their own: policy `online` moves an instance, `place` brings all together; groups everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spark.support import SHORT_LIVED_JVM

from updraft import cluster
from updraft.bench.place import recounted, write_lines
from updraft.bench.place_side import moves_of
from updraft.bench.side import run_side
from updraft.enforce import own_places

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


def groups() -> set[str]:
    parents = {parent for place in own_places() for parent in (place.cpu, place.account)}
    return {found.name for parent in parents if parent.is_dir() for found in parent.glob("updraft-*")}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, seed: int) -> dict[str, Any]:
    """Both sides of `bench place`, small; `online` ends with its first move, however long that takes."""
    directory = tmp_path_factory.mktemp("placed")
    truth = write_lines(directory / "lines", files=300, seed=seed, lines=50)
    before = groups()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED_JVM)
        with cluster.local_cluster(nodes=2, apart=True) as running:
            request = {
                "master": running.master_url,
                "input": str(directory / "lines"),
                "operator": "count",
                "split": 2,
                "count": 4,
                "batches": 290,
                "traffic_batches": 12,
                "period_s": 0.5,
                "until_moves": 1,
                "enforce": True,
            }
            found = run_side(
                "updraft.bench.place_side:communication", request, scratch=directory, timeout_s=250
            )
        left = groups() - before
    return {**found, "truth": truth, "left": left}


def test_online_moves_an_instance_and_every_word_is_counted_once(told: dict[str, Any]) -> None:
    online = told["online"]
    assert online["counts"] == recounted(told["truth"], online["last_batch"])
    assert moves_of(online["decisions"]) >= 1
    (first, *_) = [one for one in online["decisions"] if one["fate"] == "done" and one["changes"]]
    assert first["policy"] == "online"
    assert "worker" in first["changes"][0]
    assert first["change_ids"]


def test_place_by_traffic_leaves_nothing_between_nodes(told: dict[str, Any]) -> None:
    traffic = told["traffic"]
    assert traffic["counts"] == recounted(told["truth"], traffic["last_batch"])
    first, last = traffic["batches"][0], traffic["batches"][-1]
    assert first["crossing"] > 0
    assert last["plan"] > first["plan"]
    assert (last["crossing"], last["inside"] > 0) == (0, True)


def test_instances_on_a_cluster_work_in_groups_and_none_is_left(told: dict[str, Any]) -> None:
    batches = told["traffic"]["batches"]
    if any(batch["unenforced"] for batch in batches):
        pytest.skip(f"no cgroups here: {batches[0]['unenforced']}")
    assert all(batch["in_groups"] == 1 for batch in batches)
    assert told["left"] == set()
