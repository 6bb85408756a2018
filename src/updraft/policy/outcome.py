"""What became of the last change: judged once its effect is measured, rolled back if it made things worse, not repeated.

Judged when a whole period, and more than the first batch, was measured under the new configuration. Worse means, at a load
no more than a tenth higher: nothing was added, it kept up before and does not now; or it could not keep up before, still
cannot, and takes more time per row; or something was added and a row takes more time. A scale-in that the next change takes
back at the same load counts as worse, too: estimates that depend on the configuration would swing for ever. No paper looks
back at its decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from updraft.policy.load import stressed
from updraft.policy.model import Change, Configuration, Memory, Rejected, Snapshot
from updraft.policy.settings import Settings

SAME_LOAD = 1.1
MORE_LOAD = 1.25  # a rejected addition may be tried again when this much more arrives


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Memory after judging, and where to go back to (None: nowhere) with the reason."""

    memory: Memory
    back_to: Configuration | None = None
    reason: str = ""


def taken_over(memory: Memory, by_hand_s: float | None) -> Memory:
    """Memory without what was under way when somebody changed the plan by hand: it would wait for a configuration that nobody
    brings any more, or put down to its own change what was another's."""
    if by_hand_s is None:
        return memory
    change, taken, asked_s = memory.change, memory.taken, memory.workers_asked_s
    waits = asked_s is not None and asked_s > by_hand_s
    moved = any(at_s > by_hand_s for at_s in memory.moved_at_s.values())
    return replace(
        memory,
        change=change if change is not None and change.at_s > by_hand_s else None,
        taken=taken if taken is not None and taken.at_s > by_hand_s else None,
        workers_asked=memory.workers_asked if waits else None,
        workers_asked_s=asked_s if waits else None,
        move=memory.move if moved else None,
    )


def judge(snapshot: Snapshot, memory: Memory, settings: Settings) -> Verdict:
    """Look at the change in progress, if there is one."""
    change, now_s = memory.change, snapshot.taken_at_s
    if change is None:
        return Verdict(memory=memory)
    if change.seen_s is None:
        if snapshot.configuration == change.after:
            return Verdict(memory=replace(memory, change=replace(change, seen_s=now_s)))
        if now_s - change.at_s <= settings.provision_s + settings.stability.settle_s:
            return Verdict(memory=memory)
        return Verdict(memory=replace(memory, change=None))  # never applied (advice only, or refused)
    if snapshot.configuration != change.after:
        return Verdict(memory=replace(memory, change=None))  # somebody else changed it
    early = now_s - change.seen_s < snapshot.period_s or now_s - change.at_s < settings.stability.settle_s
    if early or snapshot.plan_is_new:
        return Verdict(memory=memory)
    done = replace(memory, change=None)
    reason = _worse(snapshot, change, settings) if settings.stability.roll_back else ""
    if not reason:
        return Verdict(memory=done)
    rejected = Rejected(
        at_s=now_s,
        configuration=change.after,
        rows_per_s=change.rows_per_s,
        smaller=change.after.less_than(change.before),
    )
    return Verdict(
        memory=replace(
            done,
            rejected=(*memory.rejected, rejected),
            last_change_s=now_s,
            last_added_s=now_s if rejected.smaller else memory.last_added_s,
            wants=(),
        ),
        back_to=change.before,
        reason=f"rolled back {change.after} to {change.before}: {reason}",
    )


def refused(
    snapshot: Snapshot, wanted: Configuration, memory: Memory, settings: Settings
) -> tuple[str | None, Memory]:
    """Why a configuration must not be tried again now, and the memory without what is forgotten."""
    now_s, load = snapshot.taken_at_s, snapshot.input_rows_per_s
    kept = tuple(r for r in memory.rejected if 0 <= now_s - r.at_s < settings.stability.reject_s)
    memory = replace(memory, rejected=kept)
    for old in kept:
        before = old.rows_per_s
        known = load is not None and before is not None
        if old.smaller:
            lighter = known and load < before / SAME_LOAD  # type: ignore[operator]
            if not wanted.more_anywhere(old.configuration) and not lighter:
                return f"{wanted} is no more than {old.configuration}, which made things worse", memory
        elif wanted == old.configuration and not (known and load > before * MORE_LOAD):  # type: ignore[operator]
            return f"{wanted} was tried and made things worse", memory
    return None, memory


def regretted(
    snapshot: Snapshot, after: Configuration, planned_rows_per_s: float | None, memory: Memory
) -> Memory:
    """A scale-in whose next change adds again at the same load was a mistake: remembered, so that it does not swing.
    What is expected, or waits, counts as load: a change that was made for it regrets nothing."""
    taken, measured = memory.taken, snapshot.input_rows_per_s
    load = measured if measured is None else max(measured, planned_rows_per_s or 0.0)
    if taken is None or not after.more_anywhere(taken.after):
        return memory
    before = taken.rows_per_s
    if load is not None and before is not None and load > before * SAME_LOAD:
        return memory  # more arrives: it was right then
    mistake = Rejected(at_s=snapshot.taken_at_s, configuration=taken.after, rows_per_s=before, smaller=True)
    return replace(memory, rejected=(*memory.rejected, mistake))


def _worse(snapshot: Snapshot, change: Change, settings: Settings) -> str:
    load, before = snapshot.input_rows_per_s, change.rows_per_s
    if load is not None and before is not None and load > before * SAME_LOAD:
        return ""  # more arrives than before: nothing can be said
    slower = _slower(snapshot, change)
    stressed_now = stressed(snapshot, settings)
    limit = 1 + settings.stability.worse
    added = change.after.more_anywhere(change.before) and not change.before.more_anywhere(change.after)
    # What was added for a load that had just come kept up "before" only because nothing was waiting yet.
    if stressed_now and not change.stressed and not added:
        return "it kept up before and does not now"
    if stressed_now and slower is not None and slower > limit:
        return f"it still cannot keep up and a row takes {slower - 1:.0%} more time"
    enough = snapshot.pressure is not None and snapshot.pressure >= settings.core_min
    if added and enough and slower is not None and slower > limit:
        return f"more was given and a row takes {slower - 1:.0%} more time"
    return ""


def _slower(snapshot: Snapshot, change: Change) -> float | None:
    now, before = snapshot.busy_s_per_row, change.busy_s_per_row
    return now / before if now is not None and before else None
