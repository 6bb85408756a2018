"""What can be asked of a running topology: rescale, move, drain, place. Parsed from JSON, all problems at once.

Only the form is judged here; whether the plan allows it is the plan's matter (`ChangeRefused`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

from updraft.control.errors import BadRequest
from updraft.control.steps import ranges
from updraft.placement.model import UnknownStrategy
from updraft.placement.running import placement_named
from updraft.plan.model import PlanError
from updraft.plan.strategy import strategy_named

DEFAULT_STRATEGY = "all_at_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """Other numbers of instances for some operators, in one change."""

    parallelism: Mapping[str, int]
    strategy: str = DEFAULT_STRATEGY

    def to_json(self) -> dict[str, Any]:
        return {"kind": "rescale", "parallelism": dict(self.parallelism), "strategy": self.strategy}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """These tasks of one operator on that worker."""

    operator: str
    tasks: tuple[int, ...]
    to_worker: str
    strategy: str = DEFAULT_STRATEGY

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "move",
            "operator": self.operator,
            "tasks": list(self.tasks),
            "to_worker": self.to_worker,
            "strategy": self.strategy,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Everything off a worker; `release` then gives it back to the cluster."""

    worker: str
    strategy: str = DEFAULT_STRATEGY
    release: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"kind": "drain", "worker": self.worker, "strategy": self.strategy, "release": self.release}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """What a policy decided, as one change: numbers of instances, workers that are given back, tasks that move.

    Only programs ask for it; people have rescale, move and drain."""

    parallelism: Mapping[str, int]
    release: tuple[str, ...] = ()
    moves: tuple[tuple[str, tuple[int, ...], str], ...] = ()  # operator, tasks, worker
    relocated: tuple[tuple[str, int, str], ...] = ()  # operator, instance without tasks, worker
    placement: str | None = None  # None: where the fewest tasks move
    strategy: str = DEFAULT_STRATEGY

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "replan",
            "parallelism": dict(self.parallelism),
            "release": list(self.release),
            "moves": [[operator, list(tasks), worker] for operator, tasks, worker in self.moves],
            "relocated": [list(one) for one in self.relocated],
            "placement": self.placement,
            "strategy": self.strategy,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceAgain:
    """Every instance where a placement puts it, from what was measured lately; numbers of instances stay."""

    placement: str  # NAME or NAME:γ
    strategy: str = DEFAULT_STRATEGY

    def to_json(self) -> dict[str, Any]:
        return {"kind": "place", "placement": self.placement, "strategy": self.strategy}


Request: TypeAlias = Rescale | Move | Drain | Replan | PlaceAgain


def request_text(request: Mapping[str, Any]) -> str:
    """A request's JSON as one would type it."""
    match request:
        case {"kind": "rescale", "parallelism": Mapping() as parallelism}:
            return "rescale " + " ".join(f"{name}={count}" for name, count in sorted(parallelism.items()))
        case {"kind": "move", "operator": operator, "tasks": list() as tasks, "to_worker": worker}:
            return f"move {operator}:{ranges(tasks)} --to {worker}"
        case {"kind": "drain", "worker": worker}:
            return f"drain {worker}" + ("" if request.get("release", True) else " --no-release")
        case {"kind": "replan"}:
            return _replan_text(request)
        case {"kind": "recover", "lost": list() as lost}:
            return f"recover from the loss of {', '.join(map(str, lost))}"
        case {"kind": "place", "placement": placement}:
            return f"place --strategy {placement}"
        case _:
            return str(request.get("kind", "change"))


def _replan_text(request: Mapping[str, Any]) -> str:
    parts = [f"{name}={count}" for name, count in sorted(request.get("parallelism", {}).items())]
    parts += [f"{operator}:{ranges(tasks)}→{worker}" for operator, tasks, worker in request.get("moves", ())]
    parts += [f"{operator}[{index}]→{worker}" for operator, index, worker in request.get("relocated", ())]
    released = request.get("release", ())
    return "replan " + " ".join([*parts, *([f"release {','.join(released)}"] if released else [])])


