from __future__ import annotations

import math
import os

import pytest

from updraft.enforce import SOURCE, EnforceError, Shares, check_shares, executor_process, group_of


def test_a_share_is_by_operator_and_the_source_has_a_name() -> None:
    shares = Shares(version=3, cores={"count": 0.4, SOURCE: 0.2})
    assert shares.of("count") == 0.4
    assert shares.of(None) == 0.2
    assert shares.of("rank") is None


def test_other_shares_are_another_version() -> None:
    assert Shares(version=3, cores={"count": 0.4}).changed({"count": 0.6}) == Shares(
        version=4, cores={"count": 0.6}
    )


def test_groups_of_runs_operators_and_instances_differ() -> None:
    names = {group_of(run, op, index) for run in ("a", "b") for op in ("count", None) for index in (0, 1)}
    assert len(names) == 8
    assert all(name.startswith(("a-", "b-")) for name in names)


def test_every_impossible_share_is_named() -> None:
    wrong = {"count": -0.5, "rank": math.nan, "nobody": 0.5, "split": True, "top": math.inf}
    with pytest.raises(EnforceError) as found:
        check_shares(wrong, ["count", "rank", "split", "top"])
    text = str(found.value)
    assert "'count': -0.5 cores is not possible" in text
    assert "'rank': nan cores is not possible" in text
    assert "'top': inf cores is not possible" in text
    assert "'split': True is not a number of cores" in text
    assert "no operator 'nobody' with instances; there are count, rank, source, split, top" in text


def test_good_shares_pass() -> None:
    check_shares({"count": 0.0, SOURCE: 1, "rank": 2.5}, ["count", "rank"])


def test_without_a_jvm_above_the_parent_owns_the_groups() -> None:
    owner = executor_process()
    assert owner.pid != os.getpid()
    assert owner.pid > 0
