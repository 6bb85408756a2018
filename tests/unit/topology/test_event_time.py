"""`with_watermark`: what it declares, where it may stand, what reaches which operator."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import updraft as ud
from updraft.errors import InvalidTopology
from updraft.eventtime import EventTime, Feed
from updraft.topology import compile_topology

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])


class Expire(ud.KeyedOperator):
    """Emits a key when event time reaches its timer."""

    state = {"n": pa.int64()}  # noqa: RUF012
    timers = "event"
    output = {"k": pa.string()}  # noqa: RUF012
    event_lag_ms = 5_000

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        return ctx.output.empty_table()

    def on_timer(self, due: pa.Table, ctx: ud.Context) -> pa.Table:
        return due.select(["k"])


def topology(build: Callable[[ud.Stream], ud.Stream]) -> ud.Topology:
    app = ud.Topology("t")
    build(app.source("events", lambda spark: spark, SCHEMA)).sink("out", ud.sinks.console())
    return app


def problems(build: Callable[[ud.Stream], ud.Stream]) -> tuple[str, ...]:
    with pytest.raises(InvalidTopology) as refused:
        topology(build).validate()
    return refused.value.problems


def test_a_watermark_reaches_operators_and_does_not_rename_the_leg() -> None:
    app = topology(
        lambda s: (
            s.with_watermark("ts", "10 seconds", idle_after="1 minute", max_ahead="1h")
            .map(lambda t: t)
            .key_by("k")
            .process(Expire, name="first")
            .key_by("k")
            .count(name="second")
        )
    )
    graph = compile_topology(app)
    declared = EventTime(column="ts", delay_ms=10_000, idle_after_ms=60_000, max_ahead_ms=3_600_000)
    assert graph.event_times() == {"events": declared}
    feeds = graph.feeds()
    assert feeds["first"] == Feed(legs=("events",))
    assert feeds["second"] == Feed(legs=("events",), lag_ms=5_000)


def test_two_sources_feed_one_operator_and_a_bare_one_takes_event_time_away() -> None:
    app = ud.Topology("t")
    one, two = (app.source(name, lambda spark: spark, SCHEMA) for name in ("one", "two"))
    both = one.with_watermark("ts").merge(two.with_watermark("ts", 5))
    both.key_by("k").count(name="both").sink("a", ud.sinks.console())
    one.merge(two).key_by("k").count(name="bare").sink("b", ud.sinks.console())
    graph = compile_topology(app)
    assert graph.feeds() == {"both": Feed(legs=("one.1", "two.1"))}
    assert [leg.name for leg in graph.legs] == ["one", "two", "one.1", "two.1"]


def test_all_problems_at_once() -> None:
    found = problems(lambda s: s.with_watermark("n", "soon", idle_after=0, max_ahead=-1))
    assert len(found) == 4
    assert all(problem.startswith("with_watermark() of source 'events':") for problem in found)
    assert any("column 'n' is int64" in problem and "to_timestamp" in problem for problem in found)
    assert any("delay: 'soon' is not a duration" in problem for problem in found)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda s: s.with_watermark("tz"), "unknown column 'tz' in with_watermark. Columns are: k, ts, n"),
        (lambda s: s.with_watermark(3), "must name the event time column"),
        (lambda s: s.with_watermark("ts", None), "delay must say how late"),
        (lambda s: s.with_watermark("ts").with_watermark("ts"), "declare event time once"),
        (lambda s: s.map(lambda t: t).with_watermark("ts"), "directly behind the source"),
        (lambda s: s.with_watermark("ts").transform(lambda d: d), "after the last transform"),
        (lambda s: s.key_by("k").process(Expire), "source 'events' has none; call with_watermark"),
    ],
)
def test_bad_use_names_source_and_remedy(build: Callable[[ud.Stream], ud.Stream], said: str) -> None:
    found = problems(build)
    assert any(said in problem for problem in found), found


def test_timers_of_an_unknown_kind_are_refused() -> None:
    class Odd(Expire):
        timers = "often"  # type: ignore[assignment]

    found = problems(lambda s: s.with_watermark("ts").key_by("k").process(Odd))
    assert any("timers='often' must be True" in problem for problem in found)
