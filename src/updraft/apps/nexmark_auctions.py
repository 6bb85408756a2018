"""Nexmark's auctions as state: who offers most (q4, q9), what was sold (q6), what each seller got lately (q6).

An auction is in the state from its opening until the watermark has passed its end, so that the state is the open
auctions, however long a run lasts. Rows behind the watermark are late: dropped and counted.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.draws import TIME
from updraft.operators.arrays import one_array
from updraft.operators.base import Columns, KeyedOperator
from updraft.operators.context import Context
from updraft.operators.grouping import group_rows
from updraft.operators.lists import collect_by, join_lists
from updraft.state import hash_keys

LOTS = pa.schema(
    [
        ("ts", TIME),
        ("auction", pa.int64()),
        ("expires", TIME),
        ("category", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
    ]
)


class Winning(KeyedOperator):
    """The best bid of every auction, made while it was open: highest price, then earliest; forgotten when it is over.

    An auction comes before the bids that count for it, because events come in the order of their times; bids for an
    auction that does not exist yet, which the generator makes on purpose, count for nothing. Emits an auction when
    its best bid changes, with the change of its price (`gain`) and of the number of sold auctions (`sold`), so that
    sums can follow without a retraction.
    """

    timers = "event"
    state: ClassVar[Columns | None] = {
        "opens": TIME,
        "expires": TIME,
        "category": pa.int64(),
        "seller": pa.int64(),
        "price": pa.int64(),
        "bidder": pa.int64(),
        "at": TIME,
    }
    output: ClassVar[Columns | None] = {
        "auction": pa.int64(),
        "category": pa.int64(),
        "price": pa.int64(),
        "bidder": pa.int64(),
        "gain": pa.int64(),
        "sold": pa.int64(),
    }

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        best = better_bids(rows, ctx)
        gain = pc.subtract(best.column("price"), pc.fill_null(best.column("old"), 0))
        sold = best.column("old").is_null().cast(pa.int64())
        return pa.table(
            [*(best.column(name) for name in ("auction", "category", "price", "bidder")), gain, sold],
            schema=ctx.output,
        )

    def evict(self, ctx: Context) -> None:
        over(ctx)


class Sold(KeyedOperator):
    """Every auction that somebody has bought, once, when it is over: seller, price and when it ended."""

    timers = "event"
    state: ClassVar[Columns | None] = Winning.state
    output: ClassVar[Columns | None] = {
        "auction": pa.int64(),
        "seller": pa.int64(),
        "price": pa.int64(),
        "expires": TIME,
    }

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        better_bids(rows, ctx)
        return ctx.output.empty_table()

    def evict(self, ctx: Context) -> pa.Table:
        ended = over(ctx)
        sold = ended.filter(ended.column("price").is_valid())
        return sold.select(ctx.output.names).cast(ctx.output)


class LastSales(KeyedOperator):
    """The mean price of the last ten sales of every seller, in the order in which auctions end.

    What `Sold` emits in one batch ends before what it emits in the next one, so that the order in a batch is all to care for.
    """

    most = 10
    state: ClassVar[Columns | None] = {"prices": pa.list_(pa.int64())}
    output: ClassVar[Columns | None] = {"seller": pa.int64(), "sales": pa.int64(), "mean_price": pa.float64()}

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        rows = rows.sort_by([("expires", "ascending"), ("auction", "ascending")])
        groups = group_rows(rows.select(["seller"]), hash_keys([rows.column("seller")]))
        sellers = rows.select(["seller"]).take(pa.array(groups.first))
        before = one_array(ctx.state.get(sellers, groups.hashes, presorted=True).values.column("prices"))
        prices = join_lists(before, collect_by(one_array(rows.column("price")), groups))
        ends = np.cumsum(np.asarray(prices.value_lengths(), np.int64))
        kept = np.minimum(np.diff(ends, prepend=0), self.most)
        starts = np.cumsum(kept) - kept
        # Of every list its last few: as far from the end as before.
        chosen = np.repeat(ends - kept - starts, kept) + np.arange(kept.sum())
        values = prices.flatten().take(pa.array(chosen))
        offsets = pa.array(np.append(starts, kept.sum()).astype(np.int32))
        made = sellers.append_column("prices", pa.ListArray.from_arrays(offsets, values))
        ctx.state.put(made, groups.hashes, presorted=True)
        means = np.add.reduceat(np.asarray(values, np.float64), starts) / kept
        return pa.table([sellers.column("seller"), pa.array(kept), pa.array(means)], schema=ctx.output)


def better_bids(rows: pa.Table, ctx: Context) -> pa.Table:
    """Opens auctions and keeps their best bids; returns those that are better than what was known (`old`)."""
    rows = _timely(rows, ctx)
    opened = rows.filter(rows.column("expires").is_valid())
    if opened.num_rows:
        ctx.state.put(_opened(opened), timers_us=_micros(opened.column("expires")))
    offers = rows.filter(rows.column("price").is_valid())
    lot = ctx.state.get(offers.select(["auction"])).values
    at = offers.column("ts")
    is_open = pc.and_(pc.greater_equal(at, lot.column("opens")), pc.less_equal(at, lot.column("expires")))
    is_better = pc.or_kleene(
        lot.column("price").is_null(),
        pc.or_kleene(
            pc.greater(offers.column("price"), lot.column("price")),
            pc.and_kleene(
                pc.equal(offers.column("price"), lot.column("price")), pc.less(at, lot.column("at"))
            ),
        ),
    )
    known = lot.select(["opens", "expires", "category", "seller"]).append_column("old", lot.column("price"))
    for name in ("auction", "price", "bidder", "ts"):
        known = known.append_column(name, offers.column(name))
    best = known.filter(pc.fill_null(pc.and_kleene(is_open, is_better), False))
    best = best.sort_by([("auction", "ascending"), ("price", "descending"), ("ts", "ascending")])
    best = _first_of_each(best, "auction")
    columns = ["auction", "opens", "expires", "category", "seller", "price", "bidder", "ts"]
    if best.num_rows:
        kept = best.select(columns).rename_columns([*columns[:-1], "at"])
        ctx.state.put(kept, timers_us=_micros(best.column("expires")))
    return best


def over(ctx: Context) -> pa.Table:
    """The auctions for which no bid can come any more, with what is known of them; they are forgotten."""
    # A bid at the very moment of the watermark, or of the end, may still come.
    until_us = -1 if ctx.next_watermark_ms is None else ctx.next_watermark_ms * 1_000 - 1
    keys = ctx.state.due(until_us).select(["auction"])
    ended = keys
    for name, column in zip(Winning.state or (), ctx.state.get(keys).values.columns, strict=True):
        ended = ended.append_column(name, column)
    if keys.num_rows:
        ctx.state.delete(keys)
    return ended


def _timely(rows: pa.Table, ctx: Context) -> pa.Table:
    if ctx.watermark_ms is None:
        return rows
    timely = rows.filter(pc.greater_equal(_micros(rows.column("ts")), ctx.watermark_ms * 1_000))
    ctx.tally.late_rows += rows.num_rows - timely.num_rows
    return timely


def _micros(times: pa.ChunkedArray) -> pa.Array:
    return one_array(times.cast(pa.int64()))


def _opened(rows: pa.Table) -> pa.Table:
    nothing = pa.nulls(rows.num_rows, pa.int64())
    return pa.table(
        {
            "auction": rows.column("auction"),
            "opens": rows.column("ts"),
            "expires": rows.column("expires"),
            "category": rows.column("category"),
            "seller": rows.column("bidder"),
            "price": nothing,
            "bidder": nothing,
            "at": nothing.cast(TIME),
        }
    )


def _first_of_each(rows: pa.Table, column: str) -> pa.Table:
    """The first row of each run of equal values."""
    value = rows.column(column).to_numpy()
    begins = np.ones(len(value), np.bool_)
    begins[1:] = value[1:] != value[:-1]
    return rows.filter(pa.array(begins))
