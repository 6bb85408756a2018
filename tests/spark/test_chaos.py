"""One seed of `updraft chaos`, short: kills and other events on a real cluster, and every result exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.support import SHORT_LIVED_JVM

from updraft import cluster
from updraft.chaos import Settings, play

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_short_chaos_is_exact(tmp_path: Path, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED_JVM)
        with cluster.local_cluster(nodes=3, memory="1g") as running:
            done = play(running, tmp_path / "run", seed, Settings(replicas=2, events=4, files=400))
    assert len(done["events"]) == 4
    assert done["batches"] >= 8
