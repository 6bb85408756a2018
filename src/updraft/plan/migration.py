"""One change in preparation: a frozen value, `advance(migration, event) -> (migration, instructions)`.

The engine reports what happened and carries out what it is asked; nothing here knows Spark, files or time. Copies go out in
windows of `budget_bytes` in flight; a copy follows by getting the segments its chain has and it lacks. A merge on the
old worker replaces segments by one the copy lacks, so following may cost more than the rows that changed.

At a batch boundary the engine reports `BatchCommitted(N)`. If `can_finish` says that what is missing fits one window, it may
carry out the copies before it begins N+1: the answer to the last one is `PromoteAt(N+1)`, and that wait is all the delay
a change adds. A `PromoteAt` for a batch that has begun with the old plan is ignored; the next commit brings another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from updraft.plan.diff import Copy, Drop, Holdings, diff, holdings_of, without
from updraft.plan.model import Plan, PlanError, TaskKey
from updraft.plan.preparation import PREPARING, TRANSITIONS, CopyState, Migration, Phase
from updraft.plan.protocol import (
    BatchCommitted,
    Cancel,
    Chain,
    Copied,
    CopyFailed,
    CopyKey,
    CopySegments,
    DropCopy,
    Event,
    Instruction,
    PromoteAt,
    Promoted,
    Superseded,
    WorkerLost,
)

MAX_FAILURES = 3  # of one copy, in a row

Answer: TypeAlias = tuple[Migration, tuple[Instruction, ...]]


def begin(
    current: Plan,
    target: Plan,
    *,
    batch: int,
    chains: Mapping[TaskKey, Chain],
    budget_bytes: int,
    arrived: Mapping[CopyKey, frozenset[str]] | None = None,
) -> Answer:
    """A change as of the last committed batch. `arrived`: what copies of a superseded change hold already."""
    if budget_bytes < 1:
        raise PlanError(f"a budget of {budget_bytes} bytes moves nothing; it must be at least 1")
    holdings = holdings_of(current)
    keys = [(s.operator, s.task, s.to_worker) for s in diff(holdings, target) if isinstance(s, Copy)]
    moving = {key[:2] for key in keys}
    migration = Migration(
        target=target,
        holdings=holdings,
        batch=batch,
        chains={key: dict(chain) for key, chain in chains.items() if key in moving},
        copies={key: CopyState(held=(arrived or {}).get(key, frozenset())) for key in keys},
        budget_bytes=budget_bytes,
    )
    return _continue(migration)


def advance(migration: Migration, event: Event) -> Answer:
    """The change after an event, and what to do now. Events that come too late change nothing.

    A plan in effect (PROMOTED) cannot be cancelled or superseded: the next change begins when it is DROPPED, else its
    drops could take copies that the next one counts on.
    """
    match event:
        case BatchCommitted() if migration.phase in PREPARING:
            if event.batch <= migration.batch:
                return migration, ()  # reported before
            moving = {key[:2] for key in migration.copies}
            deltas = {key: dict(chain) for key, chain in event.deltas.items() if key in moving}
            return _continue(replace(migration, batch=event.batch, chains={**migration.chains, **deltas}))
        case BatchCommitted() if migration.phase is Phase.PROMOTED:
            if migration.promoted_at is None or event.batch < migration.promoted_at:
                return migration, ()
            return _to(migration, Phase.DROPPED), tuple(_old_copies(migration))
        case Copied() if migration.phase in PREPARING:
            return advance_all(migration, (event,))
        case CopyFailed() if migration.phase in PREPARING:
            return _copy_failed(migration, event)
        case Promoted() if migration.phase is Phase.READY:
            return replace(_to(migration, Phase.PROMOTED), promoted_at=event.batch), ()
        case Promoted() if migration.phase in PREPARING:
            raise PlanError(
                f"plan {migration.target.version} was promoted while it is {migration.phase.value}"
            )
        case WorkerLost() if migration.phase in PREPARING:
            return _worker_lost(migration, event.worker)
        case WorkerLost():
            return replace(migration, lost=migration.lost | {event.worker}), ()
        case Superseded() if migration.phase in PREPARING:
            wanted = holdings_of(event.target).held
            return _give_up(
                migration, Phase.CANCELLED, f"superseded by plan {event.target.version}", keep=wanted
            )
        case Cancel() if migration.phase in PREPARING:
            return _give_up(migration, Phase.CANCELLED, event.reason)
        case _:
            return migration, ()


def advance_all(migration: Migration, events: Iterable[Copied]) -> Answer:
    """`advance` for all copies of a window at once: what to do next is then worked out once, not once per copy."""
    if migration.phase not in PREPARING:
        return migration, ()
    copies, size, any_arrived = dict(migration.copies), migration.bytes_copied, False
    for event in events:
        key = (event.operator, event.task, event.worker)
        copy = copies.get(key)
        if copy is None or copy.in_flight is None or copy.in_flight.through_batch != event.through_batch:
            continue  # a report of an order that was given up
        held = copy.held | set(copy.in_flight.segments)
        copies[key] = CopyState(held=held, through_batch=event.through_batch)
        size, any_arrived = size + event.bytes, True
    if not any_arrived:
        return migration, ()
    return _continue(replace(migration, copies=copies, bytes_copied=size))


def _continue(migration: Migration) -> Answer:
    """The phase that fits what has arrived, and copies up to the window."""
    copies = dict(migration.copies)
    for key, copy in copies.items():
        if migration.is_current(key):
            copies[key] = replace(copy, through_batch=migration.batch)
    migration = replace(migration, copies=copies)
    if all(migration.is_current(key) for key in copies):
        return _to(migration, Phase.READY), (PromoteAt(batch=migration.batch + 1),)
    if all(copy.through_batch is not None for copy in copies.values()):
        migration = _to(migration, Phase.FOLLOWING)
    orders: list[Instruction] = []
    flying = sum(copy.in_flight.bytes for copy in copies.values() if copy.in_flight is not None)
    alone = not any(copy.in_flight for copy in copies.values())
    for key in sorted(copies):
        lacking = migration.missing(key)
        size = sum(lacking.values())
        if copies[key].in_flight is not None or not lacking:
            continue
        if not alone and flying + size > migration.budget_bytes:
            continue
        order = CopySegments(
            operator=key[0],
            task=key[1],
            from_worker=_source(migration.holdings, key),
            to_worker=key[2],
            segments=tuple(sorted(lacking)),
            bytes=size,
            through_batch=migration.batch,
        )
        copies[key] = replace(copies[key], in_flight=order)
        flying, alone = flying + size, False
        orders.append(order)
    return replace(migration, copies=copies), tuple(orders)


def _copy_failed(migration: Migration, event: CopyFailed) -> Answer:
    key = (event.operator, event.task, event.worker)
    copy = migration.copies.get(key)
    if copy is None or copy.in_flight is None:
        return migration, ()
    again = replace(copy, in_flight=None, failures=copy.failures + 1)
    migration = replace(migration, copies={**migration.copies, key: again})
    if again.failures >= MAX_FAILURES:
        return _give_up(
            migration,
            Phase.FAILED,
            f"task {event.task} of operator '{event.operator}' could not be copied to worker '{event.worker}' in "
            f"{again.failures} attempts: {event.reason}",
        )
    return _continue(migration)


def _worker_lost(migration: Migration, worker: str) -> Answer:
    """Without a worker of the target the target is void. Without a source, another holder or the checkpoint is one."""
    copies = {
        key: replace(copy, in_flight=None)
        if copy.in_flight and copy.in_flight.from_worker == worker
        else copy
        for key, copy in migration.copies.items()
    }
    migration = replace(
        migration,
        holdings=without(migration.holdings, worker),
        lost=migration.lost | {worker},
        copies=copies,
    )
    if worker in migration.target.workers():
        return _give_up(
            migration,
            Phase.FAILED,
            f"worker '{worker}', which plan {migration.target.version} uses, was lost",
        )
    return _continue(migration)


def _give_up(
    migration: Migration, phase: Phase, reason: str, keep: Mapping[TaskKey, frozenset[str]] | None = None
) -> Answer:
    """The old plan stays; what was copied for the new one is dropped."""
    drops = tuple(
        DropCopy(operator=operator, task=task, worker=worker)
        for (operator, task, worker), copy in sorted(migration.copies.items())
        if (copy.held or copy.in_flight is not None)
        and worker not in migration.lost
        and worker not in (keep or {}).get((operator, task), frozenset())
    )
    # What is dropped must not count as arrived when a later plan asks what it can inherit.
    dropped = {(drop.operator, drop.task, drop.worker) for drop in drops}
    left = {
        key: CopyState() if key in dropped else replace(copy, in_flight=None)
        for key, copy in migration.copies.items()
    }
    return replace(_to(migration, phase), reason=reason, copies=left), drops


def _old_copies(migration: Migration) -> Iterator[DropCopy]:
    for step in diff(migration.holdings, migration.target):
        if isinstance(step, Drop) and step.worker not in migration.lost:
            yield DropCopy(operator=step.operator, task=step.task, worker=step.worker)


def _source(holdings: Holdings, key: CopyKey) -> str | None:
    primary = holdings.primary.get(key[:2])
    return primary if primary is not None else min(holdings.held.get(key[:2], frozenset()), default=None)


def _to(migration: Migration, phase: Phase) -> Migration:
    if phase is migration.phase:
        return migration
    if phase not in TRANSITIONS[migration.phase]:
        raise PlanError(f"a change cannot go from {migration.phase.value} to {phase.value}")
    return replace(migration, phase=phase)
