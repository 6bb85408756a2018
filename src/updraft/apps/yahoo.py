"""The Yahoo streaming benchmark: views of each advertising campaign in windows of 10 s.

    events -> filter (views) -> join (ad -> campaign, a static table) -> count per campaign and window

The original keeps the campaigns' table in Redis and caches it; here it travels with the program (`join_static`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.ads import Ads
from updraft.apps.source import Load, load_from_environment


def is_view(rows: pa.Table) -> Any:
    return pc.equal(rows.column("event_type"), "view")


def topology(
    load: Load, campaigns: pa.Table, sink: Any, *, size_s: float = 10, tasks: int = 16, parallelism: int = 2
) -> Any:
    """The benchmark's query over a load of `Ads`."""
    import updraft as ud

    app = ud.Topology("yahoo")
    events = app.source("events", load.frame, schema=load.schema).with_watermark("ts")
    views = events.filter(is_view, name="views").join_static(campaigns, on="ad_id", name="join")
    windows = views.key_by("campaign_id").window(ud.tumbling(size_s), emit="update")
    counts = windows.count("views", name="count", tasks=tasks, parallelism=parallelism)
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
