from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from updraft.apps import schedules
from updraft.apps.schedule_text import EXAMPLES, parse_schedule
from updraft.apps.schedules import BadSchedule, Piece, Schedule

rates = st.floats(0, 5_000)
pieces = st.builds(Piece, st.floats(0.05, 30), rates, rates, st.booleans())
any_schedule = st.builds(lambda made: Schedule(pieces=tuple(made)), st.lists(pieces, min_size=1, max_size=6))


@settings(deadline=None)  # the machine is shared
@given(any_schedule, st.lists(st.floats(-1, 200), max_size=20))
def test_however_time_is_cut_no_event_is_lost_or_repeated(schedule: Schedule, cuts: list[float]) -> None:
    looks = [0.0, *sorted(min(max(cut, 0.0), schedule.seconds) for cut in cuts), schedule.seconds]
    counts = [schedule.events_between(a, b) for a, b in itertools.pairwise(looks)]
    assert all(count >= 0 for count in counts)
    assert sum(counts) == schedule.total_events
    assert schedule.events_between(schedule.seconds, schedule.seconds + 100) == 0


@settings(deadline=None)  # the machine is shared
@given(any_schedule)
def test_the_integral_is_the_area_under_the_rate(schedule: Schedule) -> None:
    edges_s = np.cumsum([0.0] + [piece.seconds for piece in schedule.pieces])
    area = 0.0
    for start_s, end_s in itertools.pairwise(edges_s):
        middles_s = start_s + (np.arange(400) + 0.5) * (end_s - start_s) / 400
        area += sum(schedule.rate_at(float(t)) for t in middles_s) * (end_s - start_s) / 400
    assert float(schedule.integral(np.array([schedule.seconds]))[0]) == pytest.approx(
        area, rel=1e-4, abs=1e-3
    )


@pytest.mark.parametrize(
    ("text", "seconds", "rates_at"),
    [
        ("constant:500/60s", 60, {0: 500, 59: 500, 61: 0, -1: 0}),
        ("ramp:100..1000/90s", 90, {0: 100, 45: 550, 90: 1000}),
        ("stair:100..1000/4x10s", 40, {0: 100, 9.9: 100, 10: 400, 25: 700, 39: 1000}),
        ("step:100..400/30s,1m", 90, {29: 100, 30: 400, 89: 400}),
        ("square:0..10/3x20s", 60, {5: 0, 15: 10, 25: 0, 35: 10}),
        ("sine:100..300/2x20s", 40, {0: 100, 5: 200, 10: 300, 20: 100, 30: 300}),
        ("phases:1,2,3/10s", 30, {0: 1, 10: 2, 20: 3}),
        ("phases:1,2/10s,500ms", 10.5, {9: 1, 10.2: 2}),
        ("phases:120,350,900,250,120/900s", 4500, {0: 120, 1000: 350, 2000: 900, 3000: 250, 4000: 120}),
        ("flash:100..2000/100s", 100, {10: 100, 40: 2000, 95: 100}),
        ("constant:2/1s*2.5+constant:1/1s", 2, {0.5: 5, 1.5: 1}),
    ],
)
def test_shapes(text: str, seconds: float, rates_at: dict[float, float]) -> None:
    schedule = parse_schedule(text)
    assert schedule.seconds == pytest.approx(seconds)
    assert {t: schedule.rate_at(t) for t in rates_at} == pytest.approx(rates_at)


def test_paper_one_has_its_phases() -> None:
    assert schedules.five_phases() == parse_schedule("phases:120,350,900,250,120/900s")
    assert schedules.five_phases().total_events == 900 * (120 + 350 + 900 + 250 + 120)


def test_random_producers_are_whole_and_come_from_their_seed() -> None:
    drawn = parse_schedule("random:1..25x400/200x10s@7")
    producers = [piece.start_per_s / 400 for piece in drawn.pieces]
    assert set(producers) <= set(range(1, 26))
    assert len(set(producers)) > 15
    assert drawn == parse_schedule("random:1..25x400/200x10s@7")
    assert drawn != parse_schedule("random:1..25x400/200x10s@8")


