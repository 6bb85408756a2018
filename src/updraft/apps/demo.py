"""`updraft demo`: a stream on embedded Spark under a load that rises and falls, steered by a policy, then verified.

The same load runs twice: first with the policy, which gives the stemmer more instances when it needs them and takes them away
again, then with the one instance it begins with. The load is measured out for this machine: at its peak one instance cannot
keep up. Embedded Spark has no workers to add, so only the parallelism follows the load.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from updraft.apps import stems
from updraft.apps.load import Feeder, RiseAndFall
from updraft.apps.text import ZipfText
from updraft.apps.view import Side, Story, closing, comparison, draw
from updraft.shown import Shown

if TYPE_CHECKING:
    from updraft.control.decisions import DecisionRecord

_TOP = 6
_PLAIN_EVERY_S = 5.0
_DRAIN_S = 30.0
_PEAK_CORES = 1.3  # of stemming at the peak: more than one instance has
_LOW = 0.1  # of the peak
POLICY = "symbiotic"
PERIOD_S = 1.0


class Latest:
    """A sink callback that keeps the newest count of every word."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        table = frame.toArrow()
        fresh = dict(zip(table["stem"].to_pylist(), table["count"].to_pylist(), strict=True))
        with self._lock:
            self._counts.update(fresh)

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def top(self, size: int = _TOP) -> list[tuple[str, int]]:
        return sorted(self.counts().items(), key=lambda item: (-item[1], item[0]))[:size]


def differences(counted: dict[str, int], fed: dict[str, int]) -> int:
    """How many words have another count than was fed, missing and unknown words included."""
    return sum(counted.get(word) != fed.get(word) for word in counted.keys() | fed.keys())


def measured_load(seconds: float, word_s: float) -> RiseAndFall:
    """One hill whose top keeps stemming instances busy for `_PEAK_CORES` seconds per second."""
    high = _PEAK_CORES / word_s
    return RiseAndFall(seconds=seconds, low_per_s=_LOW * high, high_per_s=high, waves=1)


def settings() -> dict[str, object]:
    """The policy's waiting times in a world where a hill takes half a minute."""
    times = {"settle_s": 2.0, "cooldown_s": 4.0, "scale_in_after_s": 3.0, "drain_s": 8.0, "backlog_s": 3.0}
    return {
        **{f"stability.{name}": value for name, value in times.items()},
        "stability.rounds": 3,
        "provision_s": 5.0,
    }


def decision_text(record: DecisionRecord, elapsed_s: float) -> str | None:
    """One line for a decision when it is made; what was held back is not told here."""
    if record.fate.value != "running" or record.change_ids:
        return None
    return f"{elapsed_s:5.0f} s  {record.policy}: {', '.join(record.changes)}, because {'; '.join(record.reasons)}"


def main(seconds: float = 90, *, seed: int = 7, console: Console | None = None) -> int:
    """Run the demo for about `seconds` seconds; returns the process exit code."""
    console = console or Console()
    scratch = Path(tempfile.mkdtemp(prefix="updraft-demo-"))
    try:
        return _demo(scratch, seconds, seed, console)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _demo(scratch: Path, seconds: float, seed: int, console: Console) -> int:
    from updraft.runtime.session import remove_log, start_session

    began = time.monotonic()
    console.print("starting Spark on this machine; the first results appear in a few seconds")
    session, log = start_session("updraft-demo")
    try:
        # Start, the ends of both runs and the summary take their share: two hills fit into the rest.
        hill_s = max(5.0, (seconds - 30) / 2)
        load = measured_load(hill_s, stems.seconds_per_word(tuple(ZipfText(seed=seed).words[:500])))
        console.print(
            f"load: {load.low_per_s:,.0f} to {load.high_per_s:,.0f} words/s and back in {hill_s:.0f} s; embedded Spark has no "
            "workers to add, so the policy decides on parallelism only",
            soft_wrap=True,
        )
        show = _Show(console=console, began=began, seconds=seconds)
        _warm(session, scratch / "warm", show)
        steered = _run(session, scratch / "steered", load, seed, show, policy=POLICY)
        console.print(
            f"{time.monotonic() - began:5.0f} s  the same load again, with one instance all the time"
        )
        static = _run(session, scratch / "static", load, seed, show, policy="static")
    finally:
        session.stop()
    remove_log(log)
    console.print(closing(steered.story, wrong_words=steered.wrong_words + static.wrong_words))
    console.print(comparison(_side(f"policy {POLICY}", steered), _side("static, 1 instance", static)))
    return 0 if steered.wrong_words + static.wrong_words == 0 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Show:
    """Where and how things are shown."""

    console: Console
    began: float
    seconds: float

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    story: Story
    checkpoint: Path
    wrong_words: int


