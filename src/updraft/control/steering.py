"""A policy's round, and what to ask of the runtime for it. Pure: values in, values out; the thread is in `loop.py`.

observe → forecast → decide → check → compare with what runs → ask for the difference. The target of a decision is kept until it
runs, so a round that was lost, a worker that comes late or a change that failed is made good by comparing again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from updraft.control.requests import Replan
from updraft.errors import UpdraftError
from updraft.monitor.sanity import impossible
from updraft.plan.model import Plan, Worker, worker_order
from updraft.policy.model import Decision, Forecast, Memory, Snapshot, TaskMove, hold
from updraft.policy.outcome import taken_over
from updraft.policy.registry import Policy
from updraft.policy.rounds import waiting
from updraft.policy.settings import Settings, bounds
from updraft.predict.outlook import Outlook, look


class Mode(StrEnum):
    """What becomes of decisions."""

    AUTO = "auto"  # carried out
    ADVISE = "advise"  # only recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What runs now, as the runtime knows it. `workers`: all that are alive, used or not; none: embedded Spark."""

    plan: Plan
    workers: tuple[Worker, ...]
    changing: bool = False  # a change is being prepared
    # Alive, but given back or given up by another topology of the application: not among `workers`.
    leaving: tuple[str, ...] = ()
    by_hand_s: float | None = None  # when somebody last changed it by hand (unix seconds); None: nobody did

    @property
    def embedded(self) -> bool:
        return not self.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What the loop carries from round to round."""

    memory: Memory = field(default_factory=Memory)
    outlook: Outlook = field(default_factory=Outlook)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One decision and what it was made from. `error`: the policy failed, and what runs is kept."""

    snapshot: Snapshot
    forecast: Forecast | None
    decision: Decision
    before: Steering
    after: Steering
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a decision wants to run, until it does. `workers` None: however many there are."""

    parallelism: Mapping[str, int]
    workers: int | None
    moves: tuple[TaskMove, ...] = ()
    decided_s: float = 0.0

    def same(self, decision: Decision) -> bool:
        """Whether a decision wants just this."""
        workers = None if self.workers is None else decision.workers
        found = (dict(decision.parallelism), workers, decision.moves)
        return found == (dict(self.parallelism), self.workers, self.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next thing to ask for; nothing at all: the target runs."""

    ask_workers: int | None = None  # so many in all, of the cluster
    request: Replan | None = None  # of the topology
    waiting: str = ""  # for what

    @property
    def done(self) -> bool:
        return self.ask_workers is None and self.request is None and not self.waiting


def decide_round(
    policy: Policy,
    settings: Settings,
    steering: Steering,
    snapshot: Snapshot,
    *,
    by_hand_s: float | None = None,
) -> Round:
    """Forecast and decide. A policy that fails, or wants what cannot be, changes nothing and keeps its memory; nor does
    anything follow from measurements that cannot be, forecasts included. `by_hand_s`: see `Running`; what is decided
    soon after it waits."""
    if wrong := impossible(snapshot):
        reason = f"measurements that cannot be right: {'; '.join(wrong)}"
        kept = hold(
            snapshot, steering.memory, f"{policy.name}: not asked", f"{reason}; the last plan is kept"
        )
        return Round(
            snapshot=snapshot, forecast=None, decision=kept, before=steering, after=steering, error=reason
        )
    settings = _with_these_workers(settings, snapshot)
    outlook, forecast = look(steering.outlook, snapshot, settings.phi)
    after = replace(steering, outlook=outlook)
    memory = taken_over(steering.memory, by_hand_s)
    try:
        decision = policy.decide(snapshot, forecast, memory, settings)
        problems = problems_of(decision, snapshot, settings)
        if problems:
            raise UpdraftError("it wants what cannot be: " + "; ".join(problems))
    except Exception as error:  # whatever a policy does, the stream goes on as it is
        reason = f"policy '{policy.name}' failed: {type(error).__name__}: {error}"
        kept = hold(snapshot, steering.memory, f"{policy.name}: failed", f"{reason}; the last plan is kept")
        return Round(
            snapshot=snapshot, forecast=forecast, decision=kept, before=steering, after=after, error=reason
        )
    if decision.changed and (why := hands_off(by_hand_s, snapshot.taken_at_s, settings)):
        decision = waiting(decision, snapshot, memory, why)
    return Round(
        snapshot=snapshot,
        forecast=forecast,
        decision=decision,
        before=steering,
        after=replace(after, memory=decision.memory),
    )