def test_a_week_has_nights_and_a_quieter_end() -> None:
    week = schedules.season(100, 1100, 7, day_s=100)
    peaks = [max(week.rate_at(100 * day + t) for t in range(100)) for day in range(7)]
    nights = [min(week.rate_at(100 * day + t) for t in range(100)) for day in range(7)]
    assert peaks == pytest.approx([1100] * 5 + [700] * 2)
    assert nights == pytest.approx([100] * 7)


def test_a_trace_is_followed_and_compressed(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("seconds,rate\n0,100\n60,200\n120,0\n")
    slow = schedules.trace(path)
    assert [slow.rate_at(t) for t in (0, 30, 60, 90)] == pytest.approx([100, 150, 200, 100])
    quick = parse_schedule(f"trace:{path}/60")
    assert quick.seconds == pytest.approx(2)
    assert quick.rate_at(1) == pytest.approx(200)


@pytest.mark.parametrize(
    ("body", "complaints"),
    [
        ("", ["at least two lines"]),
        ("seconds,rate\n0,1\n5,x\n4,1\n3,-1\n", ["line 3", "line 5"]),
        ("0,1\n0,2\n", ["line 2", "does not come after"]),
        ("0,1\n1,nan\n", ["line 2", "at least 0"]),
        ("0,1,2\n1,1\n2,3,4\n", ["line 3"]),
    ],
)
def test_a_bad_trace_names_its_lines(tmp_path: Path, body: str, complaints: list[str]) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(body)
    with pytest.raises(BadSchedule) as caught:
        schedules.trace(path)
    assert all(complaint in str(caught.value) for complaint in complaints)


def test_a_missing_trace() -> None:
    with pytest.raises(BadSchedule, match="cannot be read"):
        parse_schedule("trace:/nowhere/load.csv/60")


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_can_be_read(text: str) -> None:
    assert parse_schedule(text).total_events > 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "shapes are constant"),
        ("wave:1..2/3s", "shapes are"),
        ("ramp:1..2", "no '/'"),
        ("ramp:1-2/3s", "no range"),
        ("ramp:1..2/3", "not a duration"),
        ("ramp:a..2/3s", "'a' is no number"),
        ("stair:1..2/5s", "TIMESxDURATION"),
        ("stair:1..2/1x5s", "at least 2 steps"),
        ("sine:1..2/0x5s", "at least one period"),
        ("constant:-1/5s", "at least 0"),
        ("constant:nan/5s", "at least 0"),
        ("step:1..2/5s", "BEFORE,AFTER"),
        ("phases:1,2/1s,2s,3s", "2 rates and 3 times"),
        ("random:1..25/3x10s", "LEAST..MOSTxRATE"),
        ("random:9..2x10/3x10s", "9..2"),
        ("trace:x.csv/0", "cannot be read"),
    ],
)
def test_what_cannot_be_read_says_how_to_write_it(text: str, complaint: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        parse_schedule(text)
    assert complaint in str(caught.value)


def test_all_bad_parts_are_named_at_once() -> None:
    with pytest.raises(BadSchedule) as caught:
        parse_schedule("ramp:1..x/3s+constant:5/10s+hill:3/4s")
    assert "'ramp:1..x/3s'" in str(caught.value)
    assert "'hill:3/4s'" in str(caught.value)
    assert "constant:5/10s'" not in str(caught.value).split(" cannot be read: ")[1]


def test_a_schedule_of_nothing_is_refused() -> None:
    with pytest.raises(BadSchedule, match="no pieces"):
        Schedule(pieces=())
    with pytest.raises(BadSchedule, match="piece 0: it lasts 0 s"):
        Schedule(pieces=(Piece(0, 1, 1),))
