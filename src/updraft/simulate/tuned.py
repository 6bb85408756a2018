"""A threshold found by Q-learning whose episodes are runs of the virtual cluster."""

from __future__ import annotations

from dataclasses import replace

from updraft.errors import UpdraftError
from updraft.policy.registry import policy as policy_named
from updraft.policy.settings import Settings
from updraft.policy.tuning import GRID, Tuning, tune
from updraft.simulate.applications import FPD, SENTIMENT, TOP_K
from updraft.simulate.loads import load as load_named
from updraft.simulate.run import Trial, simulate

THRESHOLDS = ("cpu_max", "core_max", "scale_out")
_APPLICATIONS = {application.name: application for application in (TOP_K, SENTIMENT, FPD)}


def tuned(app: str, load: str, policy: str, threshold: str, *, episodes: int, seed: int) -> Tuning:
    """The best value of one threshold for an application under a load."""
    if app not in _APPLICATIONS:
        raise UpdraftError(f"there is no application '{app}'; there are: {', '.join(sorted(_APPLICATIONS))}")
    if threshold not in THRESHOLDS:
        raise UpdraftError(f"there is no threshold '{threshold}'; there are: {', '.join(THRESHOLDS)}")
    trial = Trial(
        application=_APPLICATIONS[app],
        load=load_named(load, noise=0.05),
        policy=policy_named(policy),
        seed=seed,
    )

    def degradation(value: float) -> float:
        settings = replace(Settings(), **{threshold: value})  # type: ignore[arg-type]
        return simulate(replace(trial, settings=settings)).degradation

    return tune(degradation, seed=seed, grid=GRID, episodes=episodes)
