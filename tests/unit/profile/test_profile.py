from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from updraft.monitor import BatchMetrics, OperatorShape
from updraft.policy import Settings, policy
from updraft.profile import Kind, ProfileError, fit_curve, learn, load, save
from updraft.simulate import TOP_K, Trial, simulate
from updraft.simulate import load as shape_of_load


@pytest.fixture(scope="module")
def measured() -> tuple[BatchMetrics, ...]:
    """Half an hour of a varying load (as in paper 5), CPU measured with an error of 5 % per instance and batch."""
    run = simulate(
        Trial(application=TOP_K, load=shape_of_load("stair", noise=0.1), policy=policy("symbiotic"), seed=3)
    )
    rng = np.random.default_rng(3)
    return tuple(
        replace(
            b,
            instances=tuple(replace(w, cpu_s=w.cpu_s * float(rng.uniform(0.95, 1.05))) for w in b.instances),
        )
        for b in run.batches
    )


def test_what_was_learnt_is_what_is_true(measured: tuple[BatchMetrics, ...]) -> None:
    profile, accuracy = learn(measured, TOP_K.shape, seed=1)
    assert accuracy.mean is not None
    assert accuracy.mean < 0.03  # the paper's figure
    assert accuracy.total is not None
    assert accuracy.weighted is not None
    assert accuracy.total <= accuracy.weighted < 0.03
    assert accuracy.drift is not None
    assert accuracy.drift <= accuracy.weighted
    assert profile.selectivity["split", "count"].mean == pytest.approx(4.0, rel=0.02)
    assert profile.selectivity["lines", "split"].mean == pytest.approx(1.0, rel=0.02)
    assert profile.instance_cores("split", 100.0) == pytest.approx(0.09, rel=0.05)
    # 5 % and a constant 0.05 cores on top of the instances
    assert profile.worker_cores(1.0) == pytest.approx(1.1, rel=0.05)
    assert profile.operator_rates(100.0)["rank"] == pytest.approx(40.0, rel=0.05)
    assert profile.input_load is not None


def test_same_seed_same_profile(measured: tuple[BatchMetrics, ...]) -> None:
    few = measured[:600]
    assert learn(few, TOP_K.shape, seed=1, networks=False) == learn(few, TOP_K.shape, seed=1, networks=False)


def test_profile_replaces_measuring_in_a_policy(measured: tuple[BatchMetrics, ...]) -> None:
    profile, _ = learn(measured, TOP_K.shape, seed=1, networks=False)
    trial = Trial(
        application=TOP_K,
        load=shape_of_load("step", seconds=600.0),
        policy=policy("symbiotic"),
        settings=Settings(profile=profile),
    )
    found = simulate(trial)
    assert found.degradation < 0.15
    assert found.changes <= 4


def test_file_is_read_back_and_holds_no_code(measured: tuple[BatchMetrics, ...], tmp_path: Path) -> None:
    profile, _ = learn(measured[:700], TOP_K.shape, seed=1)
    path = tmp_path / "topk.json"
    save(profile, path)
    assert load(path, TOP_K.shape) == profile
    assert json.loads(path.read_text())["topology"] == "topk"
    assert [p.name for p in tmp_path.iterdir()] == ["topk.json"]


def test_profile_of_another_topology_is_refused_with_all_reasons(
    measured: tuple[BatchMetrics, ...], tmp_path: Path
) -> None:
    profile, _ = learn(measured[:700], TOP_K.shape, seed=1, networks=False)
    path = tmp_path / "topk.json"
    save(profile, path)
    other = replace(
        TOP_K.shape,
        topology="words",
        operators=(*TOP_K.shape.operators[:2], OperatorShape(name="top", inputs=("split",))),
    )
    with pytest.raises(ProfileError) as caught:
        load(path, other)
    text = str(caught.value)
    assert "it is of topology 'topk', not 'words'" in text
    assert "it knows operators count, rank, split, the topology has count, split, top" in text
    assert "streams differ: count → rank, split → top" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("{}", "no format number"),
        ('{"format": 99}', "format 99, newer than format 1"),
        ('{"format": 1, "topology": "x"}', "is not a profile"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=message):
        load(path)


def test_missing_file_and_too_little_to_learn_from(
    measured: tuple[BatchMetrics, ...], tmp_path: Path
) -> None:
    with pytest.raises(ProfileError, match="there is no profile"):
        load(tmp_path / "none.json")
    with pytest.raises(ProfileError, match="too few to learn"):
        learn(measured[:20], TOP_K.shape, seed=1)


def test_line_wins_where_the_truth_is_a_line(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1000, 200)
    found = fit_curve(x.tolist(), (0.02 + 0.0005 * x * rng.uniform(0.97, 1.03, 200)).tolist(), seed=1)
    assert found.kind is Kind.LINE
    assert found(2000.0) == pytest.approx(1.02, rel=0.05)
    assert found.error is not None
    assert found.error < 0.03


def test_network_wins_where_the_truth_bends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(10, 1000, 300)
    y = 0.1 + 0.0002 * x + 0.4 / (1 + np.exp(-(x - 500) / 60))  # a cache that overflows
    found = fit_curve(x.tolist(), y.tolist(), seed=1)
    assert found.kind is Kind.NETWORK
    assert found.error is not None
    assert found.other_error is not None
    assert found.error < 0.03 < found.other_error
    # Beyond what was measured it goes on rising.
    assert found(2000.0) > found(1000.0)


def test_more_rows_never_cost_less() -> None:
    found = fit_curve([1.0, 2.0, 3.0], [0.3, 0.2, 0.1], seed=1)
    assert found.slope == 0.0
    assert found(10.0) == pytest.approx(0.2)
    assert fit_curve([], [], seed=1)(5.0) == 0.0
