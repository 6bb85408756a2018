"""HTTP monitor (paper 2 §V-D, Fig. 5): are some places visited much more or much less than they normally are?

              +-> country -> stat.country -+
    retrieve -+-> isp     -> stat.isp     -+-> alarm
              +-> prefix  -> stat.prefix  -+

`retrieve` keeps (ts, destination); country, isp and prefix say whose address it is (a synthetic table, see
`generators.requests`). A stat counts the visits to each name in a slot of 10 s and its normal value, the mean of the 5 slots
before (the paper's sliding window; it does not give sizes or thresholds). The alarm compares: more than `high` x
normal + `margin` is a surge, less than `low` x normal - `margin` a silence. A name is judged once its history
reaches back all 5 slots. A name that was not
visited at all in a slot still is judged: its past visits are there. A slot is judged once, when the watermark closes it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.generators.draws import TIME, picked
from updraft.apps.generators.requests import COUNTRIES, Requests, address_table, isp_names
from updraft.apps.source import Load, load_from_environment

VISITS = pa.schema([("ts", TIME), ("address", pa.int64())])
NAMED = pa.schema([("ts", TIME), ("kind", pa.string()), ("name", pa.string())])
SLOTS = pa.schema(
    [
        ("at", TIME),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("now", pa.int64()),
        ("past", pa.int64()),
        ("age", pa.int64()),
    ]
)
KINDS = ("country", "isp", "prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a number of visits is not normal."""

    slot_s: int = 10
    history: int = 5
    high: float = 2.0
    low: float = 0.5
    margin: float = 5.0

    def verdict(self, visits: int, past: int) -> str:
        normal = past / self.history
        if visits > self.high * normal + self.margin:
            return "surge"
        return "silence" if visits < self.low * normal - self.margin else "normal"


def retrieve(rows: pa.Table) -> pa.Table:
    """(ts, destination as a number); a destination that is no dotted IPv4 address is dropped."""
    text = rows.column("destination")
    good = pc.fill_null(pc.match_substring_regex(text, r"^\d{1,3}(\.\d{1,3}){3}$"), False)
    rows = rows.filter(good)
    if rows.num_rows == 0:
        return VISITS.empty_table()
    parts = pc.split_pattern(rows.column("destination").combine_chunks(), ".")
    numbers = pc.list_flatten(parts).cast(pa.int64()).to_numpy().reshape(-1, 4)
    address = numbers @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    keep = pa.array((numbers < 256).all(axis=1))
    return pa.table([rows.column("ts"), pa.array(address)], schema=VISITS).filter(keep)


@dataclass(frozen=True, slots=True)
class Whose:
    """The name of an address: its country, its provider or its /16 prefix."""

    kind: str
    seed: int = 7

    def __call__(self, rows: pa.Table) -> pa.Table:
        names = self.names(rows.column("address").to_numpy() >> 16)
        kind = pa.repeat(self.kind, rows.num_rows)
        return pa.table([rows.column("ts"), kind, names], schema=NAMED)

    def names(self, prefix: npt.NDArray[np.int64]) -> pa.Array:
        table = address_table(self.seed)
        match self.kind:
            case "country":
                return picked(pa.array(COUNTRIES), table.country[table.ranges_of(prefix)])
            case "isp":
                return picked(isp_names(table.isps), table.isp[table.ranges_of(prefix)])
            case _:
                high, low = pa.array(prefix >> 8).cast(pa.string()), pa.array(prefix & 255).cast(pa.string())
                return pc.binary_join_element_wise(high, low, ".")


