"""What a request means for a plan: the target it leads to, and what getting there would cost. Pure.

Changes add up: a request made while another one is being prepared starts from that one's target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from updraft.control.controls import Preview
from updraft.control.errors import ChangeRefused
from updraft.control.requests import Drain, Move, PlaceAgain, Replan, Request, Rescale
from updraft.placement.running import Placed
from updraft.plan import (
    Plan,
    Refusal,
    Worker,
    changed_tasks,
    diff,
    drain,
    move,
    replan,
    rescale,
    strategy_named,
    validate,
)
from updraft.plan.diff import Copy
from updraft.plan.model import TaskKey
from updraft.plan.protocol import Chain
from updraft.topology.graph import Graph

Place: TypeAlias = Callable[[str, Plan, Plan, tuple[Worker, ...]], Placed]
"""(name of a placement, plan now, plan wanted, workers it may use) -> the plan wanted, with instances where it puts them."""


def target_of(
    request: Request,
    plan: Plan,
    graph: Graph,
    workers: Iterable[Worker],
    place: Place | None = None,
    *,
    placement: str | None = None,
    said: list[str] | None = None,
) -> Plan:
    """The plan a request asks for; ChangeRefused with every reason why it cannot be.

    placement: where rescaled instances go, if the request does not say. said: gets the placement's reasons.
    """
    here = tuple(workers)
    found: Plan | Refusal
    match request:
        case Rescale():
            found = rescale(plan, graph, request.parallelism, here)
        case Move():
            found = move(plan, graph, request.operator, request.tasks, request.to_worker, here)
        case Drain():
            found = drain(plan, request.worker, here)
        case Replan():
            found = replan(
                plan,
                graph,
                request.parallelism,
                here,
                leaving=request.release,
                moves=request.moves,
                relocated=request.relocated,
            )
        case PlaceAgain():
            if not here:
                raise ChangeRefused(["embedded Spark has one worker: there is nothing to place"])
            found = replace(plan, version=plan.version + 1)
    if isinstance(found, Refusal):
        raise ChangeRefused(found.problems)
    leaving = leaving_of(request)
    rest = tuple(worker for worker in here if worker.id not in leaving)
    wanted = _placement_of(request, placement)
    if wanted is not None and rest:
        if place is None:
            raise ChangeRefused([f"this run knows no placement '{wanted}'"])
        placed = place(wanted, plan, found, rest)
        if isinstance(placed.plan, Refusal):
            raise ChangeRefused(placed.plan.problems)
        found = placed.plan
        if said is not None:
            said += placed.reasons
    if problems := validate(found, graph, rest):
        raise ChangeRefused(problems)
    return found


def _placement_of(request: Request, usual: str | None) -> str | None:
    match request:
        case PlaceAgain():
            return request.placement
        case Replan():
            return request.placement
        case Rescale():
            return usual
        case _:
            return None


def leaving_of(request: Request) -> tuple[str, ...]:
    """Workers that have nothing left to do when the request is carried out."""
    match request:
        case Drain():
            return (request.worker,)
        case Replan():
            return request.release
        case _:
            return ()


def released_by(request: Request) -> tuple[str, ...]:
    """Workers that a request, once done, gives back to the cluster."""
    match request:
        case Drain(release=True):
            return (request.worker,)
        case Replan():
            return request.release
        case _:
            return ()


def preview_of(
    request: Request,
    current: Plan,
    target: Plan,
    *,
    chains: Mapping[TaskKey, Chain],
    window_bytes: int,
    bytes_per_s: int,
    median_batch_ms: float | None,
    reasons: Iterable[str] = (),
) -> Preview:
    """Steps, bytes and the delay to expect: the last window is copied while a batch waits."""
    steps = diff(current, target)
    rounds = list(strategy_named(request.strategy)(current, target))
    copied = [step for step in steps if isinstance(step, Copy) and step.from_worker is not None]
    size = sum(sum(chains.get((step.operator, step.task), {}).values()) for step in copied)
    delay_ms = None
    if median_batch_ms is not None:
        # What a batch changes must be copied after it; with nothing to copy the switch waits for nobody.
        delay_ms = 0.0 if not copied else min(median_batch_ms, 1000 * min(size, window_bytes) / bytes_per_s)
    before, after = current.primaries(), target.primaries()
    return Preview(
        target=target,
        steps=steps,
        strategy=request.strategy,
        tasks_moved=sum(before[key] != after[key] for key in changed_tasks(current, target)),
        bytes_to_move=size,
        expected_delay_ms=delay_ms,
        rounds=len(rounds),
        reasons=tuple(reasons),
    )
