from __future__ import annotations

from dataclasses import replace

import pytest

from updraft.policy import Settings, policy
from updraft.policy.tuning import TuningError, tune
from updraft.simulate import TOP_K, Trial, load, simulate

PAPER = {
    0.60: 0.07,
    0.65: 0.08,
    0.70: 0.08,
    0.75: 0.09,
    0.80: 0.09,
    0.85: 0.20,
    0.90: 0.47,
}  # from Table 1: threshold − reward


def test_finds_what_the_paper_found() -> None:
    found = tune(lambda threshold: PAPER[threshold], seed=1, grid=sorted(PAPER))
    assert found.best == 0.8
    assert found.reward[0.8] == pytest.approx(0.71)


@pytest.mark.parametrize("seed", range(10))
def test_finds_it_from_any_start(seed: int) -> None:
    assert tune(lambda threshold: PAPER[threshold], seed=seed, grid=sorted(PAPER), episodes=100).best == 0.8


def test_every_threshold_is_run_once() -> None:
    tried: list[float] = []

    def trial(threshold: float) -> float:
        tried.append(threshold)
        return PAPER[threshold]

    tune(trial, seed=1, grid=sorted(PAPER))
    assert len(tried) == len(set(tried))


def test_on_the_virtual_cluster() -> None:
    def degradation(threshold: float) -> float:
        settings = replace(Settings(), core_max=threshold)
        trial = Trial(
            application=TOP_K,
            load=load("sine", seconds=300.0),
            policy=policy("symbiotic"),
            settings=settings,
        )
        return simulate(trial).degradation

    found = tune(degradation, seed=2, grid=(0.35, 0.65, 0.95), episodes=12)
    assert found.best in found.reward
    assert found.reward[found.best] == max(found.reward.values())


@pytest.mark.parametrize("grid", [(0.5,), (0.6, 0.5), (0.5, 0.5)])
def test_bad_grids(grid: tuple[float, ...]) -> None:
    with pytest.raises(TuningError):
        tune(lambda threshold: 0.0, seed=1, grid=grid)
