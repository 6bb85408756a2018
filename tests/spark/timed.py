"""A topology of everything that waits for event time, and what it must emit, batch by batch, in plain Python.

No function of it travels to workers: the sides are made in the JVM. So drivers that are programs of their own can import it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.operators.window_oracle import Oracle

import updraft as ud

S = 1_000_000
DELAY_S, SIZE_S, SLIDE_S, GAP_S, EARLIEST_S, LATEST_S, WITHIN_S = 6, 24, 6, 5, -4, 9, 12
BATCH_S = 5
BEGIN_S = 1_711_846_770  # 2024-03-31 00:59:30 UTC, before a change to daylight saving
SCHEMA = pa.schema(
    [("side", pa.string()), ("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())]
)
SPARK_SCHEMA = "side STRING, k LONG, ts TIMESTAMP, v LONG"
STATEFUL = ("closed", "updated", "sessions", "best", "once", "joined")
"""Its operators, each with a sink of the same name."""
Emitted = dict[str, list[Counter[tuple[Any, ...]]]]


def tables(seed: int, batches: int, rows: int = 40) -> list[pa.Table]:
    """Rows out of order, late, twice, with null keys; every batch is `BATCH_S` further."""
    rng = random.Random(seed)
    made = []
    for batch in range(batches):
        found = [
            {
                "side": rng.choice("lr"),
                "k": rng.choice([None, *range(15)]),
                "ts": _when((BEGIN_S + batch * BATCH_S) * S + rng.randrange(-14 * S, BATCH_S * S)),
                "v": rng.randrange(100),
            }
            for _ in range(rows)
        ]
        made.append(pa.Table.from_pylist([*found, *found[:2]], schema=SCHEMA))
    return made


def write(directory: Path, made: Iterable[pa.Table]) -> None:
    """One file per batch."""
    directory.mkdir()
    for number, table in enumerate(made):
        file = directory / f"{number}.parquet"
        pq.write_table(table, file)
        os.utime(file, (1_000_000_000 + number,) * 2)


def files(directory: str) -> Callable[[Any], Any]:
    """The stream of what `write` wrote."""

    def frame(spark: Any) -> Any:
        return spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(directory)

    return frame


def topology(frame: Any, sinks: Mapping[str, Any], *, tasks: int = 8, parallelism: int = 2) -> ud.Topology:
    app = ud.Topology("timed")
    scale: Any = {"tasks": tasks, "parallelism": parallelism}
    events = app.source("events", frame)
    rows = events.with_watermark("ts", DELAY_S).key_by("k")
    slides = ud.sliding(SIZE_S, SLIDE_S)
    rows.window(slides).aggregate(n=ud.count(), total=ud.sum("v"), name="closed", **scale).sink(
        "closed", sinks["closed"]
    )
    updated = rows.window(slides, emit="update").aggregate(
        n=ud.count(), total=ud.sum("v"), name="updated", **scale
    )
    updated.sink("updated", sinks["updated"])
    best = updated.key_by("window_start").top_k(2, by="n", id="k", name="best", **scale)
    best.sink("best", sinks["best"])
    sessions = rows.window(ud.session(GAP_S)).aggregate(
        n=ud.count(), total=ud.sum("v"), name="sessions", **scale
    )
    sessions.sink("sessions", sinks["sessions"])
    rows.deduplicate(within=WITHIN_S, name="once", **scale).sink("once", sinks["once"])
    left = events.transform(_left).with_watermark("ts", DELAY_S).key_by("k")
    right = events.transform(_right).with_watermark("rts", DELAY_S).key_by("k")
    bound = (f"{EARLIEST_S} seconds", f"{LATEST_S} seconds")
    left.join(right, within=bound, how="left", name="joined", **scale).sink("joined", sinks["joined"])
    return app


def _left(frame: Any) -> Any:
    return frame.where("side = 'l'").select("k", "ts", "v")


def _right(frame: Any) -> Any:
    return frame.where("side = 'r'").selectExpr("k", "ts AS rts", "v AS rv")


def emitted(batches: Mapping[str, Mapping[int, pa.Table]], count: int) -> Emitted:
    """What sinks got, batch by batch, as rows that compare."""
    return {
        name: [
            Counter(tuple(_plain(v) for v in row.values()) for row in found[n].to_pylist())
            if n in found
            else Counter()
            for n in range(count)
        ]
        for name, found in batches.items()
    }


def expected(made: list[pa.Table]) -> Emitted:
    """What every batch must emit. Of `best`, only what its newest lists are, as if emitted by one last batch."""
    slides: dict[str, Any] = {"size_us": SIZE_S * S, "slide_us": SLIDE_S * S, "delay_ms": DELAY_S * 1_000}
    oracles = {
        "closed": Oracle(**slides),
        "updated": Oracle(**slides, update=True),
        "sessions": Oracle(gap_us=GAP_S * S, delay_ms=DELAY_S * 1_000),
    }
    rows = [
        [(row["side"], row["k"], _plain(row["ts"]), row["v"]) for row in table.to_pylist()] for table in made
    ]
    wanted: Emitted = {
        name: [
            Counter(
                (*window, len(values), sum(values))
                for window, values in oracle.batch([(k, ts, v) for _, k, ts, v in batch]).items()
            )
            for batch in rows
        ]
        for name, oracle in oracles.items()
    }
    wanted["once"] = _once(rows)
    wanted["joined"] = _joined(rows)
    wanted["best"] = [_best(wanted["updated"])]
    return wanted


def check(found: Emitted, made: list[pa.Table]) -> None:
    """Every batch emitted what it had to, exactly; of `best` the newest lists count."""
    wanted = expected(made)
    # The last row of every window and rank: window_start, rank, k, window_end, n, total.
    lists = Counter({row[:2]: row for batch in found["best"] for row in batch}.values())
    assert lists == wanted.pop("best")[0], "best"
    for name, batches in wanted.items():
        differ = {
            batch: {
                "lost": list((rows - found[name][batch]).items())[:5],
                "more": list((found[name][batch] - rows).items())[:5],
            }
            for batch, rows in enumerate(batches)
            if found[name][batch] != rows
        }
        assert not differ, (name, differ)


def _best(updates: list[Counter[tuple[Any, ...]]]) -> Counter[tuple[Any, ...]]:
    newest = {row[:2]: row for batch in updates for row in batch}
    windows: dict[int, list[Any]] = {}
    for k, start, end, n, total in newest.values():
        windows.setdefault(start, []).append((-n, k is None, k, end, total))
    return Counter(
        (start, rank, k, end, -n, total)
        for start, found in windows.items()
        for rank, (n, _, k, end, total) in enumerate(sorted(found, key=lambda f: (*f[:2], f[2] or 0))[:2], 1)
    )


def _once(rows: list[list[Any]]) -> list[Counter[tuple[Any, ...]]]:
    known: dict[Any, int] = {}
    found, largest = [], None
    for batch in rows:
        before = _watermark(largest)
        through = []
        for side, k, ts, v in batch:
            if (before is None or ts > before) and k not in known:
                known[k] = ts + WITHIN_S * S
                through.append((side, k, ts, v))
        largest = max([ts for _, _, ts, _ in batch] + ([] if largest is None else [largest]))
        known = {k: until for k, until in known.items() if until > _watermark(largest)}
        found.append(Counter(through))
    return found


def _joined(rows: list[list[Any]]) -> list[Counter[tuple[Any, ...]]]:
    largest: dict[str, int] = {}
    left: list[list[Any]] = []  # k, ts, v, how many it has met
    right: list[tuple[Any, int, int]] = []
    found = []
    for batch in rows:
        before = _watermark(min(largest.values())) if len(largest) == 2 else None
        timely = [row for row in batch if before is None or row[2] > before]
        out: Counter[tuple[Any, ...]] = Counter()
        new_left = [[k, ts, v, 0] for side, k, ts, v in timely if side == "l"]
        new_right = [(k, ts, v) for side, k, ts, v in timely if side == "r"]
        pairs = [(a, b) for a in left for b in new_right] + [
            (a, b) for a in new_left for b in (*right, *new_right)
        ]
        for one, (k, ts, v) in pairs:
            if one[0] is not None and one[0] == k and EARLIEST_S * S <= ts - one[1] <= LATEST_S * S:
                out[*one[:3], ts, v] += 1
                one[3] += 1
        left += new_left
        right += new_right
        for side, _, ts, _ in batch:
            largest[side] = max(ts, largest.get(side, ts))
        after = _watermark(min(largest.values())) if len(largest) == 2 else None
        # A null key meets nothing and need not wait.
        for one in [a for a in left if a[0] is None or (after is not None and a[1] + LATEST_S * S <= after)]:
            if not one[3]:
                out[*one[:3], None, None] += 1
            left.remove(one)
        found.append(out)
    return found


def _watermark(largest: int | None) -> int | None:
    # Watermarks are whole milliseconds.
    return None if largest is None else (largest // 1_000 - DELAY_S * 1_000) * 1_000


def _when(us: int) -> datetime:
    return datetime.fromtimestamp(us // S, UTC).replace(microsecond=us % S)


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return int(moment.timestamp()) * S + moment.microsecond
