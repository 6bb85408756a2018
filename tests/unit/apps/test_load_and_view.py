from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from updraft.apps import wordcount
from updraft.apps.demo import differences, measured_load, settings
from updraft.apps.load import Feeder, RiseAndFall
from updraft.apps.porter import stem
from updraft.apps.stems import expected as expected_stems
from updraft.apps.stems import seconds_per_word, stems
from updraft.apps.view import Side, Story, closing, comparison, draw, percentile, sparkline
from updraft.policy.settings import check, settings_from


@dataclass(frozen=True)
class Summary:
    batch_id: int = 0
    rows_in: int = 100
    rows_out: int = 10
    seconds: float = 0.2
    state_rows: int = 50
    state_bytes: int = 4_000_000
    parallelism: Mapping[str, int] = field(default_factory=lambda: {"count": 2})


def test_load_rises_and_falls() -> None:
    load = RiseAndFall(seconds=40, low_per_s=10, high_per_s=110, waves=2)
    rates = [load.words_per_s(t) for t in (0, 10, 20, 30, 40)]
    assert rates == pytest.approx([10, 110, 10, 110, 10])
    assert load.words_per_s(41) == 0


def test_what_was_fed_is_what_is_in_the_files(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, RiseAndFall(seconds=1))
    assert feeder.feed_once(204) == 200
    assert feeder.feed_once(0) == 10
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    assert wordcount.expected(files) == feeder.expected()
    assert feeder.words_fed == 210
    assert feeder.lines_fed == 21


def test_a_feeder_ends_by_itself(tmp_path: Path) -> None:
    feeder = Feeder(
        tmp_path / "input", RiseAndFall(seconds=0.1, low_per_s=1000, high_per_s=2000), every_s=0.02
    )
    feeder.start()
    feeder.join(10)
    assert feeder.done
    assert wordcount.expected(sorted((tmp_path / "input").iterdir())) == feeder.expected()


def test_a_story_adds_up() -> None:
    story = Story()
    story.add(Summary(rows_out=0), elapsed_s=5)
    story.add(Summary(batch_id=1, rows_in=300), elapsed_s=7)
    assert story.words == 4_000
    assert story.recent_words_per_s[-1] == 1_500
    assert story.first_output_s == 7


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.99, 4.0), (0.25, 1.0), (1.0, 4.0)])
def test_percentile_is_a_value_that_occurred(share: float, value: float) -> None:
    assert percentile([3.0, 1.0, 4.0, 2.0], share) == value


def test_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.5) == 0.0


def test_sparkline_scales_to_the_largest() -> None:
    assert sparkline(deque([0.0, 4.0, 8.0])) == "▁▅█"
    assert sparkline(deque([0.0, 0.0])) == "▁▁"


def test_view_and_summary_say_what_matters() -> None:
    console = Console(record=True, width=120, force_terminal=False)
    story = Story()
    console.print(draw(story, elapsed_s=0, seconds=90, fed_words=0, top=[]))
    story.add(Summary(), elapsed_s=3)
    console.print(draw(story, elapsed_s=3, seconds=90, fed_words=1_500, top=[("the", 12)]))
    console.print(closing(story, wrong_words=0))
    console.print(closing(story, wrong_words=3))
    text = console.export_text()
    for part in (
        "waiting for the first batch",
        "the 12",
        "500 words",
        "count × 2",
        "every count is exact",
        "3 words",
    ):
        assert part in text


def test_differences_see_missing_unknown_and_wrong_words() -> None:
    assert differences({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 1, "d": 1}) == 3
    assert differences({"a": 1}, {"a": 1}) == 0


def test_the_demos_load_is_measured_out_for_the_machine() -> None:
    load = measured_load(30, 2e-6)
    assert load.high_per_s == pytest.approx(650_000)
    assert load.words_per_s(15) == pytest.approx(load.high_per_s)
    assert load.words_per_s(0) == pytest.approx(0.1 * load.high_per_s)
    assert seconds_per_word(("stopping", "cluster"), least_s=0.01) > 0


def test_the_demos_settings_are_settings() -> None:
    found = settings_from(settings())
    check(found)
    assert found.stability.settle_s == 2.0


@pytest.mark.parametrize(
    ("word", "root"),
    [
        *(("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("is", "is"), ("", "")),
        *(
            ("agreed", "agre"),
            ("feed", "feed"),
            ("plastered", "plaster"),
            ("sing", "sing"),
            ("motoring", "motor"),
        ),
        *(
            ("conflated", "conflat"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("filing", "file"),
            ("happy", "happi"),
        ),
        *(("relational", "relat"), ("conditional", "condit"), ("rational", "ration"), ("sky", "sky")),
        *(
            ("triplicate", "triplic"),
            ("hopefulness", "hope"),
            ("electrical", "electr"),
            ("movement", "movement"),
        ),
        *(("replacement", "replac"), ("adoption", "adopt"), ("probate", "probat"), ("rate", "rate")),
        *(("controlling", "control"), ("rolling", "roll"), ("generalizations", "gener"), ("by", "by")),
    ],
)
def test_stems(word: str, root: str) -> None:
    assert stem(word) == root


def test_stems_of_lines_are_those_of_their_words() -> None:
    lines = pa.table({"value": ["the cats  running", None, "", "cat"]})
    assert Counter(stems(lines)["stem"].to_pylist()) == expected_stems(
        {"the": 1, "cats": 1, "running": 1, "cat": 1}
    )


def test_the_comparison_shows_both_sides() -> None:
    console = Console(record=True, width=120, force_terminal=False)
    console.print(
        comparison(
            Side(name="policy", latency_p99_s=1.25, instance_s=40, changes=2),
            Side(name="static", latency_p99_s=9.0, instance_s=30, changes=0),
        )
    )
    text = console.export_text()
    for part in ("policy", "static", "1.2 s", "9.0 s", "40", "30"):
        assert part in text
