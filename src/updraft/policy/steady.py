"""A policy with the stability rules around it: the order in which they speak.

clock and gaps → verdict on the last change → noise → workers that never came → the policy → settle, cooldown, drain, lazy,
cost → what was rejected → skew by name. Every step is a pure function of its own; this file only strings them together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from updraft.policy.load import stressed
from updraft.policy.model import Change, Configuration, Decision, Forecast, Memory, Snapshot, hold
from updraft.policy.noise import smoothed
from updraft.policy.outcome import judge, refused, regretted
from updraft.policy.settings import Settings
from updraft.policy.skew import skewed
from updraft.policy.stability import held_back, remember

if TYPE_CHECKING:
    from updraft.policy.model import Decide

ASK_AGAIN = 5  # times provision_s after which workers that never came are asked for again


def steadied(policy: Decide) -> Decide:
    """The policy, made steady."""

    def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
        memory, backwards = _clock(snapshot, memory)
        if backwards or not snapshot.operators or snapshot.gaps:
            return hold(snapshot, memory, "hold", *(backwards or snapshot.gaps or ("nothing measured yet",)))
        verdict = judge(snapshot, memory, settings)
        if verdict.back_to is not None:
            back = hold(snapshot, verdict.memory, "rollback", verdict.reason).of(verdict.back_to)
            return replace(back, changed=True)
        seen, kept, memory = smoothed(snapshot, forecast, verdict.memory, settings)
        granted, missing, memory = _granted(snapshot, memory, settings)
        wanted = policy(seen, kept, memory, granted)
        return _concluded(snapshot, wanted, granted, missing)

    return decide


def _concluded(
    snapshot: Snapshot, wanted: Decision, settings: Settings, missing: tuple[str, ...]
) -> Decision:
    memory = remember(snapshot, wanted.configuration, wanted.memory, settings)
    coming = wanted.expected.get("coming_rows_per_s")
    allowed, blocked = held_back(snapshot, wanted.configuration, memory, settings, coming)
    if allowed != snapshot.configuration:
        again, memory = refused(snapshot, allowed, memory, settings)
        if again is not None:
            blocked, allowed = (*blocked, again), snapshot.configuration
    reasons, unmet = skewed(snapshot, settings) if settings.stability.name_skew else ((), ())
    waiting = memory.change is not None and memory.change.seen_s is None and memory.change.after == allowed
    changed = allowed != snapshot.configuration and not waiting
    shares_changed = dict(wanted.shares) != dict(memory.shares)
    if changed:
        memory = regretted(snapshot, allowed, wanted.expected.get("rows_per_s"), memory)
        memory = _changed(snapshot, allowed, memory, settings, coming)
    return replace(
        wanted.of(allowed),
        reasons=(*wanted.reasons, *reasons, *((f"waiting for {allowed}",) if waiting else ())),
        unmet=(*wanted.unmet, *unmet, *missing),
        blocked=blocked,
        memory=replace(memory, shares=dict(wanted.shares)),
        changed=changed or shares_changed,
    )


def _changed(
    snapshot: Snapshot, after: Configuration, memory: Memory, settings: Settings, coming: float | None
) -> Memory:
    now_s = snapshot.taken_at_s
    more = after.workers > len(snapshot.workers)
    change = Change(
        at_s=now_s,
        before=snapshot.configuration,
        after=after,
        rows_per_s=snapshot.input_rows_per_s,
        busy_s_per_row=snapshot.busy_s_per_row,
        coming_rows_per_s=coming,
        stressed=stressed(snapshot, settings),
    )
    return replace(
        memory,
        taken=change if after.less_than(snapshot.configuration) else None,
        last_change_s=now_s,
        last_added_s=now_s if after.more_anywhere(snapshot.configuration) else memory.last_added_s,
        change=change,
        workers_asked=after.workers if more else None,
        workers_asked_s=now_s if more else None,
    )


def _clock(snapshot: Snapshot, memory: Memory) -> tuple[Memory, tuple[str, ...]]:
    """A clock that went back would freeze every rule that counts seconds: they start again from the new time."""
    now_s, last_s = snapshot.taken_at_s, memory.last_seen_s
    if last_s is None or now_s >= last_s:
        return replace(memory, last_seen_s=now_s), ()
    rebased = replace(
        memory,
        last_seen_s=now_s,
        last_change_s=None if memory.last_change_s is None else now_s,
        last_added_s=None if memory.last_added_s is None else now_s,
        loads=(),
        wants=(),
        change=None,
        taken=None,
        rejected=tuple(replace(r, at_s=now_s) for r in memory.rejected),
        workers_asked_s=None if memory.workers_asked_s is None else now_s,
    )
    return rebased, (f"the clock went back by {last_s - now_s:.0f} s; waiting times start again",)


def _granted(
    snapshot: Snapshot, memory: Memory, settings: Settings
) -> tuple[Settings, tuple[str, ...], Memory]:
    """Plan with the workers that exist when those asked for did not come; the demand stays visible."""
    asked, since_s, here = memory.workers_asked, memory.workers_asked_s, len(snapshot.workers)
    if asked is None or since_s is None:
        return settings, (), memory
    waited_s = snapshot.taken_at_s - since_s
    if here >= asked or waited_s >= ASK_AGAIN * settings.provision_s:
        return settings, (), replace(memory, workers_asked=None, workers_asked_s=None)
    if waited_s < settings.provision_s or here == 0:
        return settings, (), memory
    missing = (
        f"{asked} workers were asked for {waited_s:.0f} s ago, there are {here}: the cluster grants no more"
    )
    most = here if settings.max_workers is None else min(here, settings.max_workers)
    return (
        replace(settings, max_workers=most, min_workers=min(settings.min_workers, most)),
        (missing,),
        memory,
    )
