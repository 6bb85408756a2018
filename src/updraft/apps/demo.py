"""`updraft demo`: word count on embedded Spark under a load that rises and falls, live, then verified.

The number of counting instances follows the load while the topology runs. The rule is a simple one of the demo's own.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from updraft.apps import wordcount
from updraft.apps.load import Feeder, RiseAndFall
from updraft.apps.view import Story, closing, draw
from updraft.shown import Shown

if TYPE_CHECKING:
    from updraft.runtime.live import LiveTopology

_TOP = 6
_PLAIN_EVERY_S = 5.0
_DRAIN_S = 60.0
_WORDS_PER_INSTANCE = 90_000
_MOST_INSTANCES = 4


class Latest:
    """A sink callback that keeps the newest count of every word."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        table = frame.toArrow()
        fresh = dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))
        with self._lock:
            self._counts.update(fresh)

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def top(self, size: int = _TOP) -> list[tuple[str, int]]:
        return sorted(self.counts().items(), key=lambda item: (-item[1], item[0]))[:size]


def wanted_instances(words_per_s: float, now: int) -> int:
    """How many counting instances a load deserves: one per so many words, and fewer only when clearly too many."""
    wanted = min(_MOST_INSTANCES, max(1, ceil(words_per_s / _WORDS_PER_INSTANCE)))
    fewer = min(_MOST_INSTANCES, max(1, ceil(1.3 * words_per_s / _WORDS_PER_INSTANCE)))
    return wanted if wanted >= now else min(now, fewer)


class Scaler:
    """Asks for more or fewer instances as the load rises and falls, while the topology runs."""

    def __init__(self, story: Story, say: Callable[[str], None]) -> None:
        self._story, self._say = story, say
        self._live: LiveTopology | None = None
        self._change: int | None = None

    def start(self, live: LiveTopology) -> None:
        self._live = live

    def after_batch(self, elapsed_s: float) -> None:
        """Look at the last few seconds; one change at a time."""
        live = self._live
        if live is None or elapsed_s < 10 or not self._story.recent_words_per_s:
            return
        if self._change is not None:
            record = live.change(self._change)
            if record["outcome"] == "running":
                return
            self._story.changed(record["added_delay_ms"])
            self._change = None
        recent = list(self._story.recent_words_per_s)[-6:]
        load = sum(recent) / len(recent)
        now = self._story.parallelism["count"]
        wanted = wanted_instances(load, now)
        if wanted != now:
            from updraft.control import Rescale

            self._change = live.apply(Rescale(parallelism={"count": wanted}), who="demo").change_id
            self._say(
                f"{elapsed_s:5.0f} s  load {load:,.0f} words/s: count × {now} → × {wanted}, without stopping"
            )


def differences(counted: dict[str, int], fed: dict[str, int]) -> int:
    """How many words have another count than was fed, missing and unknown words included."""
    return sum(counted.get(word) != fed.get(word) for word in counted.keys() | fed.keys())


def main(seconds: float = 90, *, seed: int = 7, console: Console | None = None) -> int:
    """Run the demo for about `seconds` seconds; returns the process exit code."""
    console = console or Console()
    scratch = Path(tempfile.mkdtemp(prefix="updraft-demo-"))
    try:
        return _run(scratch, seconds, seed, console)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(scratch: Path, seconds: float, seed: int, console: Console) -> int:
    import updraft as ud
    from updraft.runtime import run

    began = time.monotonic()
    # Start-up and the last batches take their share: the load itself is shorter than the demo.
    feeder = Feeder(scratch / "input", RiseAndFall(seconds=max(5.0, seconds - 20)), seed=seed)
    latest, story, stop = Latest(), Story(), threading.Event()
    scaler = Scaler(story, console.print)
    app = wordcount.topology(scratch / "input", ud.sinks.callback(latest), parallelism=1)
    interactive = console.is_terminal
    last_line_s = 0.0

    console.print("starting Spark on this machine; the first results appear in a few seconds")
    with Live(console=console, refresh_per_second=4, transient=True) as live:

        def picture() -> Any:
            elapsed_s = time.monotonic() - began
            return draw(
                story, elapsed_s=elapsed_s, seconds=seconds, fed_words=feeder.words_fed, top=latest.top()
            )

        def on_batch(summary: Shown) -> None:
            nonlocal last_line_s
            elapsed_s = time.monotonic() - began
            story.add(summary, elapsed_s)
            scaler.after_batch(elapsed_s)
            if interactive:
                live.update(picture())
            elif elapsed_s - last_line_s >= _PLAIN_EVERY_S:
                last_line_s = elapsed_s
                console.print(
                    f"{elapsed_s:5.0f} s  batch {summary.batch_id}: "
                    f"{story.recent_words_per_s[-1]:,.0f} words/s, "
                    f"{1000 * summary.seconds:,.0f} ms, {summary.state_rows:,} stored rows"
                )

        def build(spark: Any) -> Any:
            # Only now is Spark up: a load begun earlier would arrive as one big first batch.
            feeder.start()
            threading.Thread(target=stop_when_counted, daemon=True).start()
            return app

        def stop_when_counted() -> None:
            # Not in on_batch: after the last batch there may be none that notices that the feeder is done.
            feeder.join()
            deadline = time.monotonic() + _DRAIN_S
            while story.words < feeder.words_fed and time.monotonic() < deadline:
                time.sleep(0.1)
            stop.set()

        run(build, checkpoint=scratch / "checkpoint", progress=on_batch, stop=stop, on_start=scaler.start)
    feeder.stop()
    feeder.join()
    wrong_words = differences(latest.counts(), feeder.expected())
    console.print(closing(story, wrong_words=wrong_words))
    return 0 if wrong_words == 0 else 1
