"""What can be wrong with the options that steer a run is said before it starts, all at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from updraft.apps.timeline import Lag
from updraft.errors import UpdraftError
from updraft.policy import InvalidSettings, Settings
from updraft.policy.settings import settings_from
from updraft.predict.network import train
from updraft.profile import Profile
from updraft.runtime.lifecycle import RunOptions
from updraft.runtime.steered import SteerOptions, backlog_of, both
from updraft.topology import Topology


def test_good_options_have_no_problems() -> None:
    assert SteerOptions().problems() == []
    found = SteerOptions(policy="symbiotic", min_workers=2, max_workers=4, settings={"core_max": 0.6})
    assert found.problems() == []
    assert found.steers
    assert found.loop_options().settings.max_workers == 4
    assert found.loop_options().settings.core_max == 0.6


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"policy": "clever"}, "there is no policy 'clever'"),
        ({"mode": "maybe"}, "mode='maybe'"),
        ({"min_workers": 5, "max_workers": 2}, "min_workers"),
        ({"settings": {"scale_in": 0.5}}, "no stability gap"),
        ({"settings": {"nonsense": 1}}, "there is no setting 'nonsense'"),
        ({"settings": {"stability.cooldown_s": -1}}, "cooldown_s"),
        ({"settings": {"hands_off_s": -1}}, "hands_off_s = -1"),
        ({"settings": {"hands_off_s": 1e9}}, "hands_off_s"),
        ({"settings": {"keep_workers": True}, "max_workers": 3}, "leave one of them out"),
        ({"period_s": 0}, "period_s"),
        ({"price_per_worker_hour": -1.0}, "price_per_worker_hour"),
        ({"workers": 0}, "workers=0"),
        ({"forecast": "crystal"}, "forecast='crystal'"),
        ({"history": "/no/such/run"}, "history='/no/such/run'"),
    ],
)
def test_each_problem_is_named(options: dict[str, Any], problem: str) -> None:
    found = SteerOptions(**{"policy": "symbiotic", **options}).problems()
    assert any(problem in one for one in found), found


def test_our_own_policy_steers_streams_unless_somebody_chooses_another_one() -> None:
    assert SteerOptions().policy_found().name == "updraft"
    assert SteerOptions(mode="advise").policy_found().name == "updraft"
    assert SteerOptions(policy="symbiotic").policy_found().name == "symbiotic"
    assert not SteerOptions(policy="static").steers


@pytest.mark.parametrize("options", [{"streams": False}, {"monitor": False}])
def test_without_a_stream_or_without_looking_nobody_steers_unless_asked_to(options: dict[str, Any]) -> None:
    assert not SteerOptions(**options).steers
    assert SteerOptions(policy="updraft", **options).steers


def test_without_a_choice_workers_are_the_clusters() -> None:
    found = SteerOptions()
    assert found.settings_found(3, begun_with=2).keep_workers
    assert not found.sizes
    assert SteerOptions(settings={"core_max": 0.6}).settings_found(1, 2).keep_workers
    # Whoever names a policy, or says how many there may be, lets it decide on workers.
    chosen = SteerOptions(policy="updraft")
    assert chosen.sizes
    assert not chosen.settings_found(1, 2).keep_workers
    assert chosen.settings_found(1, 2).max_workers is None
    assert not SteerOptions(policy="static").sizes


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        ({"workers": 3}, 1, 3),
        ({"min_workers": 1}, 1, 3),
        ({"min_workers": 2}, 2, 3),
        ({"min_workers": 5}, 5, 5),
        ({"max_workers": 4}, 1, 4),
        ({"min_workers": 2, "max_workers": 4}, 2, 4),
        ({"settings": {"max_workers": 4}}, 1, 4),
        ({"settings": {"min_workers": 2}}, 2, 3),
    ],
)
def test_without_a_choice_there_are_never_more_workers_than_at_the_start(
    options: dict[str, Any], least: int, most: int
) -> None:
    found = SteerOptions(**options)
    settings = found.settings_found(1, begun_with=3)
    assert found.sizes
    assert not settings.keep_workers
    assert (settings.min_workers, settings.max_workers) == (least, most)
    assert found.problems() == []


def test_copies_ask_for_no_more_workers_than_at_the_start() -> None:
    settings = SteerOptions(workers=2).settings_found(3, begun_with=2)
    assert (settings.min_workers, settings.max_workers) == (2, 2)


def test_all_problems_are_named_at_once() -> None:
    found = SteerOptions(policy="symbiotic", mode="x", period_s=-1, settings={"core_min": 0.9}).problems()
    assert len(found) >= 3


def test_settings_by_name() -> None:
    found = settings_from({"theta": 0.1, "stability.rounds": 3})
    assert (found.theta, found.stability.rounds) == (0.1, 3)
    assert settings_from({}) == Settings()
    with pytest.raises(InvalidSettings, match="2 problem"):
        settings_from({"a": 1, "stability.b": 2})


def test_copies_keep_their_workers_unless_the_user_says_otherwise() -> None:
    assert SteerOptions(policy="updraft").settings_found(3).min_workers == 3
    assert SteerOptions(policy="updraft", max_workers=2).settings_found(3).min_workers == 2
    assert SteerOptions(policy="updraft", min_workers=1).settings_found(3).min_workers == 1
    assert SteerOptions(policy="updraft", settings={"min_workers": 4}).settings_found(3).min_workers == 4


@pytest.mark.parametrize("policy", [None, "static"])
def test_a_fixed_plan_has_no_policy(policy: str | None) -> None:
    assert RunOptions(fixed_plan=True, steer=SteerOptions(policy=policy, streams=False)).problems() == []


def test_the_backlog_is_known_if_every_source_knows_it() -> None:
    class Loaded:
        def frame(self, spark: object) -> object:
            return spark

        def lag(self) -> Lag | None:
            return Lag(scheduled_events=10, delivered_events=4, behind_s=1.0)

    app = Topology("one")
    app.source("known", Loaded().frame)
    assert backlog_of(app)() == 6
    app.source("unknown", lambda spark: spark)
    assert backlog_of(app)() is None
    assert backlog_of(Topology("none"))() is None


def test_two_are_told_of_every_batch() -> None:
    seen: list[Any] = []
    both(seen.append, seen.append)(SimpleNamespace(batch_id=1))  # type: ignore[arg-type]
    assert len(seen) == 2


def test_a_problem_stops_the_run_before_spark_starts() -> None:
    import updraft as ud

    with pytest.raises(UpdraftError, match="there is no policy 'clever'"):
        ud.run(Topology("empty"), policy="clever")
    with pytest.raises(
        UpdraftError, match="fixed_plan=True and policy 'symbiotic' exclude each other; give one"
    ):
        ud.run(Topology("empty"), policy="symbiotic", fixed_plan=True)
    with pytest.raises(UpdraftError, match="two topologies are named 'x'"):
        ud.run_all([Topology("x"), Topology("x")], checkpoint="nowhere", each={"y": {}})


def test_a_profile_forecasts_where_its_slots_are_the_periods(caplog: pytest.LogCaptureFixture) -> None:
    network = train(np.arange(12.0).reshape(6, 2), np.arange(6.0)[:, None], neurons=2, seed=1)
    profile = Profile(
        topology="app", operators=(), selectivity={}, instance={}, input_load=network, slot_s=5.0
    )
    same = SteerOptions(policy="symbiotic", period_s=5.0, settings=Settings(profile=profile))
    assert same.loop_options().network is network
    other = SteerOptions(policy="symbiotic", period_s=10.0, settings=Settings(profile=profile))
    assert other.loop_options().network is None
    assert "profile with --slot 10" in caplog.text
    assert SteerOptions(policy="symbiotic").loop_options().network is None