def _run(session: Any, scratch: Path, load: RiseAndFall, seed: int, show: _Show, *, policy: str) -> _Ran:
    import updraft as ud
    from updraft.runtime.lifecycle import run

    feeder = Feeder(scratch / "input", load, seed=seed)
    latest, story, stop = Latest(), Story(), threading.Event()
    lines = stems.Watched(scratch / "input", lambda: feeder.lines_fed - story.lines)
    app = stems.topology(
        lines, ud.sinks.callback(latest), parallelism=1, most=max(2, min(4, stems.usable_cores()))
    )
    with Live(console=show.console, refresh_per_second=4, transient=True) as live:
        on_batch = _watcher(show, live, story, feeder, latest)

        def decided(record: DecisionRecord) -> None:
            if (
                record.added_delay_ms is not None
                and record.ended_at_s is not None
                and record.measured_at_s is None
            ):
                story.changed(record.added_delay_ms)
            if (line := decision_text(record, show.elapsed_s)) is not None:
                show.console.print(line, highlight=False, markup=False, soft_wrap=True)

        def begun(_live: object) -> None:
            # Only now is everything up: a load begun earlier would arrive as one big first batch.
            feeder.start()
            threading.Thread(target=_stop_when_counted, args=(feeder, story, stop), daemon=True).start()

        run(
            app,
            spark=session,
            checkpoint=scratch / "checkpoint",
            progress=on_batch,
            stop=stop,
            on_start=begun,
            policy=policy,
            settings=settings(),
            period_s=PERIOD_S,
            on_decision=decided,
        )
    feeder.stop()
    feeder.join()
    wrong = differences(latest.counts(), stems.expected(feeder.expected()))
    return _Ran(story=story, checkpoint=scratch / "checkpoint", wrong_words=wrong)


def _warm(session: Any, scratch: Path, show: _Show) -> None:
    """A few small batches: the first ones of a JVM are slow, and would be the policy's to explain."""
    latest = Latest()

    def on_batch(summary: Shown) -> None:
        top = ", ".join(f"{word} {count:,}" for word, count in latest.top(3))
        show.console.print(
            f"{show.elapsed_s:5.0f} s  warming up, batch {summary.batch_id}: {top}", highlight=False
        )

    import updraft as ud
    from updraft.runtime.lifecycle import run

    feeder = Feeder(scratch / "input", RiseAndFall(seconds=1.0))
    for _ in range(4):
        feeder.feed_once(5_000)
    lines = stems.Watched(scratch / "input", files_per_batch=1)
    app = stems.topology(lines, ud.sinks.callback(latest), parallelism=2, most=2)
    run(
        app,
        spark=session,
        checkpoint=scratch / "checkpoint",
        until_idle=True,
        monitor=False,
        control=False,
        progress=on_batch,
    )


def _watcher(
    show: _Show, live: Live, story: Story, feeder: Feeder, latest: Latest
) -> Callable[[Shown], None]:
    last_line_s = 0.0

    def on_batch(summary: Shown) -> None:
        nonlocal last_line_s
        elapsed_s = show.elapsed_s
        story.add(summary, elapsed_s)
        if show.console.is_terminal:
            live.update(
                draw(
                    story,
                    elapsed_s=elapsed_s,
                    seconds=show.seconds,
                    fed_words=feeder.words_fed,
                    top=latest.top(),
                )
            )
        elif elapsed_s - last_line_s >= _PLAIN_EVERY_S:
            last_line_s = elapsed_s
            show.console.print(
                f"{elapsed_s:5.0f} s  batch {summary.batch_id}: {story.recent_words_per_s[-1]:,.0f} words/s, "
                f"{1000 * summary.seconds:,.0f} ms, stem × {summary.parallelism.get('stem', 1)}"
            )

    return on_batch


def _stop_when_counted(feeder: Feeder, story: Story, stop: threading.Event) -> None:
    """Not in on_batch: after the last batch there may be none that notices that the feeder is done."""
    feeder.join()
    deadline = time.monotonic() + _DRAIN_S
    while story.words < feeder.words_fed and time.monotonic() < deadline:
        time.sleep(0.1)
    stop.set()


def _side(name: str, ran: _Ran) -> Side:
    """What the metrics store of a run says about it."""
    from updraft.monitor import MetricsUnreadable, read_metrics
    from updraft.monitor.quality import instance_seconds, oldest_p99_s
    from updraft.runtime.steered import METRICS_FILE

    try:
        batches = read_metrics(ran.checkpoint / METRICS_FILE, "stems", last=10_000)
    except MetricsUnreadable:
        batches = ()
    return Side(
        name=name,
        latency_p99_s=oldest_p99_s(batches),
        instance_s=instance_seconds(batches, "stem"),
        changes=ran.story.changes,
    )
