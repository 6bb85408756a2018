from __future__ import annotations

import pytest
from tests.unit.policy.world import operator

from updraft.policy import InvalidSettings, Settings, Stability, check


def test_defaults_are_good() -> None:
    check(Settings())


def test_all_problems_at_once() -> None:
    wrong = Settings(
        scale_out=0.5,
        scale_in=0.3,
        core_min=0.7,
        min_workers=3,
        max_workers=2,
        phi=1,
        min_parallelism={"a": 4},
        max_parallelism={"a": 2},
        stability=Stability(tolerance=1.0, settle_s=200.0),
    )
    with pytest.raises(InvalidSettings) as caught:
        check(wrong)
    text = str(caught.value)
    for part in (
        "no stability gap: scale_out = 0.5 must be more than 2 × scale_in + stability_gap = 0.7",
        "core_min = 0.7 must be less than core_max = 0.65",
        "max_workers = 2 is less than min_workers = 3",
        "phi = 1",
        "operator 'a': max_parallelism = 2 is less than min_parallelism = 4",
        "stability.tolerance = 1.0",
        "stability.cooldown_s = 120.0 is less than stability.settle_s = 200.0",
    ):
        assert part in text
    assert len(caught.value.problems) == 7


def test_gap_is_strict() -> None:
    check(Settings(scale_out=0.7, scale_in=0.29, stability_gap=0.1))
    with pytest.raises(InvalidSettings, match="no stability gap"):
        check(Settings(scale_out=0.5, scale_in=0.2, stability_gap=0.1))


def test_bounds_are_checked_against_the_topology() -> None:
    with pytest.raises(InvalidSettings) as caught:
        check(Settings(min_parallelism={"a": 8, "ghost": 2}), [operator("a", 1, highest=4)])
    assert len(caught.value.problems) == 2
    assert "operator 'ghost', which has no instances; those that have: a" in str(caught.value)
    assert "operator 'a': at least 8 but at most 4 instances contradict" in str(caught.value)
