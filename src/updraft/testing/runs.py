"""Runs a topology over a scripted source from marker to marker, crashing where the script says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from updraft.errors import UpdraftError
from updraft.runtime import faults
from updraft.testing.script import Scene, ScriptedSource

if TYPE_CHECKING:
    from updraft.runtime.progress import BatchSummary, RunResult
    from updraft.topology import Topology


class ScriptedCrash(UpdraftError):
    """The crash an `ABORT` asked for; `run_script` turns it into an outcome."""


class Outcome(Enum):
    """How a scripted run ended."""

    ENDED = "ended"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """One run of a script; `result` is None if it crashed."""

    outcome: Outcome
    batches: tuple[BatchSummary, ...]
    result: RunResult | None

    @property
    def batch_ids(self) -> tuple[int, ...]:
        """The batches this run committed."""
        return tuple(batch.batch_id for batch in self.batches)


def run_script(
    build: Callable[[ScriptedSource], Topology],
    source: ScriptedSource,
    *,
    checkpoint: str | Path,
    spark: Any = None,
    **options: Any,
) -> ScriptRun:
    """Run until the next marker of `source`; call it again to restart on the same checkpoint.

        def build(source):
            app = ud.Topology("counts")
            app.source("words", source.frame).key_by("word").count("n").sink("out", sink)
            return app

        source = ScriptedSource(schema, [batch0, ABORT, batch1, batch2])
        assert run_script(build, source, checkpoint=path).outcome is Outcome.ABORTED   # crashed inside batch 1
        assert run_script(build, source, checkpoint=path).batch_ids == (1, 2)          # nothing lost, nothing twice
        assert_equals_recomputation(sink, recompute(source.tables, ["word"], n=ud.count()), ["word"])

    `build` is called for every run, as a restarted program would. `options` go to `updraft.run`.
    """
    from updraft.runtime.lifecycle import run

    scene = source.open_scene()
    batches: list[BatchSummary] = []
    with _crashing(scene):
        try:
            result = run(
                build(source),
                checkpoint=checkpoint,
                spark=spark,
                until_idle=True,
                progress=batches.append,
                **options,
            )
        except ScriptedCrash:
            return ScriptRun(outcome=Outcome.ABORTED, batches=tuple(batches), result=None)
    return ScriptRun(outcome=Outcome.ENDED, batches=tuple(batches), result=result)


@contextmanager
def _crashing(scene: Scene) -> Iterator[None]:
    def crash(moment: str, batch_id: int) -> None:
        if batch_id == scene.crash_batch and moment == scene.crash_moment:
            raise ScriptedCrash(f"the script crashes batch {batch_id} at '{moment}'")

    before, faults.hook = faults.hook, crash
    try:
        yield
    finally:
        faults.hook = before
