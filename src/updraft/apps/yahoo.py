"""The Yahoo streaming benchmark: views of each advertising campaign in windows of 10 s.

    events -> filter (views) -> join (ad -> campaign, a static table) -> count per campaign and window

The original keeps the campaigns' table in Redis and caches it; here it travels with the join's function.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.ads import Ads
from updraft.apps.generators.draws import TIME
from updraft.apps.source import Load, load_from_environment
from updraft.apps.windows import tumbling

VIEWS = pa.schema([("ts", TIME), ("campaign_id", pa.string())])


def is_view(rows: pa.Table) -> Any:
    return pc.equal(rows.column("event_type"), "view")


@dataclass(frozen=True, slots=True, eq=False)
class Campaigns:
    """The join: an ad without a campaign is dropped."""

    table: pa.Table

    def __call__(self, rows: pa.Table) -> pa.Table:
        at = pc.index_in(rows.column("ad_id"), self.table.column("ad_id").combine_chunks())
        campaign = self.table.column("campaign_id").combine_chunks().take(at.combine_chunks())
        joined = pa.table([rows.column("ts"), campaign], schema=VIEWS)
        return joined.filter(joined.column("campaign_id").is_valid())


def topology(
    load: Load, campaigns: pa.Table, sink: Any, *, size_s: float = 10, tasks: int = 16, parallelism: int = 2
) -> Any:
    """The benchmark's query over a load of `Ads`."""
    import updraft as ud

    app = ud.Topology("yahoo")
    events = app.source("events", load.frame, schema=load.schema)
    views = events.filter(is_view, name="views").map(Campaigns(campaigns), name="join", schema=VIEWS)
    counts = (
        views.map(tumbling(size_s), name="windows")
        .key_by("window", "campaign_id")
        .count("views", name="count", tasks=tasks, parallelism=parallelism)
    )
    counts.sink("out", sink)
    return app


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.yahoo`."""
    import updraft as ud

    ads = Ads()
    load = load_from_environment(ads, "constant:10000/5m")
    return topology(load, ads.campaign_table(), ud.sinks.console())


def expected(rows: pa.Table, campaigns: pa.Table, *, size_s: int = 10) -> dict[tuple[int, str], int]:
    """Plain recomputation: (window start in s, campaign) -> views."""
    of = dict(zip(campaigns["ad_id"].to_pylist(), campaigns["campaign_id"].to_pylist(), strict=True))
    counts: Counter[tuple[int, str]] = Counter()
    for row in rows.select(["ts", "ad_id", "event_type"]).to_pylist():
        if row["event_type"] == "view" and row["ad_id"] in of:
            counts[int(row["ts"].timestamp()) // size_s * size_s, of[row["ad_id"]]] += 1
    return dict(counts)
