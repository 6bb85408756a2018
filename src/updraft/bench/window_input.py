"""Input of the windowed workloads, and the answer to each, recomputed from the input alone.

Every file is one batch of `STEP_S` seconds of event time. The answers are made with Arrow's own grouping over whole files:
no code of either side, no watermark, no state. A side is right when the rows it emitted for windows that all batches
but the last complete are exactly the answer's, each once; windows that end later may be there or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from updraft.apps.generators.ads import Ads
from updraft.apps.generators.draws import TIME, Generator, times
from updraft.apps.generators.nexmark import AUCTION, BID, PERSON, Nexmark

STEP_S = 10
START_S = 1_700_000_040  # not near 1970: Spark's watermark begins there, so it would take the first windows for late
DELAY_S, JITTER_S = 5, 2  # of the sliding count; the other inputs come in order
SIZE_S, SLIDE_S = 60, 10
HOT_SIZE_S, HOT_SLIDE_S = 10, 2
TUMBLING_S = 10
K = 10
KEYS = 10_000
_S = 1_000_000

CLICKS = pa.schema([("key", pa.int64()), ("ts", TIME)])
SCORES = pa.schema([("key", pa.int64()), ("item", pa.int64()), ("value", pa.int64())])
START = "window_start"

Write = Callable[[Path, int, int, int], None]
Answer = Callable[[Path, int], pa.Table]


def write_clicks(directory: Path, batches: int, rows: int, seed: int) -> None:
    """(key, ts): uniform keys, event times out of order by up to `JITTER_S`."""
    rng = np.random.default_rng(seed)
    for batch in range(batches):
        begin_us = (START_S + batch * STEP_S) * _S
        at_us = rng.integers(begin_us, begin_us + STEP_S * _S, rows) - rng.integers(0, JITTER_S * _S, rows)
        _write(directory, batch, pa.table([rng.integers(0, KEYS, rows), times(at_us)], schema=CLICKS))


def write_scores(directory: Path, batches: int, rows: int, seed: int) -> None:
    """(key, item, value): 50 rows per key and batch, whatever the size of a batch; equal values are rare."""
    rng = np.random.default_rng(seed)
    keys = max(1, rows // 50)
    for batch in range(batches):
        columns = [rng.integers(0, high, rows) for high in (keys, 1_000_000, 2**40)]
        _write(directory, batch, pa.table(columns, schema=SCORES))


def write_nexmark(directory: Path, batches: int, rows: int, seed: int) -> None:
    _write_generated(Nexmark(seed=seed), directory, batches, rows)


def write_ads(directory: Path, batches: int, rows: int, seed: int) -> None:
    ads = Ads(seed=seed)
    _write_generated(ads, directory, batches, rows)
    pq.write_table(ads.campaign_table(), campaigns_of(directory))


def campaigns_of(directory: Path) -> Path:
    """Where the table of campaigns is: not among the batches."""
    return directory.with_name(f"{directory.name}-campaigns.parquet")


def _write_generated(generator: Generator, directory: Path, batches: int, rows: int) -> None:
    gap_us = STEP_S * _S / rows
    for batch in range(batches):
        at_us = (START_S + batch * STEP_S) * _S + (np.arange(rows) * gap_us).astype(np.int64)
        _write(directory, batch, generator.rows(batch * rows, at_us))


def _write(directory: Path, batch: int, table: pa.Table) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, directory / f"{batch:05}.parquet")


def complete_us(batches: int, delay_s: int = 0) -> int:
    """Windows that end by then are complete, on both sides, before the last batch."""
    return (START_S + (batches - 1) * STEP_S - delay_s - 1) * _S


def sliding_counts(directory: Path, batches: int) -> pa.Table:
    """(window_start, key, n)"""
    parts = [pane_counts(table, "key", SLIDE_S) for table in _tables(directory, ["key", "ts"])]
    return window_counts(parts, "key", SIZE_S, SLIDE_S, complete_us(batches, DELAY_S))


def best_scores(directory: Path, batches: int) -> pa.Table:
    """(key, rank, item, value): the final lists."""
    every = pa.concat_tables(list(_tables(directory, SCORES.names)))
    key, item, value = (every.column(name).to_numpy() for name in SCORES.names)
    order = np.lexsort((item, -value, key))
    rank = _place(key[order]) + 1
    best = rank <= K
    order, rank = order[best], rank[best]
    return pa.table({"key": key[order], "rank": rank, "item": item[order], "value": value[order]})


def hottest_auctions(directory: Path, batches: int) -> pa.Table:
    """(window_start, auction, bids): of equally hot ones the smallest number."""
    parts = []
    for table in _tables(directory, ["ts", "kind", "auction"]):
        bids = table.filter(pc.equal(table.column("kind"), BID))
        parts.append(pane_counts(bids, "auction", HOT_SLIDE_S))
    counts = window_counts(parts, "auction", HOT_SIZE_S, HOT_SLIDE_S, complete_us(batches))
    start, auction, n = (counts.column(name).to_numpy() for name in (START, "auction", "n"))
    order = np.lexsort((auction, -n, start))
    order = order[_place(start[order]) == 0]
    return counts.take(pa.array(order)).rename_columns([START, "auction", "bids"])


def new_sellers(directory: Path, batches: int) -> pa.Table:
    """(window_start, person, name, auctions): who opened auctions in the window they joined in."""
    people, lots = [], []
    for table in _tables(directory, ["ts", "kind", "id", "name", "person"]):
        kind = table.column("kind")
        joined = table.filter(pc.equal(kind, PERSON))
        people.append(
            pa.table(
                {
                    START: panes(joined, TUMBLING_S),
                    "person": joined.column("id"),
                    "name": joined.column("name"),
                }
            )
        )
        lots.append(pane_counts(table.filter(pc.equal(kind, AUCTION)), "person", TUMBLING_S))
    opened = window_counts(lots, "person", TUMBLING_S, TUMBLING_S, complete_us(batches))
    met = pa.concat_tables(people).join(opened, [START, "person"], join_type="inner")
    return met.select([START, "person", "name", "n"]).rename_columns([START, "person", "name", "auctions"])


def campaign_views(directory: Path, batches: int) -> pa.Table:
    """(window_start, campaign_id, views)"""
    campaigns = pq.read_table(campaigns_of(directory))
    parts = []
    for table in _tables(directory, ["ts", "ad_id", "event_type"]):
        views = table.filter(pc.equal(table.column("event_type"), "view"))
        at = pc.index_in(views.column("ad_id"), campaigns.column("ad_id").combine_chunks())
        views = views.append_column("campaign_id", campaigns.column("campaign_id").take(at))
        parts.append(pane_counts(views, "campaign_id", TUMBLING_S))
    counts = window_counts(parts, "campaign_id", TUMBLING_S, TUMBLING_S, complete_us(batches))
    return counts.rename_columns([START, "campaign_id", "views"])


def panes(rows: pa.Table, step_s: int) -> pa.Array:
    """The stretch of `step_s` that each row is in, in whole seconds since 1970."""
    return pa.array(rows.column("ts").cast(pa.int64()).to_numpy() // (step_s * _S) * step_s)


def pane_counts(rows: pa.Table, key: str, step_s: int) -> pa.Table:
    """(window_start, key, n) of windows of `step_s` without overlap."""
    grouped = pa.table({START: panes(rows, step_s), key: rows.column(key)}).group_by([START, key])
    return grouped.aggregate([([], "count_all")]).rename_columns([START, key, "n"])


def window_counts(parts: Sequence[pa.Table], key: str, size_s: int, slide_s: int, until_us: int) -> pa.Table:
    """Counts of panes of `slide_s` added up to windows of `size_s`, those that end by `until_us`."""
    every = pa.concat_tables(parts)
    shifted = [
        every.set_column(0, START, pc.subtract(every.column(START), back))
        for back in range(0, size_s, slide_s)
    ]
    added = pa.concat_tables(shifted).group_by([START, key]).aggregate([("n", "sum")])
    added = added.rename_columns([START, key, "n"])
    return added.filter(pc.less_equal(added.column(START), until_us // _S - size_s))


def _tables(directory: Path, columns: list[str]) -> Iterator[pa.Table]:
    for path in sorted(directory.glob("*.parquet")):
        yield pq.ParquetFile(path).read(columns)


def _place(groups: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Place from 0 within each run of equal values."""
    at = np.arange(len(groups))
    begins = np.concatenate(([True], groups[1:] != groups[:-1])) if len(groups) else np.empty(0, np.bool_)
    return at - np.maximum.accumulate(np.where(begins, at, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a workload reads and what it must answer; the sides have a query under the same name each."""

    name: str
    write: Write
    answer: Answer
    size_s: (
        int | None
    )  # of its windows; None: no event time, an output row replaces older ones of its key and rank
    delay_s: int = 0


KINDS: dict[str, Kind] = {
    "sliding": Kind(
        name="sliding window count", write=write_clicks, answer=sliding_counts, size_s=SIZE_S, delay_s=DELAY_S
    ),
    "top-k": Kind(name="top-k", write=write_scores, answer=best_scores, size_s=None),
    "q5": Kind(name="nexmark q5", write=write_nexmark, answer=hottest_auctions, size_s=HOT_SIZE_S),
    "q8": Kind(name="nexmark q8", write=write_nexmark, answer=new_sellers, size_s=TUMBLING_S),
    "yahoo": Kind(name="yahoo", write=write_ads, answer=campaign_views, size_s=TUMBLING_S),
}


def is_right(kind: Kind, output: Path, answer: pa.Table, batches: int) -> bool:
    """Whether the Parquet files a side wrote hold the answer."""
    found = pa.concat_tables(
        pq.ParquetFile(path).read(answer.column_names).select(answer.column_names)
        for path in sorted(output.rglob("*.parquet"))
    )
    found = _newest_lists(found) if kind.size_s is None else _complete(kind, found, batches)
    order = [(name, "ascending") for name in answer.column_names]
    return bool(found.num_rows > 0 and found.cast(answer.schema).sort_by(order).equals(answer.sort_by(order)))


def _complete(kind: Kind, found: pa.Table, batches: int) -> pa.Table:
    assert kind.size_s is not None
    start_us = found.column(START).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    found = found.set_column(found.column_names.index(START), START, pc.divide(start_us, _S))
    until_s = complete_us(batches, kind.delay_s) // _S - kind.size_s
    return found.filter(pc.less_equal(found.column(START), until_s))


def _newest_lists(found: pa.Table) -> pa.Table:
    """The last list of every key: values in a list only rise, so each place's newest entry is its best."""
    key, rank, item, value = (found.column(name).to_numpy() for name in ("key", "rank", "item", "value"))
    order = np.lexsort((item, -value, rank, key))
    return found.take(pa.array(order[_place(key[order] * (K + 1) + rank[order]) == 0]))