@dataclass(frozen=True, slots=True)
class Slots:
    """A visit counts `now` in its own slot and as `past` in the slots after it, `age` slots later."""

    slot_s: int
    history: int

    def __call__(self, rows: pa.Table) -> pa.Table:
        rows = rows.filter(rows.column("ts").is_valid())
        slot_us = self.slot_s * 1_000_000
        slot = rows.column("ts").cast(pa.int64()).to_numpy() // slot_us * slot_us
        row = np.repeat(np.arange(rows.num_rows), self.history + 1)
        age = np.tile(np.arange(self.history + 1, dtype=np.int64), rows.num_rows)
        of = pa.array(row)
        columns = [
            pa.array(slot[row] + age * slot_us).cast(TIME),
            rows.column("kind").take(of),
            rows.column("name").take(of),
            pa.array((age == 0).astype(np.int64)),
            pa.array((age > 0).astype(np.int64)),
            pa.array(age),
        ]
        return pa.table(columns, schema=SLOTS)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A verdict on every name and slot: normal, surge, silence, or new (no history yet)."""

    rule: Rule

    def __call__(self, rows: pa.Table) -> pa.Table:
        rule = self.rule
        visits = rows.column("now").cast(pa.float64())
        normal = pc.divide(rows.column("past").cast(pa.float64()), float(rule.history))
        surge = pc.greater(visits, pc.add(pc.multiply(normal, rule.high), rule.margin))
        silence = pc.less(visits, pc.subtract(pc.multiply(normal, rule.low), rule.margin))
        verdict = pc.if_else(surge, "surge", pc.if_else(silence, "silence", "normal"))
        verdict = pc.if_else(pc.less(rows.column("age"), rule.history), "new", verdict)
        return pa.table(
            {
                "slot": rows.column("window_start"),
                "kind": rows.column("kind"),
                "name": rows.column("name"),
                "visits": rows.column("now"),
                "normal": normal,
                "verdict": verdict,
            }
        )


def is_alarm(rows: pa.Table) -> Any:
    return pc.is_in(rows.column("verdict"), pa.array(["surge", "silence"]))


def topology(
    load: Load, sink: Any, *, rule: Rule | None = None, seed: int = 7, tasks: int = 16, parallelism: int = 2
) -> Any:
    """The monitor over a load of `Requests`; `seed` is that of the address table."""
    import updraft as ud

    rule = rule or Rule()
    app = ud.Topology("http-monitor")
    visits = (
        app.source("spout", load.frame, schema=load.schema)
        .with_watermark("ts")
        .map(retrieve, name="retrieve", schema=VISITS)
    )
    stats = []
    for kind in KINDS:
        named = visits.map(Whose(kind, seed), name=kind, schema=NAMED)
        slots = named.map(Slots(rule.slot_s, rule.history), name=f"slots-{kind}", schema=SLOTS)
        stats.append(
            slots.key_by("kind", "name")
            .window(ud.tumbling(rule.slot_s), on="at", emit="close")
            .aggregate(
                now=ud.sum("now"),
                past=ud.sum("past"),
                age=ud.max("age"),
                name=f"stat-{kind}",
                tasks=tasks,
                parallelism=parallelism,
            )
        )
    judged = stats[0].merge(*stats[1:]).map(Alarm(rule), name="judge")
    judged.filter(is_alarm, name="alarm").sink("out", sink)
    return app


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.http_monitor`."""
    import updraft as ud

    load = load_from_environment(Requests(), "season:200..2000/7x60s")
    return topology(load, ud.sinks.console())


def expected(
    rows: pa.Table, *, rule: Rule | None = None, seed: int = 7
) -> dict[tuple[int, str, str], tuple[int, int, str]]:
    """Plain recomputation: (slot in s, kind, name) -> (visits, visits of the past, verdict)."""
    rule = rule or Rule()
    table = address_table(seed)
    starts = table.starts.tolist()
    visits: Counter[tuple[int, str, str]] = Counter()
    for row in rows.select(["ts", "destination"]).to_pylist():
        slot = int(row["ts"].timestamp()) // rule.slot_s * rule.slot_s
        first, second = (int(part) for part in row["destination"].split(".")[:2])
        owner = bisect_right(starts, first * 256 + second) - 1
        visits[slot, "country", COUNTRIES[table.country[owner]]] += 1
        visits[slot, "isp", f"ISP-{table.isp[owner]:03d}"] += 1
        visits[slot, "prefix", f"{first}.{second}"] += 1
    judged = {
        (slot + age * rule.slot_s, kind, name)
        for slot, kind, name in visits
        for age in range(rule.history + 1)
    }
    found = {}
    for slot, kind, name in judged:
        history = [visits[slot - age * rule.slot_s, kind, name] for age in range(1, rule.history + 1)]
        now, past = visits[slot, kind, name], sum(history)
        found[slot, kind, name] = (now, past, rule.verdict(now, past) if history[-1] else "new")
    return found
