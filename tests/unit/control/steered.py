"""A run that only pretends: a plan over workers, changes that end when they are told to, a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from updraft.control import ChangeRefused, ChangeTicket, Preview, Request, UnknownChange
from updraft.control.decisions import Decisions
from updraft.control.loop import ControlLoop, LoopOptions
from updraft.control.proposals import leaving_of, preview_of
from updraft.control.requests import Replan
from updraft.control.steering import Mode, Running
from updraft.monitor import MetricsStore, OperatorShape, Shape
from updraft.monitor.feed import Feed
from updraft.plan import Instance, Plan, Worker
from updraft.plan.initial import split_tasks
from updraft.policy import Decision, Memory, Policy, Settings, Snapshot
from updraft.policy.model import Forecast, hold
from updraft.testing.clock import ManualClock

SHAPE = Shape(
    topology="app", operators=(OperatorShape(name="count", inputs=("words",), level=1, tasks=8, highest=8),)
)


def worker(number: int) -> Worker:
    return Worker(id=str(number), host="here", location=f"executor_here_{number}", cores=1)


def plan(parallelism: int, workers: tuple[Worker, ...] = (), version: int = 1) -> Plan:
    """`count` dealt over the workers in turn."""
    return Plan(
        version=version,
        effective_from=0,
        instances={
            "count": tuple(
                Instance(
                    operator="count",
                    index=index,
                    tasks=tasks,
                    worker=workers[index % len(workers)].id if workers else None,
                )
                for index, tasks in enumerate(split_tasks(8, parallelism))
            )
        },
    )


@dataclass(slots=True, kw_only=True)
class FakeRun:
    """Implements `Steered`. `ends`: how changes end; None: they go on until `finish`."""

    plan: Plan
    workers: tuple[Worker, ...] = ()
    leaving: tuple[str, ...] = ()
    by_hand_s: float | None = None
    ends: str | None = "done"
    refuses: str = ""
    asked: list[Request] = field(default_factory=list)
    changes: dict[int, dict[str, Any]] = field(default_factory=dict)
    wanted_workers: list[int] = field(default_factory=list)

    def running(self) -> Running:
        changing = any(change["outcome"] == "running" for change in self.changes.values())
        return Running(
            plan=self.plan,
            workers=self.workers,
            changing=changing,
            leaving=self.leaving,
            by_hand_s=self.by_hand_s,
        )

    def preview(self, request: Request) -> Preview:
        return preview_of(
            request,
            self.plan,
            self._target(request),
            chains={},
            window_bytes=1,
            bytes_per_s=1,
            median_batch_ms=None,
        )

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket:
        preview = self.preview(request)
        self.asked.append(request)
        number = len(self.asked)
        self.changes[number] = {
            "outcome": "running",
            "added_delay_ms": 12.0,
            "plan_to": preview.target.version,
        }
        if self.ends is not None:
            self.finish(number, self.ends)
        return ChangeTicket(change_id=number, preview=preview)

    def change(self, change_id: int) -> Mapping[str, Any]:
        if change_id not in self.changes:
            raise UnknownChange(f"there is no change {change_id}")
        return self.changes[change_id]

    def finish(self, number: int, outcome: str) -> None:
        """The change ends; done: it is the plan now, and workers it gives back are gone."""
        self.changes[number]["outcome"] = outcome
        self.changes[number]["reason"] = "" if outcome == "done" else "worker 2 was lost"
        if outcome == "done":
            request = self.asked[number - 1]
            self.plan = self._target(request)
            self.workers = tuple(one for one in self.workers if one.id not in leaving_of(request))

    def _target(self, request: Request) -> Plan:
        assert isinstance(request, Replan)
        if self.refuses:
            raise ChangeRefused([self.refuses])
        rest = tuple(one for one in self.workers if one.id not in request.release)
        count = request.parallelism.get("count", self.plan.parallelism()["count"])
        target = plan(count, rest, self.plan.version + 1)
        return replace(target, effective_from=self.plan.effective_from)


@dataclass(slots=True, kw_only=True)
class Scripted:
    """A policy that wants what it is told, round by round; an exception is raised. Afterwards it holds."""

    wants: list[Any]
    seen: list[Snapshot] = field(default_factory=list)

    def __call__(
        self, snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings
    ) -> Decision:
        self.seen.append(snapshot)
        want = self.wants.pop(0) if self.wants else None
        if isinstance(want, Exception):
            raise want
        kept = hold(snapshot, memory, "scripted", "told so")
        return kept if want is None else replace(kept, **{"changed": True, **want})


@dataclass(slots=True, kw_only=True)
class Scene:
    """A loop around a fake run; `rounds` moves the clock."""

    run: FakeRun
    loop: ControlLoop
    clock: ManualClock
    policy: Scripted

    def rounds(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(10)
            self.loop.tick()
            self.loop.tick()  # a change that ended is seen by the next look


def scene(
    wants: list[Any],
    *,
    workers: int = 0,
    parallelism: int = 1,
    mode: Mode = Mode.AUTO,
    directory: Path | None = None,
    settings: Settings | None = None,
    **run: Any,
) -> Scene:
    here = tuple(worker(number) for number in range(1, workers + 1))
    found = FakeRun(plan=plan(parallelism, here), workers=here, **run)
    clock = ManualClock(1_000_000)

    policy = Scripted(wants=wants)
    loop = ControlLoop(
        topology=found,
        shape=SHAPE,
        feed=Feed("app", MetricsStore(None, say=lambda text: None), clock=clock),
        decisions=Decisions(None if directory is None else directory / "decisions.jsonl"),
        options=LoopOptions(
            policy=Policy(name="scripted", summary="", decide=policy),
            mode=mode,
            settings=settings or Settings(),
            price_per_worker_hour=0.5,
        ),
        ask_workers=found.wanted_workers.append,
        clock=clock,
    )
    loop.tick()  # the first look only starts the clock
    return Scene(run=found, loop=loop, clock=clock, policy=policy)
