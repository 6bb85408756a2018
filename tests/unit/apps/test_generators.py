"""Every generator: any part of it can be made alone, and its rows look as its description says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.apps.generators.ads import Ads
from updraft.apps.generators.draws import Draws, Generator
from updraft.apps.generators.nexmark import AUCTION, BID, PERSON, Nexmark
from updraft.apps.generators.requests import Requests, address_table
from updraft.apps.generators.transactions import Transactions
from updraft.apps.generators.tweets import Tweets
from updraft.apps.lexicon import scores, stop_words

GENERATORS = [
    Ads(seed=3),
    Nexmark(seed=3),
    Requests(seed=3),
    Transactions(seed=3),
    Tweets(seed=3),
    Tweets(seed=3, mood_share=0.2),
]
SIZE = 4_000
AT_US = 1_700_000_000_000_000 + np.arange(SIZE, dtype=np.int64) * 50_000


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, SIZE), st.integers(0, 300))
def test_a_part_is_the_same_when_made_alone(generator: Generator, first: int, size: int) -> None:
    end = min(first + size, SIZE)
    whole = generator.rows(0, AT_US)
    part = generator.rows(first, AT_US[first:end])
    assert part.schema == generator.schema
    assert part.equals(whole.slice(first, end - first).combine_chunks())


@pytest.mark.parametrize("kind", [Ads, Nexmark, Requests, Transactions, Tweets])
def test_seeds_differ_and_far_rows_exist(kind: type) -> None:
    assert not kind(seed=1).rows(0, AT_US).equals(kind(seed=2).rows(0, AT_US))
    assert kind(seed=1).rows(10**12, AT_US[:5]).num_rows == 5


def test_draws_are_even_and_lanes_are_independent() -> None:
    rows = np.arange(200_000, dtype=np.int64)
    one, other = Draws(5).uniform("a", rows), Draws(5).uniform("b", rows)
    assert one.min() >= 0
    assert one.max() < 1
    assert np.histogram(one, 20, (0, 1))[0] == pytest.approx(np.full(20, 10_000), rel=0.05)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.01
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.01
    drawn = Draws(5).integers("c", rows, 3, 7)
    assert sorted(set(drawn.tolist())) == [3, 4, 5, 6]


def test_nexmark_keeps_its_proportions() -> None:
    events = Nexmark(seed=3).rows(0, AT_US)
    kinds = Counter(events["kind"].to_pylist())
    assert kinds == {PERSON: SIZE // 50, AUCTION: SIZE // 50 * 3, BID: SIZE // 50 * 46}
    persons = events.filter(pc.equal(events["kind"], PERSON))
    auctions = events.filter(pc.equal(events["kind"], AUCTION))
    bids = events.filter(pc.equal(events["kind"], BID))
    assert persons["id"].to_pylist() == list(range(1_000, 1_000 + SIZE // 50))
    assert auctions["id"].to_pylist() == list(range(1_000, 1_000 + SIZE // 50 * 3))
    assert persons["price"].null_count == len(persons)
    assert bids["name"].null_count == len(bids)
    assert pc.min(bids["price"]).as_py() >= 100
    assert pc.max(bids["price"]).as_py() <= 100_000_000
    assert pc.all(pc.greater(auctions["expires"], auctions["ts"])).as_py()
    assert set(auctions["category"].to_pylist()) == {10, 11, 12, 13, 14}
    hottest = bids.group_by("auction").aggregate([("price", "count")]).sort_by("price_count")["price_count"]
    assert hottest[-1].as_py() > 20 * np.median(hottest.to_numpy())


def test_bids_are_for_known_auctions_or_the_next_few() -> None:
    events = Nexmark(seed=3).rows(0, AT_US)
    newest = np.maximum.accumulate(
        np.where(
            pc.equal(events["kind"], AUCTION).to_numpy(), pc.fill_null(events["id"], 0).to_numpy(), 1_000
        )
    )
    ahead = pc.subtract(events["auction"], pa.array(newest)).drop_null().to_numpy()
    assert 0 < ahead.max() <= 10


def test_transactions_are_sets_and_planted_patterns_occur() -> None:
    generator = Transactions(seed=3)
    items = generator.rows(0, AT_US)["items"].to_pylist()
    assert all(row == sorted(set(row)) and 1 <= len(row) <= 8 for row in items)
    planted = [frozenset(int(item) for item in row if item >= 0) for row in generator.patterns()]
    found = sum(any(pattern <= set(row) for pattern in planted) for row in items)
    assert found == pytest.approx(0.3 * SIZE, rel=0.15)


def test_requests_surge_and_fall_silent_in_time_of_trouble() -> None:
    seconds = np.arange(40_000) / 400  # one period of trouble, which is its last fifth
    at_us = 1_700_000_000_000_000 + (seconds * 1e6).astype(np.int64)
    rows = Requests(seed=3, trouble_s=100).rows(0, at_us)
    prefix = np.array([".".join(text.split(".")[:2]) for text in rows["destination"].to_pylist()])
    calm, trouble = prefix[seconds < 80], prefix[seconds >= 80]
    shares = {name: (float((calm == name).mean()), float((trouble == name).mean())) for name in set(prefix)}
    assert max(during - before for before, during in shares.values()) > 0.2
    silenced = [name for name, (before, during) in shares.items() if before > 0.005 and during == 0]
    assert len(silenced) == 1


def test_every_prefix_has_one_owner() -> None:
    table = address_table(3)
    owner = table.ranges_of(np.arange(1 << 16))
    assert owner.min() == 0
    assert sorted(set(owner.tolist())) == list(range(len(table.starts)))
    assert (np.diff(owner) >= 0).all()


def test_every_ad_has_a_campaign() -> None:
    generator = Ads(seed=3)
    campaigns = generator.campaign_table()
    assert campaigns.num_rows == 1_000
    assert len(pc.unique(campaigns["campaign_id"])) == 100
    rows = generator.rows(0, AT_US)
    assert pc.all(pc.is_in(rows["ad_id"], campaigns["ad_id"].combine_chunks())).as_py()
    assert rows.filter(pc.equal(rows["event_type"], "view")).num_rows == pytest.approx(SIZE / 3, rel=0.1)


def test_tweets_have_stop_words_trends_and_moods() -> None:
    texts = [text.split(" ") for text in Tweets(seed=3, mood_share=0.2).rows(0, AT_US)["text"].to_pylist()]
    assert {len(words) for words in texts} == set(range(4, 15))
    words = [word for text in texts for word in text]
    assert sum(word in set(stop_words()) for word in words) > 0.05 * len(words)
    assert sum(word in scores() for word in words) > 0.15 * len(words)


def test_the_lexicons_are_what_they_are_said_to_be() -> None:
    assert scores()["outstanding"] == 5
    assert scores()["bad"] < 0
    assert {"the", "is", "don"} <= set(stop_words())
    assert len(scores()) > 2_000