def hands_off(by_hand_s: float | None, now_s: float, settings: Settings) -> str:
    """Why nothing may be changed now: who changes a plan by hand knows something that the policy does not. Empty: it may."""
    if by_hand_s is None:
        return ""
    ago_s = now_s - by_hand_s
    # A clock that was set back must neither end the wait at once nor stretch it to hours.
    if abs(ago_s) >= settings.hands_off_s:
        return ""
    until = datetime.fromtimestamp(by_hand_s + settings.hands_off_s, UTC)
    return (
        f"changed by hand {max(0.0, ago_s):.0f} s ago; policy waits until {until:%H:%M:%S} UTC "
        f"(hands_off_s = {settings.hands_off_s:g})"
    )


def _with_these_workers(settings: Settings, snapshot: Snapshot) -> Settings:
    """With `keep_workers` the only number that a policy can want is the one there is."""
    here = len(snapshot.workers)
    if not settings.keep_workers or not here:
        return settings
    return replace(settings, min_workers=here, max_workers=here)


def problems_of(decision: Decision, snapshot: Snapshot, settings: Settings) -> list[str]:
    """Why a decision cannot be meant: separate code from that which plans."""
    known = {operator.name: operator for operator in snapshot.operators}
    found = [f"operator '{name}' does not exist" for name in sorted(set(decision.parallelism) - set(known))]
    for name, count in sorted(decision.parallelism.items()):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            found.append(f"operator '{name}': parallelism {count!r} is no whole number of at least 1")
        elif name in known and count > known[name].parallelism:
            most = bounds(settings, known[name])[1]
            if most is not None and count > most:
                found.append(f"operator '{name}': {count} instances, at most {most} are possible")
    here = len(snapshot.workers)
    if decision.workers < 0 or (here and decision.workers < 1):
        found.append(f"{decision.workers} workers: at least one must stay")
    if settings.max_workers is not None and decision.workers > max(here, settings.max_workers):
        found.append(f"{decision.workers} workers, max_workers is {settings.max_workers}")
    ids = {worker.id for worker in snapshot.workers}
    found += [
        f"tasks of '{move.operator}' to worker '{move.to_worker}': one of them is not there"
        for move in decision.moves
        if move.operator not in known or move.to_worker not in ids
    ]
    for name, share in sorted(decision.shares.items()):
        if not share > 0:
            found.append(f"operator '{name}': a CPU share of {share} lets nothing run")
    return found


def differences(decision: Decision, running: Running, shares: Mapping[str, float]) -> tuple[str, ...]:
    """In words, what carrying a decision out would change; empty: nothing, whatever it says of itself."""
    now = running.plan.parallelism()
    found = [
        f"{name} {now.get(name, 0)} → {count}"
        for name, count in sorted(decision.parallelism.items())
        if now.get(name) != count
    ]
    if not running.embedded and decision.workers != len(running.workers):
        found.append(f"workers {len(running.workers)} → {decision.workers}")
    found += [
        f"{name}: {shares[name]:g} → {share:g} cores" if name in shares else f"{name}: {share:g} cores"
        for name, share in sorted(decision.shares.items())
        if shares.get(name) != share
    ]
    found += [f"{name}: no CPU limit" for name in sorted(set(shares) - set(decision.shares))]
    found += [
        f"{move.operator}: {_moved_text(move, running.plan)} → worker {move.to_worker}"
        for move in decision.moves
        if _moving(move, running.plan) or _relocating(move, running.plan)
    ]
    return tuple(found)


