"""The applications' own functions, chained by hand over many seeds, against their plain recomputations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from updraft.apps import fpd, http_monitor, nexmark, nexmark_oracle, sentiment, topk_words, yahoo
from updraft.apps.generators.ads import Ads
from updraft.apps.generators.draws import TIME, Generator
from updraft.apps.generators.nexmark import AUCTION, Nexmark
from updraft.apps.generators.requests import Requests
from updraft.apps.generators.transactions import Transactions
from updraft.apps.generators.tweets import Tweets
from updraft.apps.lexicon import scores, stop_words
from updraft.apps.schedules import BadSchedule
from updraft.apps.source import Load
from updraft.apps.windows import Windows, tumbling
from updraft.testing import operator_harness

SEEDS = range(20)
START_MS = 1_700_000_000_000


def load(generator: Generator, schedule: str, seed: int = 0) -> Load:
    # Another start for every seed: windows must not be right by accident of where they begin.
    return Load(generator=generator, schedule=schedule, paced=False, start_ms=START_MS + 3_333 * seed)


def seconds(value: datetime) -> int:
    return int(value.timestamp())


def grouped(rows: pa.Table, keys: list[str], *aggregates: tuple[Any, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.group_by(keys).aggregate(list(aggregates)).to_pylist()
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_frequent_patterns(seed: int) -> None:
    rows = load(Transactions(seed=seed, items=200, fashion_s=9), "constant:30/12s", seed).all_rows()
    made = Windows(8, 4)(fpd.Candidates()(rows))
    counts = made.group_by(["window_start", "pattern"]).aggregate([([], "count_all")])
    counts = counts.rename_columns(["window_start", "pattern", "count"])
    reported = fpd.report(counts.filter(fpd.Frequent(6)(counts))).to_pylist()
    got = {(seconds(row["window_start"]), row["pattern"]): row["count"] for row in reported}
    assert got == fpd.expected(rows, support=6, size_s=8, slide_s=4)
    assert got


def test_transactions_too_small_for_a_pattern() -> None:
    rows = pa.table(
        [[datetime(2024, 3, 31, tzinfo=UTC)] * 4, [1, 2, 3, 4], [[], [5], None, [5, 9]]],
        schema=Transactions.schema,
    )
    found = fpd.Candidates()(rows)
    assert found["pattern"].to_pylist() == [(6 << 21) | 10]
    assert fpd.Candidates()(rows.slice(0, 3)).num_rows == 0
    assert fpd.Candidates()(rows.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_http_monitor(seed: int) -> None:
    rows = load(Requests(seed=seed, sites=60, trouble_s=40), "constant:100/80s", seed).all_rows()
    rule = http_monitor.Rule(slot_s=4)
    got = {}
    for kind in http_monitor.KINDS:
        named = http_monitor.Whose(kind, seed)(http_monitor.retrieve(rows))
        slots = http_monitor.Slots(rule.slot_s, rule.history)(named)
        counted = slots.group_by(["at", "kind", "name"]).aggregate(
            [("now", "sum"), ("past", "sum"), ("age", "max")]
        )
        judged = http_monitor.Alarm(rule)(
            counted.rename_columns(["window_start", "kind", "name", "now", "past", "age"])
        )
        alarms = judged.filter(http_monitor.is_alarm(judged))
        assert set(alarms["verdict"].to_pylist()) <= {"surge", "silence"}
        for row, past in zip(judged.to_pylist(), counted["past_sum"].to_pylist(), strict=True):
            key = (seconds(row["slot"]), row["kind"], row["name"])
            got[key] = (row["visits"], past, row["verdict"])
    assert got == http_monitor.expected(rows, rule=rule, seed=seed)
    verdicts = {verdict for _, _, verdict in got.values()}
    assert {"new", "normal", "surge"} <= verdicts


def test_what_is_no_address_is_dropped() -> None:
    texts = ["1.2.3.4", "1.2.3", "a.b.c.d", None, "1.2.3.999", "255.255.255.255", ""]
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows = pa.table({"ts": pa.array([at] * 7, TIME), "destination": pa.array(texts, pa.string())})
    assert http_monitor.retrieve(rows)["address"].to_pylist() == [16_909_060, 4_294_967_295]
    assert http_monitor.retrieve(rows.slice(1, 2)).num_rows == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_top_words(seed: int) -> None:
    rows = load(Tweets(seed=seed, vocabulary_size=300), "constant:20/30s", seed).all_rows()
    words = topk_words.StopWordFilter(stop_words())(rows)
    counted = grouped(Windows(12, 4)(words), ["window_start", "word"], ([], "count_all"))
    by_window: dict[int, list[tuple[int, str]]] = {}
    for row in counted:
        by_window.setdefault(seconds(row["window_start"]), []).append((-row["count_all"], row["word"]))
    got = {
        (window, rank): (word, -count)
        for window, each in by_window.items()
        for rank, (count, word) in enumerate(sorted(each)[:5], start=1)
    }
    assert got == topk_words.expected(rows, k=5, size_s=12, slide_s=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_sentiment(seed: int) -> None:
    rows = load(Tweets(seed=seed, mood_share=0.3), "constant:30/30s", seed).all_rows()
    lexicon = scores()
    scored = sentiment.Score(tuple(lexicon), tuple(lexicon.values()))(rows)
    means = grouped(
        tumbling(10)(scored), ["window_start", "topic"], ([], "count_all"), ("score", "mean"),
        ("positive", "sum"), ("negative", "sum"),
    )  # fmt: skip
    got = {
        (seconds(row["window_start"]), row["topic"]):
            (row["count_all"], row["score_mean"], row["positive_sum"], row["negative_sum"])
        for row in means
    }  # fmt: skip
    wanted = sentiment.expected(rows)
    assert got.keys() == wanted.keys()
    assert all(got[key] == pytest.approx(wanted[key]) for key in wanted)


def test_texts_without_words() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    texts = ["", "  ", None, " good   bad ", "good"]
    rows = pa.table([[at] * 5, list(range(5)), ["t"] * 5, texts], schema=Tweets.schema)
    lexicon = scores()
    scored = sentiment.Score(tuple(lexicon), tuple(lexicon.values()))(rows)
    assert scored["score"].to_pylist() == [0, 0, 0, lexicon["good"]]
    assert topk_words.StopWordFilter(("bad",))(rows)["word"].to_pylist() == ["good", "good"]


@pytest.mark.parametrize("seed", SEEDS)
def test_yahoo(seed: int) -> None:
    ads = Ads(seed=seed)
    rows = load(ads, "constant:100/25s", seed).all_rows()
    views = rows.filter(yahoo.is_view(rows)).join(ads.campaign_table(), "ad_id", join_type="inner")
    counted = grouped(tumbling(10)(views), ["window_start", "campaign_id"], ([], "count_all"))
    got = {(seconds(row["window_start"]), row["campaign_id"]): row["count_all"] for row in counted}
    assert got == yahoo.expected(rows, ads.campaign_table())


@pytest.mark.parametrize("seed", SEEDS)
def test_winning_bids_whatever_the_batches(seed: int) -> None:
    rows = load(Nexmark(seed=seed, auction_s=1), "constant:500/8s", seed).all_rows()
    harness = operator_harness(nexmark.Winning(), nexmark.LOTS, ["auction"], parallelism=2, event_time="ts")
    newest: dict[int, dict[str, Any]] = {}
    totals: dict[int, list[int]] = {}
    for first in range(0, rows.num_rows, 700 + 13 * seed):
        for row in harness.process(nexmark.lots(rows.slice(first, 700 + 13 * seed))).to_pylist():
            newest[row["auction"]] = {name: row[name] for name in ("auction", "category", "price", "bidder")}
            total = totals.setdefault(row["category"], [0, 0])
            total[0] += row["gain"]
            total[1] += row["sold"]
    wanted = nexmark_oracle.expected(rows, "q9")
    assert sorted(newest.values(), key=lambda row: row["auction"]) == sorted(
        wanted, key=lambda r: r["auction"]
    )
    means = {row["category"]: row["mean_price"] for row in nexmark_oracle.expected(rows, "q4")}
    assert {name: total / sold for name, (total, sold) in totals.items()} == pytest.approx(means)
    # Only auctions that are still open are kept.
    end = max(rows["ts"].to_pylist()).replace(tzinfo=UTC)
    open_ = [row["id"] for row in rows.to_pylist() if row["kind"] == AUCTION and row["expires"] >= end]
    kept = harness.state()["auction"].to_pylist()
    assert set(open_) <= set(kept)
    assert len(kept) <= len(open_) + 5  # watermarks are whole milliseconds
    assert harness.late_rows == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_sales_of_sellers_whatever_the_batches(seed: int) -> None:
    rows = load(Nexmark(seed=seed, auction_s=1), "constant:900/9s", seed).all_rows()
    sold = operator_harness(nexmark.Sold(), nexmark.LOTS, ["auction"], parallelism=2, event_time="ts")
    last = operator_harness(nexmark.LastSales(), sold.output_schema, ["seller"], parallelism=2)
    newest: dict[int, dict[str, Any]] = {}
    for first in range(0, rows.num_rows, 300 + 97 * seed):
        ended = sold.process(nexmark.lots(rows.slice(first, 300 + 97 * seed)))
        newest.update({row["seller"]: row for row in last.process(ended).to_pylist()})
    wanted = nexmark_oracle.expected(rows, "q6")
    assert max(row["sales"] for row in wanted) == 10
    assert newest.keys() == {row["seller"] for row in wanted}
    for row in wanted:
        assert newest[row["seller"]] == pytest.approx(row), row


def test_late_bids_are_counted_and_bring_no_auction_back() -> None:
    rows = load(Nexmark(seed=3, auction_s=1), "constant:500/8s").all_rows()
    harness = operator_harness(nexmark.Winning(), nexmark.LOTS, ["auction"], event_time="ts")
    lots = nexmark.lots(rows)
    harness.process(lots)
    kept = harness.state().num_rows
    assert harness.process(lots.slice(0, 500)).num_rows == 0
    assert (harness.late_rows, harness.state().num_rows) == (500, kept)


@pytest.mark.parametrize("seed", SEEDS)
def test_new_sellers_and_filters(seed: int) -> None:
    rows = load(Nexmark(seed=seed), "constant:200/25s", seed).all_rows()
    met = grouped(
        tumbling(10)(nexmark.joiners(rows)), ["window_start", "person"], ("name", "max"), ("auction", "count")
    )
    got = {
        (seconds(row["window_start"]), row["person"], row["name_max"], row["auction_count"])
        for row in met
        if row["name_max"] is not None and row["auction_count"]
    }
    wanted = {tuple(row.values()) for row in nexmark_oracle.expected(rows, "q8")}
    assert got == wanted
    bids = nexmark.bids(rows)
    assert bids.to_pylist() == nexmark_oracle.expected(rows, "q0")
    assert bids.filter(nexmark.every_123rd(bids)).to_pylist() == nexmark_oracle.expected(rows, "q2")


def test_a_window_has_its_start_and_not_its_end() -> None:
    at = [datetime(2024, 3, 31, 1, 0, second, tzinfo=UTC) for second in (0, 9, 10)]
    rows = pa.table({"ts": pa.array([*at, None], TIME), "n": [1, 2, 3, 4]})
    made = Windows(10, 5)(rows).to_pylist()
    starts = sorted((row["n"], row["window_start"].minute * 60 + row["window_start"].second) for row in made)
    assert starts == [(1, 0), (1, 3_595), (2, 0), (2, 5), (3, 5), (3, 10)]


@pytest.mark.parametrize(("size_s", "slide_s"), [(0, 0), (10, 0), (10, 11), (-1, -1)])
def test_windows_that_cannot_be(size_s: float, slide_s: float) -> None:
    with pytest.raises(ValueError, match="slide"):
        Windows(size_s, slide_s)


def test_a_load_that_cannot_be_says_everything_at_once() -> None:
    with pytest.raises(BadSchedule) as caught:
        Load(generator=Ads(), schedule="constant:1/1s", paced=False, partitions=0, max_rows_per_batch=0)
    assert all(name in str(caught.value) for name in ("start_ms", "partitions=0", "max_rows_per_batch=0"))


def test_an_unknown_query_names_the_known_ones() -> None:
    with pytest.raises(nexmark.NoSuchQuery, match="q0, q1, q2"):
        nexmark.topology(load(Nexmark(), "constant:1/1s"), {"q99": None})


@pytest.mark.parametrize("module", [fpd, http_monitor, nexmark, sentiment, topk_words, yahoo])
def test_what_the_command_line_runs_is_a_valid_topology(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPDRAFT_LOAD", raising=False)
    module.app(None).validate()
    monkeypatch.setenv("UPDRAFT_LOAD", "hill:1/2s")
    with pytest.raises(BadSchedule, match="hill"):
        module.app(None)


def test_all_nexmark_queries_fit_in_one_topology() -> None:
    sinks: dict[str, Any] = dict.fromkeys(nexmark.QUERIES, print)
    nexmark.topology(load(Nexmark(), "constant:1/1s"), sinks).validate()
