"""URL expansion: splitting and the cache, against a plain recomputation; parsing needs Spark (tests/spark)."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from updraft.apps import url_expansion
from updraft.apps.url_expansion import LINKS, SHORT, TWEETS, Convert, expected, generate, split
from updraft.testing import operator_harness


def tweets(path: Path) -> pa.Table:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return pa.Table.from_pylist(rows, schema=TWEETS)


def test_the_cache_equals_the_recomputation(tmp_path: Path) -> None:
    paths = generate(tmp_path, files=3, tweets_per_file=100, urls=40)
    harness = operator_harness(Convert(), LINKS, ["short"], tasks=8, parallelism=3)
    emitted = []
    for path in paths:
        emitted += harness.process(split(tweets(path))).to_pylist()
    truth = expected(paths)
    state = {row["short"]: (row["long"], row["uses"]) for row in harness.state().to_pylist()}
    assert state == truth
    assert len(emitted) == sum(uses for _, uses in truth.values())
    assert all(row["long"] == truth[row["short"]][0] for row in emitted)
    assert len({long for long, _ in truth.values()}) == len(truth)


def test_only_what_the_cache_lacks_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    real = url_expansion.look_up

    def counted(short: pa.Array) -> pa.Array:
        looked_up.extend(short.to_pylist())
        return real(short)

    monkeypatch.setattr(url_expansion, "look_up", counted)
    harness = operator_harness(Convert(), LINKS, ["short"], tasks=4, parallelism=1)
    for codes in ("aab", "abc", "cab"):
        harness.process([{"id": 1, "short": SHORT + code} for code in codes])
    assert sorted(looked_up) == [SHORT + code for code in "abc"]


def test_a_tweet_may_have_no_url_or_several() -> None:
    texts = ("no link", f"{SHORT}1 mid {SHORT}2", "", f"x{SHORT}3 https://other.org/4", f"end {SHORT}1")
    found = split(pa.table({"id": range(5), "text": texts}, schema=TWEETS))
    assert found.schema.equals(LINKS)
    assert found.to_pylist() == [
        {"id": 1, "short": f"{SHORT}1"},
        {"id": 1, "short": f"{SHORT}2"},
        {"id": 4, "short": f"{SHORT}1"},
    ]
    assert split(TWEETS.empty_table()).num_rows == 0


def test_input_is_seeded(tmp_path: Path) -> None:
    one, two, other = (
        generate(tmp_path / name, files=1, tweets_per_file=50, seed=seed)[0].read_bytes()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one == two != other
