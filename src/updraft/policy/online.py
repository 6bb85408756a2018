"""`online`: one best move per round (paper 3, OTD, §4.2-4.3), from queues, CPU and the traffic between instances.

Workers are high, normal or low. high and low: load balancing, from the most loaded worker to the least loaded low worker of
each node. High and no low: a warning, there are not enough resources. Low and no high: communication optimisation, any
instance, only if it gains more than a threshold. Else nothing. The move is the one with the largest

    ASC(e, n0 → n) = traffic of e with instances on node n − traffic of e with instances on its node n0   [bytes/s]

Deviations: the paper gives no limits for the classes, they are settings; a move that would make its target high, or that
takes less than half the mean instance from a high worker, is not considered; an instance that moved does not move again for
`settle_s`, measurements need time to follow; the threshold is a share of all traffic, so that it holds at every load; where all
moves gain nothing because traffic is symmetric, one is made all the same, or nothing would ever begin; where no worker is low
enough, one that makes the busiest clearly less busy is made all the same: here a batch lasts as long as its slowest worker.
Stateful instances move like others: migration here keeps their state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from updraft.errors import UpdraftError

Key: TypeAlias = tuple[str, int]


class InvalidMeasurements(UpdraftError):
    """Measurements that cannot be right; the message lists all of them."""


class Load(Enum):
    """How busy a worker is."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class OnlineCase(Enum):
    """The paper's four cases."""

    BALANCE = "load balancing"
    WARN = "not enough resources"
    COMMUNICATE = "communication optimisation"
    NOTHING = "nothing to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineWorker:
    """A live worker. `cpu`: used share of its cores; `queue_s`: how long what waits for it would take. None: not measured."""

    id: str
    node: str
    cores: int = 1
    cpu: float | None = None
    queue_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineInstance:
    """An instance and where it runs. `cpu_cores` None: not measured."""

    operator: str
    index: int
    worker: str
    cpu_cores: float | None = None

    @property
    def key(self) -> Key:
        return self.operator, self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineView:
    """What was measured in one round. Traffic in bytes per second, by sender and receiver."""

    taken_at_s: float
    workers: tuple[OnlineWorker, ...]
    instances: tuple[OnlineInstance, ...]
    traffic: Mapping[tuple[Key, Key], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineSettings:
    """Limits of the classes, and when a move is worth it."""

    high_cpu: float = 0.8
    low_cpu: float = 0.6
    high_queue_s: float = 5.0
    low_queue_s: float = 1.0
    threshold: float = 0.001  # of all traffic: what a move for communication must save
    own: float = 0.05  # of the instance's own traffic: and so much, or noise would move instances to and fro
    symmetric: float = 0.3  # of all traffic between nodes: so much may be symmetric, and a start is made
    sideways: float = 0.01  # of all traffic: what that first move may cost
    relief: float = 0.5  # of the mean instance: what a move off a high worker must take from it
    evener: float = (
        0.1  # of the busiest worker's load: what an evening move must take off the pair's busier one
    )
    settle_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineMemory:
    """When instances moved last."""

    moved_at_s: Mapping[Key, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineMove:
    """One instance to another worker. `asc`: bytes per second that no longer cross nodes."""

    instance: Key
    from_worker: str
    to_worker: str
    asc: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineDecision:
    """At most one move, the case, what each worker was taken for, why, and what is lacking."""

    case: OnlineCase
    move: OnlineMove | None
    classes: Mapping[str, Load]
    reasons: tuple[str, ...]
    unmet: tuple[str, ...] = ()
    memory: OnlineMemory = OnlineMemory()


def decide_online(
    view: OnlineView, memory: OnlineMemory | None = None, settings: OnlineSettings | None = None
) -> OnlineDecision:
    """The case of this round and its best move, if there is one."""
    settings = settings or OnlineSettings()
    if problems := tuple(_problems(view)):
        raise InvalidMeasurements("; ".join(problems))
    memory = _recent(memory or OnlineMemory(), view.taken_at_s - settings.settle_s)
    workers = sorted(view.workers, key=lambda worker: (len(worker.id), worker.id))
    classes = {worker.id: classify(worker, settings) for worker in workers}
    high = [worker for worker in workers if classes[worker.id] is Load.HIGH]
    low = [worker for worker in workers if classes[worker.id] is Load.LOW]
    said = _unmeasured(view, workers)
    match bool(high), bool(low):
        case True, True:
            case, move = OnlineCase.BALANCE, _balance(view, high, low, memory, settings)
            move = move or _even(view, high, workers, memory, settings)
            why = "no instance of it can go to a low worker without making that one high"
        case True, False:
            move, why = _even(view, high, workers, memory, settings), ""
            case = OnlineCase.WARN if move is None else OnlineCase.BALANCE
        case False, True:
            case, move = OnlineCase.COMMUNICATE, _communicate(view, low, memory, settings)
            why = f"no move saves more than {settings.threshold:.1%} of the traffic"
        case _:
            case, move, why = OnlineCase.NOTHING, None, "no worker is high and none is low"
    names = ", ".join(worker.id for worker in high)
    if move is not None:
        what = f"{move.instance[0]}[{move.instance[1]}]: worker '{move.from_worker}' -> '{move.to_worker}'"
        why = f"{what}, {abs(move.asc):.0f} bytes/s {'less' if move.asc >= 0 else 'more'} between nodes"
        memory = OnlineMemory(moved_at_s={**memory.moved_at_s, move.instance: view.taken_at_s})
    stuck = case is OnlineCase.WARN or (case is OnlineCase.BALANCE and move is None)
    return OnlineDecision(
        case=case,
        move=move,
        classes=classes,
        reasons=tuple(part for part in (f"{case.value}: {why}" if why else case.value, *said) if part),
        unmet=(f"workers {names} are overloaded and no other can help; add a worker",) if stuck else (),
        memory=memory,
    )


def classify(worker: OnlineWorker, settings: OnlineSettings) -> Load:
    """High by CPU or queue, low by both; a worker that was not measured is normal."""
    if worker.cpu is None and worker.queue_s is None:
        return Load.NORMAL
    cpu, queue_s = worker.cpu or 0.0, worker.queue_s or 0.0
    if cpu >= settings.high_cpu or queue_s >= settings.high_queue_s:
        return Load.HIGH
    return Load.LOW if cpu <= settings.low_cpu and queue_s <= settings.low_queue_s else Load.NORMAL


def _balance(
    view: OnlineView,
    high: Sequence[OnlineWorker],
    low: Sequence[OnlineWorker],
    memory: OnlineMemory,
    settings: OnlineSettings,
) -> OnlineMove | None:
    """Algorithm 1. Of moves that save the same, the one that brings the two workers closest together."""
    movable = _movable(view, _busiest(high), memory, settings)
    return _best(view, movable, _least_loaded(low), settings, least_asc=-math.inf)


def _even(
    view: OnlineView,
    high: Sequence[OnlineWorker],
    workers: Sequence[OnlineWorker],
    memory: OnlineMemory,
    settings: OnlineSettings,
) -> OnlineMove | None:
    """Off the busiest worker, if the busier of the two then has clearly less than it has now."""
    source = _busiest(high)
    others = [worker for worker in workers if worker.id != source.id and worker.cpu is not None]
    if source.cpu is None or not others:
        return None
    enough = replace(settings, high_cpu=(1 - settings.evener) * source.cpu)
    freeing = [
        instance
        for instance in _movable(view, source, memory, settings)
        if (instance.cpu_cores or 0.0) / max(1, source.cores) >= settings.evener * source.cpu
    ]
    return _best(view, freeing, _least_loaded(others), enough, least_asc=-math.inf)


def _busiest(high: Sequence[OnlineWorker]) -> OnlineWorker:
    return max(high, key=_load)  # the first of equals


def _movable(
    view: OnlineView, source: OnlineWorker, memory: OnlineMemory, settings: OnlineSettings
) -> list[OnlineInstance]:
    """Instances that may leave the worker, and are worth it."""
    here = [instance for instance in view.instances if instance.worker == source.id]
    known = [instance.cpu_cores for instance in here if instance.cpu_cores is not None]
    least = settings.relief * sum(known) / len(known) if known else 0.0
    return [
        instance
        for instance in here
        if len(here) > 1  # moving the only instance of a worker moves the overload with it
        and instance.key not in memory.moved_at_s
        and (instance.cpu_cores is None or instance.cpu_cores >= least)
    ]


def _communicate(
    view: OnlineView, low: Sequence[OnlineWorker], memory: OnlineMemory, settings: OnlineSettings
) -> OnlineMove | None:
    """Algorithm 2. On symmetric traffic between evenly dealt instances every ASC is about zero although much crosses nodes:
    then a busy instance makes the start, sideways, and the others follow it."""
    total = sum(rate for rate in view.traffic.values())
    movable = [instance for instance in view.instances if instance.key not in memory.moved_at_s]
    targets = _least_loaded(low)
    gaining = _best(
        view, movable, targets, settings, least_asc=settings.threshold * total, least_own=settings.own
    )
    if gaining is not None or memory.moved_at_s or _crossing(view) < settings.symmetric * total:
        return gaining
    mine: dict[Key, float] = {}
    for pair, rate in view.traffic.items():
        for key in pair:
            mine[key] = mine.get(key, 0.0) + rate
    busy = [i for i in movable if mine.get(i.key, 0.0) >= 2 * total / max(1, len(view.instances))]
    start = _best(view, busy, targets, settings, least_asc=-settings.sideways * total)
    gains = start is not None and start.asc > max(
        settings.sideways * total, settings.own * mine[start.instance]
    )
    return None if gains else start  # one that gains and is not worth it by the thresholds is no start


def _crossing(view: OnlineView) -> float:
    """Bytes per second between nodes."""
    node_of = {worker.id: worker.node for worker in view.workers}
    home = {i.key: node_of[i.worker] for i in view.instances if i.worker in node_of}
    return sum(
        rate
        for (sender, receiver), rate in view.traffic.items()
        if sender in home and receiver in home and home[sender] != home[receiver]
    )


def _best(
    view: OnlineView,
    movable: Sequence[OnlineInstance],
    targets: Sequence[OnlineWorker],
    settings: OnlineSettings,
    *,
    least_asc: float,
    least_own: float | None = None,
) -> OnlineMove | None:
    """The pair with the largest ASC above the least; O(traffic + instances × nodes)."""
    node_of = {worker.id: worker.node for worker in view.workers}
    home = {i.key: node_of[i.worker] for i in view.instances if i.worker in node_of}
    with_node: dict[Key, dict[str, float]] = {key: {} for key in home}
    for (sender, receiver), rate in sorted(view.traffic.items()):
        if sender != receiver and sender in home and receiver in home:
            for one, other in ((sender, receiver), (receiver, sender)):
                with_node[one][home[other]] = with_node[one].get(home[other], 0.0) + rate
    by_id = {worker.id: worker for worker in view.workers}
    best: tuple[tuple[float, float], OnlineMove] | None = None
    for instance in sorted(movable, key=lambda instance: instance.key):
        mine = with_node.get(instance.key)
        if mine is None:
            continue
        for target in targets:
            after = _cpu_after(target, instance)
            if target.id == instance.worker or (after is not None and after >= settings.high_cpu):
                continue
            asc = mine.get(target.node, 0.0) - mine.get(home[instance.key], 0.0)
            source = by_id[instance.worker]
            freed = (instance.cpu_cores or 0.0) / max(1, source.cores)
            uneven = abs((source.cpu or 0.0) - freed - (after or 0.0))
            if (
                asc > least_asc
                and (least_own is None or asc > least_own * sum(mine.values()))
                and (best is None or (asc, -uneven) > best[0])
            ):
                move = OnlineMove(
                    instance=instance.key, from_worker=instance.worker, to_worker=target.id, asc=asc
                )
                best = ((asc, -uneven), move)
    return None if best is None else best[1]


def _least_loaded(low: Sequence[OnlineWorker]) -> list[OnlineWorker]:
    """The least loaded low worker of each node; the others of the node save the same traffic."""
    best: dict[str, OnlineWorker] = {}
    for worker in low:
        if worker.node not in best or _load(worker) < _load(best[worker.node]):
            best[worker.node] = worker
    return [best[node] for node in sorted(best)]


def _load(worker: OnlineWorker) -> tuple[float, float]:
    return worker.queue_s or 0.0, worker.cpu or 0.0


def _cpu_after(target: OnlineWorker, instance: OnlineInstance) -> float | None:
    """CPU share of the target with the instance on it; None: not known."""
    if target.cpu is None or instance.cpu_cores is None:
        return None
    return target.cpu + instance.cpu_cores / max(1, target.cores)


def _recent(memory: OnlineMemory, since_s: float) -> OnlineMemory:
    return replace(
        memory, moved_at_s={key: at for key, at in sorted(memory.moved_at_s.items()) if at > since_s}
    )


def _unmeasured(view: OnlineView, workers: Sequence[OnlineWorker]) -> list[str]:
    known = {worker.id for worker in workers}
    unknown = [worker.id for worker in workers if worker.cpu is None and worker.queue_s is None]
    gone = sorted({instance.worker for instance in view.instances} - known)
    return [
        *([f"not measured, taken for normal: workers {', '.join(unknown)}"] if unknown else []),
        *([f"workers {', '.join(gone)} left; their instances are not considered"] if gone else []),
    ]


def _problems(view: OnlineView) -> Iterator[str]:
    values = [(f"worker '{w.id}': cpu", w.cpu) for w in view.workers]
    values += [(f"worker '{w.id}': queue_s", w.queue_s) for w in view.workers]
    values += [(f"instance {i.operator}[{i.index}]: cpu_cores", i.cpu_cores) for i in view.instances]
    values += [(f"traffic {a[0]}[{a[1]}] -> {b[0]}[{b[1]}]", rate) for (a, b), rate in view.traffic.items()]
    for what, value in values:
        if value is not None and not (math.isfinite(value) and value >= 0):
            yield f"{what} is {value}; it must be finite and not negative, or None if unknown"
