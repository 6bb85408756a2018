"""The demo's live terminal view and its closing summary, from nothing but per-batch progress.

Everything shown is computed by `Story`, a plain value that a test can fill; drawing is separate from it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from updraft.shown import Shown

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Story:
    """What has happened so far in a run."""

    words_per_line: int = 10
    batches: int = 0
    words: int = 0
    batch_ms: list[float] = field(default_factory=list)
    recent_words_per_s: deque[float] = field(default_factory=lambda: deque(maxlen=60))
    recent_ms: deque[float] = field(default_factory=lambda: deque(maxlen=60))
    state_rows: int = 0
    state_bytes: int = 0
    parallelism: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    longest_delay_ms: float = 0.0
    highest_parallelism: int = 0
    first_output_s: float | None = None
    highest_words_per_s: float = 0.0
    _last_s: float | None = None

    @property
    def lines(self) -> int:
        """Lines in the batches so far."""
        return self.words // self.words_per_line

    def add(self, summary: Shown, elapsed_s: float) -> None:
        """Take in one finished batch, `elapsed_s` seconds after the run began."""
        words = summary.rows_in * self.words_per_line
        # The span between two ends, not the batch's own time: an idle source must show as a low rate.
        span_s = elapsed_s - self._last_s if self._last_s is not None else summary.seconds
        self._last_s = elapsed_s
        self.batches += 1
        self.words += words
        self.batch_ms.append(1000 * summary.seconds)
        self.recent_ms.append(1000 * summary.seconds)
        self.recent_words_per_s.append(words / span_s if span_s > 0 else 0.0)
        self.highest_words_per_s = max(self.highest_words_per_s, self.recent_words_per_s[-1])
        self.state_rows, self.state_bytes = summary.state_rows, summary.state_bytes
        self.parallelism = dict(summary.parallelism)
        self.highest_parallelism = max(self.highest_parallelism, *self.parallelism.values(), 0)
        if self.first_output_s is None and summary.rows_out:
            self.first_output_s = elapsed_s

    def changed(self, added_delay_ms: float | None) -> None:
        """A change of the plan is over."""
        self.changes += 1
        self.longest_delay_ms = max(self.longest_delay_ms, added_delay_ms or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two runs of the same load."""

    name: str
    latency_p99_s: float
    instance_s: float
    changes: int


def comparison(*sides: Side) -> RenderableType:
    """Runs of the same load beside each other."""
    table = Table(title="the same load, with and without the policy", title_justify="left")
    table.add_column("")
    for side in sides:
        table.add_column(side.name, justify="right")
    table.add_row("latency of the slowest 1 % of rows", *(f"{side.latency_p99_s:,.1f} s" for side in sides))
    table.add_row("instance-seconds of the stemmer", *(f"{side.instance_s:,.0f}" for side in sides))
    table.add_row("changes of the plan", *(f"{side.changes}" for side in sides))
    return table


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def sparkline(values: deque[float]) -> str:
    """One bar character per value, scaled to the largest."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] for value in values)


def draw(
    story: Story, *, elapsed_s: float, seconds: float, fed_words: int, top: list[tuple[str, int]]
) -> RenderableType:
    """The live view."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    last_rate = story.recent_words_per_s[-1] if story.recent_words_per_s else 0.0
    last_ms = story.recent_ms[-1] if story.recent_ms else 0.0
    grid.add_row("load", f"{last_rate:,.0f} words/s", Text(sparkline(story.recent_words_per_s), style="cyan"))
    grid.add_row("batch time", f"{last_ms:,.0f} ms", Text(sparkline(story.recent_ms), style="yellow"))
    grid.add_row("not yet counted", f"{max(0, fed_words - story.words):,} words", "")
    grid.add_row("state", f"{story.state_rows:,} stored rows", f"{story.state_bytes / 1e6:,.1f} MB")
    instances = ", ".join(f"{name} × {count}" for name, count in sorted(story.parallelism.items()))
    grid.add_row("instances", "", instances)
    words = ", ".join(f"{word} {count:,}" for word, count in top)
    title = f"updraft demo · count of stems · {elapsed_s:.0f} of {seconds:.0f} s · batch {story.batches}"
    return Panel(Group(grid, Text(f"\nmost frequent: {words or 'waiting for the first batch'}")), title=title)


def closing(story: Story, *, wrong_words: int | None) -> RenderableType:
    """The summary at the end; `wrong_words` is how many words have a count that differs from a recount."""
    table = Table(title="what happened", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("words counted", f"{story.words:,} in {story.batches:,} batches")
    if story.first_output_s is not None:
        table.add_row("first result after", f"{story.first_output_s:.1f} s")
    table.add_row("fastest counting", f"{story.highest_words_per_s:,.0f} words/s")
    table.add_row(
        "time per batch",
        f"{percentile(story.batch_ms, 0.5):,.0f} ms typical, "
        f"{percentile(story.batch_ms, 0.99):,.0f} ms for the slowest 1 %",
    )
    table.add_row(
        "state kept",
        f"{story.state_rows:,} stored rows, {story.state_bytes / 1e6:,.1f} MB, saved after every batch",
    )
    table.add_row(
        "changes while running",
        f"{story.changes} (up to {story.highest_parallelism} instances), the longest delayed one batch by "
        f"{story.longest_delay_ms:,.0f} ms",
    )
    if wrong_words is not None:
        verdict = "every count is exact" if wrong_words == 0 else f"{wrong_words:,} words have a wrong count"
        table.add_row("compared with a recount", verdict)
    return table