def target_for(decision: Decision, now_s: float, *, keep_workers: bool = False) -> Target:
    """What a decision wants to run."""
    return Target(
        parallelism=dict(decision.parallelism),
        workers=None if keep_workers else decision.workers,
        moves=decision.moves,
        decided_s=now_s,
    )


def next_step(
    target: Target, running: Running, now_s: float, *, patience_s: float, placement: str | None = None
) -> Step:
    """Compare the target with what runs. Workers that do not come in `patience_s` are not waited for any longer."""
    if running.changing:
        return Step(waiting="a change is being prepared")
    here = len(running.workers)
    wanted = here if target.workers is None or running.embedded else target.workers
    missing = wanted - here
    if missing > 0 and now_s - target.decided_s < patience_s:
        return Step(ask_workers=wanted, waiting=f"{missing} of {wanted} workers")
    fewer = to_release(running.plan, running.workers, -missing) if missing < 0 else ()
    # What others gave up is left, too, and nothing is put there.
    leaving = (
        (*fewer, *running.leaving) if fewer or set(running.leaving) & set(running.plan.workers()) else ()
    )
    now = running.plan.parallelism()
    other = {name: count for name, count in target.parallelism.items() if now.get(name) not in (None, count)}
    staying = [worker.id for worker in running.workers if worker.id not in leaving]
    if not target.moves and set(staying) - set(running.plan.workers()):
        # New workers: operators that keep their number are spread over them, too. Not so if instances are only moved: the
        # last one may have left a worker empty, and spreading would undo all moves.
        other = {name: count for name, count in target.parallelism.items() if name in now}
    possible = [move for move in target.moves if move.to_worker in staying]
    moves = [move for move in possible if _moving(move, running.plan)]
    relocated = [move for move in possible if _relocating(move, running.plan)]
    if not other and not leaving and not moves and not relocated:
        return Step()
    return Step(
        request=Replan(
            parallelism=other,
            release=leaving or running.leaving,
            moves=tuple((move.operator, _moving(move, running.plan), move.to_worker) for move in moves),
            relocated=tuple((move.operator, move.instance or 0, move.to_worker) for move in relocated),
            placement=placement if other or leaving else None,  # it would undo what only moves
        )
    )


def to_release(plan: Plan, workers: Sequence[Worker], count: int) -> tuple[str, ...]:
    """So many workers to give back: those with the fewest tasks, of those the newest; one always stays."""
    tasks = {worker.id: len(plan.tasks_on(worker.id)) for worker in workers}
    busy = {
        worker.id: sum(i.worker == worker.id for found in plan.instances.values() for i in found)
        for worker in workers
    }
    newest = sorted(workers, key=lambda worker: worker_order(worker.id), reverse=True)
    order = sorted(newest, key=lambda worker: (tasks[worker.id], busy[worker.id]))
    return tuple(worker.id for worker in order[: min(count, len(workers) - 1)])


def _moving(move: TaskMove, plan: Plan) -> tuple[int, ...]:
    """Those tasks of a move that are not where it wants them."""
    known = plan.primaries()
    return tuple(
        task for task in move.tasks if known.get((move.operator, task), move.to_worker) != move.to_worker
    )


def _relocating(move: TaskMove, plan: Plan) -> bool:
    """Whether a move is about an instance without tasks that is elsewhere."""
    if move.instance is None:
        return False
    found = [one for one in plan.instances.get(move.operator, ()) if one.index == move.instance]
    return bool(found) and not found[0].tasks and found[0].worker != move.to_worker


def _moved_text(move: TaskMove, plan: Plan) -> str:
    count = len(_moving(move, plan))
    if not count:
        return f"instance {move.instance}"
    return f"{count} task{'s' if count > 1 else ''}"
