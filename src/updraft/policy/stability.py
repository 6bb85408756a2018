"""Rules against restless scaling, for every policy: each looks at what is wanted and may hold part of it back, with a reason.

Adding is never delayed beyond the time a change needs to show its effect; taking away is: not soon after something was added,
not while a backlog is drained, not before less has been enough for a while (and then down to the most that was wanted
meanwhile), and not when the measured cost of a change eats what it saves. Papers 1 (cooldown) and 2 (lower lazily) have one
rule each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from updraft.policy.model import Configuration, Memory, Snapshot, Want
from updraft.policy.settings import Settings

INSTANCE_CORES = 0.1  # what an instance costs by being there: a task start and an exchange per batch

Rule: TypeAlias = Callable[[Snapshot, Configuration, Memory, Settings], tuple[Configuration, str | None]]


def remember(snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings) -> Memory:
    """The wants of the time that lazy scale-in looks back on."""
    now_s = snapshot.taken_at_s
    oldest = now_s - settings.stability.scale_in_after_s
    # One want older than the window is kept: it proves that the window is covered.
    inside = [want for want in memory.wants if want.at_s > oldest]
    before = [want for want in memory.wants if want.at_s <= oldest][-1:]
    new = Want(at_s=now_s, configuration=wanted, rows_per_s=snapshot.input_rows_per_s)
    return replace(memory, wants=(*before, *inside, new))


def settling(
    snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings, coming: float | None = None
) -> tuple[Configuration, str | None]:
    """One change at a time: until its effect is measured and judged, what is seen is the old configuration and the change
    itself. Unless so much more arrives, or is expected (`coming`), that it was made for another load: half of a step was seen,
    now all of it is."""
    since, change = _since_change(snapshot, memory), memory.change
    if since is None or (since >= settings.stability.settle_s and change is None):
        return wanted, None
    if _other_load(snapshot, memory, settings, coming):
        return wanted, None
    if change is not None and change.seen_s is None:
        return change.after, f"waiting for {change.after}, decided {since:.0f} s ago"
    return snapshot.configuration, f"changed {since:.0f} s ago, its effect is not known yet"


def cooling_down(
    snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings
) -> tuple[Configuration, str | None]:
    """After something was added nothing is taken away for a while (paper 1: after any change nothing is changed; that delays
    what is needed, and makes a load that falls for long pay for every step)."""
    added_s = memory.last_added_s
    since = None if added_s is None else snapshot.taken_at_s - added_s
    if since is None or since >= settings.stability.cooldown_s:
        return wanted, None
    return _nothing_taken(snapshot, wanted), f"cooldown: something was added {since:.0f} s ago"


def draining(
    snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings
) -> tuple[Configuration, str | None]:
    """No scale-in while a backlog is being drained."""
    waiting_s = snapshot.backlog_s
    if (
        not settings.stability.no_scale_in_while_draining
        or (waiting_s or 0.0) <= settings.stability.backlog_s
    ):
        return wanted, None
    return _nothing_taken(snapshot, wanted), f"a backlog of {waiting_s:.0f} s is being drained"


def lazy(
    snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings
) -> tuple[Configuration, str | None]:
    """Take away only what was not wanted by any round of the last `scale_in_after_s`."""
    if not settings.stability.lazy_scale_in:
        return wanted, None
    now = snapshot.configuration
    after_s = settings.stability.scale_in_after_s
    covered = bool(memory.wants) and memory.wants[0].at_s <= snapshot.taken_at_s - after_s
    if not covered:
        return _nothing_taken(snapshot, wanted), f"less must be enough for {after_s:.0f} s first"
    needed = [want.configuration for want in memory.wants]
    most = Configuration(
        parallelism={
            name: max(count, min(now.parallelism[name], max(w.parallelism.get(name, count) for w in needed)))
            for name, count in wanted.parallelism.items()
        },
        workers=max(wanted.workers, min(now.workers, max(w.workers for w in needed))),
    )
    if most == wanted:
        return most, None
    if wanted.workers < now.workers and most.workers == now.workers:
        # Giving up an instance now would start the cooldown, and the worker would be kept for longer.
        return _nothing_taken(
            snapshot, wanted
        ), f"a worker can be freed when nothing more was wanted for {after_s:.0f} s"
    return most, f"more was wanted within the last {after_s:.0f} s"


def paying(
    snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings
) -> tuple[Configuration, str | None]:
    """A scale-in that saves less in `payback_s` than the change costs is not worth it."""
    cost_s = snapshot.change_cost_s
    if not settings.stability.change_cost or cost_s is None:
        return wanted, None
    now = snapshot.configuration
    cores = min((worker.cores for worker in snapshot.workers), default=settings.worker_cores)
    fewer = sum(max(0, count - wanted.parallelism.get(n, count)) for n, count in now.parallelism.items())
    saved = (
        max(0, now.workers - wanted.workers) * cores + fewer * INSTANCE_CORES
    ) * settings.stability.payback_s
    spent = cost_s * max(1, now.workers) * cores
    if saved > spent:
        return wanted, None
    return _nothing_taken(snapshot, wanted), (
        f"a change costs {cost_s:.1f} s, {spent:.0f} core-seconds; it would save {saved:.0f} in "
        f"{settings.stability.payback_s:.0f} s"
    )


TAKING_AWAY: tuple[Rule, ...] = (cooling_down, draining, lazy, paying)


def held_back(
    snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings, coming: float | None = None
) -> tuple[Configuration, tuple[str, ...]]:
    """What may be done now of what is wanted, and which rules held back the rest."""
    kept, reason = settling(snapshot, wanted, memory, settings, coming)
    if reason is not None:
        return kept, (reason,) if kept != wanted else ()
    blocked: list[str] = []
    for rule in TAKING_AWAY:
        if not snapshot.configuration.more_anywhere(wanted):
            break  # nothing is taken away (any more)
        allowed, reason = rule(snapshot, wanted, memory, settings)
        if reason is not None and allowed != wanted:
            blocked.append(f"{wanted} held back: {reason}")
        wanted = allowed
    return wanted, tuple(blocked)


def _other_load(snapshot: Snapshot, memory: Memory, settings: Settings, coming: float | None) -> bool:
    change = memory.change
    if change is None or change.rows_per_s is None or snapshot.input_rows_per_s is None:
        return False
    before = max(change.rows_per_s, change.coming_rows_per_s or 0.0)
    now = max(snapshot.input_rows_per_s, coming or 0.0)
    tolerance = settings.stability.tolerance
    return now > before * (1 + tolerance) / (1 - tolerance)


def _since_change(snapshot: Snapshot, memory: Memory) -> float | None:
    return None if memory.last_change_s is None else snapshot.taken_at_s - memory.last_change_s


def _nothing_taken(snapshot: Snapshot, wanted: Configuration) -> Configuration:
    now = snapshot.configuration
    return Configuration(
        parallelism={n: max(count, now.parallelism.get(n, count)) for n, count in wanted.parallelism.items()},
        workers=max(wanted.workers, now.workers),
    )
