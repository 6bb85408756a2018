"""A running topology without Spark: jobs that only say what happened to them, a checkpoint that counts, workers in a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from tests.unit.plan.build import graph, stateful, workers

from updraft.control import Journal
from updraft.plan import Plan, Worker, initial_plan
from updraft.runtime.course import LiveOptions
from updraft.runtime.live import LiveTopology
from updraft.runtime.residence import Residence
from updraft.state.manifest import Manifest
from updraft.topology.graph import Graph

APP = graph(stateful("op", 8, 2))


@dataclass
class Job:
    plan: Plan
    workers: tuple[Worker, ...]
    when_warmed: Callable[[Job], None]
    warmed: bool = False
    closed: bool = False

    def warm(self, before: object = None) -> None:
        self.when_warmed(self)
        self.warmed = True

    def abandon_warming(self, alive: frozenset[str]) -> None:
        pass

    def take_over(self, before: object) -> None:
        pass

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@dataclass
class Checkpoint:
    manifest: Manifest = field(
        default_factory=lambda: Manifest(batch=-1, attempt=0, topology="app", tables={})
    )
    local: Path | None = None
    path: str = "nowhere"
    withheld: bool = False  # a relaxed interval: nothing is published for now
    published: int = -1

    @property
    def committed(self) -> int:
        return self.manifest.batch

    def commit(self, batch: int) -> None:
        self.manifest = replace(self.manifest, batch=batch)
        if not self.withheld:
            self.published = batch


@dataclass
class Transfer:
    """Of state that there is none of."""

    is_busy: bool = False

    def abandon(self, alive: frozenset[str]) -> None:
        pass


class Run:
    """A `LiveTopology` and what the engine would do with it."""

    def __init__(self, *ids: str, app: Graph = APP, journal: Journal | None = None) -> None:
        self.here = workers(*ids)
        self.checkpoint = Checkpoint()
        self.jobs: list[Job] = []
        self.released: list[str] = []
        self.abandoned = 0
        self.batch = 0
        self.when_warmed: Callable[[Job], None] = lambda job: None
        checkpoint = cast(Any, self.checkpoint)
        self.live = LiveTopology(
            graph=app,
            checkpoint=checkpoint,
            residence=Residence(checkpoint, placed=bool(ids)),
            job=self.make_job(initial_plan(app, self.here), self.here),
            make_job=self.make_job,
            transfer=cast(Any, Transfer()) if ids else None,
            workers=lambda: self.here,
            alive=lambda: frozenset(worker.id for worker in self.here),
            release=self.released.append,
            journal=journal,
            options=LiveOptions(),
        )
        self.live.abandon = self.abandon

    def make_job(self, plan: Plan, here: tuple[Worker, ...]) -> Any:
        self.jobs.append(Job(plan, here, self.when_warmed))
        return self.jobs[-1]

    def abandon(self) -> None:
        self.abandoned += 1

    def lose(self, *ids: str) -> None:
        self.here = tuple(worker for worker in self.here if worker.id not in ids)

    def run_batch(self, *, committed: bool = True) -> Plan:
        """The plan it ran with."""
        plan = self.live.begin_batch(self.batch).plan
        if committed:
            self.checkpoint.commit(self.batch)
        self.live.end_batch(self.batch, committed=committed, seconds=0.1, rows=10)
        self.batch += committed
        return plan
