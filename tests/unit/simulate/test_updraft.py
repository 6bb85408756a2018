"""Our own policy on the virtual cluster, against those of the papers: best or within 5 % of the best on both figures."""

from __future__ import annotations

import pytest

from updraft.policy.registry import policy
from updraft.simulate.applications import TOP_K
from updraft.simulate.loads import load
from updraft.simulate.run import Result, Trial, simulate

OTHERS = ("threshold", "joint", "symbiotic")


def result(name: str, shape: str) -> Result:
    return simulate(Trial(application=TOP_K, load=load(shape, noise=0.05), policy=policy(name), seed=4))


@pytest.mark.parametrize("shape", ["step"])
def test_updraft_is_best_or_close_to_it(shape: str) -> None:
    ours = result("updraft", shape)
    others = [result(name, shape) for name in OTHERS]
    assert ours.degradation <= 1.05 * min(other.degradation for other in others)
    assert ours.nodes_saved >= 0.95 * max(other.nodes_saved for other in others)