def parse_request(kind: str, body: Mapping[str, Any]) -> Request:
    """The request of that kind; BadRequest lists everything that is wrong with the body."""
    fields = _Fields(body)
    fields.take("kind", lambda value: value == kind, f"must be '{kind}' or absent", kind)
    request: Request
    match kind:
        case "rescale":
            request = Rescale(parallelism=_parallelism(fields), strategy=_strategy(fields))
        case "move":
            request = Move(
                operator=fields.take("operator", _is_name, "must be an operator's name"),
                tasks=_tasks(fields),
                to_worker=fields.take("to_worker", _is_name, "must be a worker's id, a string"),
                strategy=_strategy(fields),
            )
        case "drain":
            request = Drain(
                worker=fields.take("worker", _is_name, "must be a worker's id, a string"),
                strategy=_strategy(fields),
                release=fields.take(
                    "release", lambda value: isinstance(value, bool), "must be true or false", True
                ),
            )
        case "place":
            request = PlaceAgain(placement=_placement(fields), strategy=_strategy(fields))
        case _:
            raise BadRequest([f"nobody can ask for '{kind}'; there are rescale, move, drain and place"])
    fields.finish()
    return request


class _Fields:
    """The fields of a body: taken one by one, problems gathered, what is left over refused."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._left = dict(body)
        self._known: list[str] = []
        self.problems: list[str] = []

    def take(self, name: str, good: Callable[[Any], bool], rule: str, otherwise: Any = None) -> Any:
        """The field if it is good; else `otherwise`, and a problem unless it is absent and has a default."""
        self._known.append(name)
        if name not in self._left:
            if otherwise is None:
                self.problems.append(f"'{name}' is missing; it {rule}")
            return otherwise
        value = self._left.pop(name)
        if good(value):
            return value
        self.problems.append(f"'{name}' {rule}, not {_short(value)}")
        return otherwise

    def finish(self) -> None:
        known = ", ".join(sorted(self._known))
        self.problems += [f"unknown field {_short(name)}; there are {known}" for name in sorted(self._left)]
        if self.problems:
            raise BadRequest(self.problems)


def _parallelism(fields: _Fields) -> dict[str, int]:
    rule = 'must be an object such as {"count": 4}'
    found = fields.take("parallelism", lambda value: isinstance(value, dict) and bool(value), rule)
    for operator, count in sorted((found or {}).items()):
        if not _is_name(operator):
            fields.problems.append(f"'parallelism' names no operator: {_short(operator)}")
        if not _is_whole(count) or count < 1:
            fields.problems.append(
                f"operator {_short(operator)}: parallelism must be a whole number of at least 1, "
                f"not {_short(count)}"
            )
    return dict(found or {})


def _tasks(fields: _Fields) -> tuple[int, ...]:
    rule = "must be a list of task numbers such as [7, 8]"
    found = fields.take("tasks", lambda value: isinstance(value, list) and bool(value), rule) or ()
    if wrong := [task for task in found if not _is_whole(task) or task < 0]:
        fields.problems.append(f"'tasks' {rule}, not {_short(wrong)}")
        return ()
    return tuple(sorted(set(found)))


def _strategy(fields: _Fields) -> str:
    rule = "must be all_at_once, one_by_one or batched:K"
    name: str = fields.take("strategy", lambda value: isinstance(value, str), rule, DEFAULT_STRATEGY)
    try:
        strategy_named(name)
    except (PlanError, ValueError):  # ValueError: K with thousands of digits
        fields.problems.append(f"'strategy' {rule} (K tasks at a time, at least 1), not {_short(name)}")
    return name


def _placement(fields: _Fields) -> str:
    name: str = fields.take("placement", _is_name, "must be a placement's name such as traffic") or ""
    try:
        if name:
            placement_named(name)
    except UnknownStrategy as error:
        fields.problems.append(str(error))
    return name


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
