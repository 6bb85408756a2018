"""Settings of the policies and of the stability rules, and their check: all problems at once, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING

from updraft.errors import UpdraftError

if TYPE_CHECKING:
    from updraft.policy.estimate import Estimator
    from updraft.policy.model import OperatorLoad


DAY_S = 86_400


class InvalidSettings(UpdraftError):
    """Settings that cannot work; carries every problem found."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"policy settings have {len(self.problems)} problem(s):\n{lines}")


class Execution(Enum):
    """How instances share time. Spark runs the levels of a batch one after the other; Storm runs all at once."""

    STAGES = "stages"
    PIPELINE = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Rules that hold for every policy. Each can be switched off, mostly to measure what it is good for."""

    tolerance: float = 0.2  # load this far around its recent mean is noise; 0 switches averaging off
    rounds: int = 12  # how many rounds that mean covers
    settle_s: float = 20.0  # after a change nothing is decided, its effect is not visible yet
    cooldown_s: float = 120.0  # after something was added nothing is taken away (paper 1: 12 rounds of 10 s)
    scale_in_after_s: float = 60.0  # less must be enough for this long
    backlog_s: float = 5.0  # more input than this waiting: a backlog is being drained
    drain_s: float = 60.0  # in which a backlog should be gone; enters the load that is planned for
    saturated: float = 0.9  # pressure from which on averages are not waited for
    worse: float = 0.1  # a change that raises the time per row by more than this is rolled back
    reject_s: float = 3600.0  # and not repeated for this long
    payback_s: float = 300.0  # a scale-in must pay back the measured cost of a change in this time
    no_scale_in_while_draining: bool = True
    lazy_scale_in: bool = True
    change_cost: bool = True
    name_skew: bool = True
    roll_back: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Thresholds of all policies; each uses its own. Defaults are the papers' values."""

    scale_out: float = 0.7  # paper 1: U_e above which an instance is doubled
    scale_in: float = 0.2  # paper 1: U_e below which (all of them) an operator is halved
    stability_gap: float = 0.1  # paper 1: S in scale_out > 2 × scale_in + S
    core_max: float = 0.65  # paper 5: core use of an instance, at most
    core_min: float = 0.25  # paper 5: and at least
    cpu_max: float = 0.8  # paper 5: CPU use of a worker, at most
    cpu_min: float = 0.3  # paper 5: below which joint gives a worker back
    theta: float = 0.2  # paper 2: granularity of a CPU share, in cores
    phi: int = 5  # paper 2: slots of history
    proactive: bool = False  # paper 5: plan for the forecast
    shares: bool = False  # updraft: decide CPU shares as well; runs that enforce them say so
    lead_s: float = 20.0  # updraft: from a decision to workers that work; so far ahead it looks
    least_cores: float = 0.05  # updraft: an instance with less work than this is not split off
    execution: Execution = Execution.STAGES
    min_workers: int = 1
    max_workers: int | None = None
    keep_workers: bool = False  # those the cluster gives are used; none is asked for or given back
    worker_cores: int = 1  # of a worker that would be added, when there is none to look at
    min_parallelism: Mapping[str, int] = field(default_factory=dict)
    max_parallelism: Mapping[str, int] = field(default_factory=dict)
    provision_s: float = 60.0  # a worker asked for should be there after this long
    hands_off_s: float = 600.0  # after a change by hand nothing is changed for this long; 0 switches that off
    profile: Estimator | None = None  # None: estimate from what is measured now
    stability: Stability = field(default_factory=Stability)


def settings_from(given: Mapping[str, object]) -> Settings:
    """Settings by name, such as {"core_max": 0.6, "stability.cooldown_s": 60}; `InvalidSettings` lists every unknown one."""
    own = {one.name for one in fields(Settings)} - {"stability"}
    rules = {one.name for one in fields(Stability)}
    plain = {name: value for name, value in given.items() if name in own}
    inner = {
        name.removeprefix("stability."): value
        for name, value in given.items()
        if name.startswith("stability.") and name.removeprefix("stability.") in rules
    }
    unknown = [name for name in given if name not in own and name.removeprefix("stability.") not in inner]
    if unknown:
        raise InvalidSettings([f"there is no setting '{name}'" for name in sorted(unknown)])
    return replace(Settings(), **plain, stability=replace(Stability(), **inner))  # type: ignore[arg-type]


def check(settings: Settings, operators: Sequence[OperatorLoad] = ()) -> None:
    """Raise `InvalidSettings` with all problems; operators, when known, are checked against the bounds."""
    problems = [*_thresholds(settings), *_bounds(settings), *_stability(settings.stability)]
    problems += _operators(settings, operators)
    if problems:
        raise InvalidSettings(problems)


def bounds(settings: Settings, operator: OperatorLoad) -> tuple[int, int | None]:
    """Fewest and most instances of an operator: what the topology and the settings both allow."""
    lowest = max(operator.lowest, settings.min_parallelism.get(operator.name, 1))
    limits = (operator.ceiling, settings.max_parallelism.get(operator.name))
    found = [limit for limit in limits if limit is not None]
    return lowest, min(found) if found else None


def _thresholds(s: Settings) -> Iterator[str]:
    shares = ("scale_out", "scale_in", "stability_gap", "core_max", "core_min", "cpu_max", "cpu_min")
    for name in shares:
        if not 0 <= (value := getattr(s, name)) <= 1:
            yield f"{name} = {value} is not a share; it must be between 0 and 1"
    if s.scale_out <= 2 * s.scale_in + s.stability_gap:
        yield (
            f"no stability gap: scale_out = {s.scale_out} must be more than 2 × scale_in + stability_gap = "
            f"{2 * s.scale_in + s.stability_gap:g}, or halving an operator overloads it again; lower scale_in"
        )
    for low, high in (("core_min", "core_max"), ("cpu_min", "cpu_max")):
        if getattr(s, low) >= getattr(s, high):
            yield f"{low} = {getattr(s, low)} must be less than {high} = {getattr(s, high)}"
    if not 0 < s.theta <= 1:
        yield f"theta = {s.theta} must be more than 0 and at most 1 core"
    for name in ("lead_s", "least_cores"):
        if not getattr(s, name) > 0:
            yield f"{name} = {getattr(s, name)} must be more than 0"
    if not 0 <= s.hands_off_s <= DAY_S:
        yield (
            f"hands_off_s = {s.hands_off_s} must be between 0 (switched off) and {DAY_S} (a day); policy static never "
            "changes anything"
        )
    if s.phi < 2:
        yield f"phi = {s.phi} slots give no line; it must be at least 2"


def _bounds(s: Settings) -> Iterator[str]:
    if s.min_workers < 1:
        yield f"min_workers = {s.min_workers} must be at least 1"
    if s.max_workers is not None and s.max_workers < s.min_workers:
        yield f"max_workers = {s.max_workers} is less than min_workers = {s.min_workers}"
    if s.keep_workers and s.max_workers is not None:
        yield (
            f"keep_workers = True leaves the number of workers to the cluster, max_workers = {s.max_workers} bounds it; "
            "leave one of them out"
        )
    if s.worker_cores < 1:
        yield f"worker_cores = {s.worker_cores} must be at least 1"
    for name in sorted({*s.min_parallelism, *s.max_parallelism}):
        low, high = s.min_parallelism.get(name, 1), s.max_parallelism.get(name)
        if low < 1:
            yield f"min_parallelism of operator '{name}' is {low}; it must be at least 1"
        if high is not None and high < low:
            yield f"operator '{name}': max_parallelism = {high} is less than min_parallelism = {low}"


def _stability(s: Stability) -> Iterator[str]:
    for name in ("settle_s", "cooldown_s", "scale_in_after_s", "backlog_s", "reject_s", "worse"):
        if (value := getattr(s, name)) < 0:
            yield f"stability.{name} = {value} must not be negative"
    for name in ("drain_s", "payback_s"):
        if (value := getattr(s, name)) <= 0:
            yield f"stability.{name} = {value} must be more than 0"
    if not 0 <= s.tolerance < 1:
        yield f"stability.tolerance = {s.tolerance} must be at least 0 and less than 1"
    if not 0 < s.saturated <= 1:
        yield f"stability.saturated = {s.saturated} must be more than 0 and at most 1"
    if s.rounds < 1:
        yield f"stability.rounds = {s.rounds} must be at least 1"
    if s.cooldown_s < s.settle_s:
        yield f"stability.cooldown_s = {s.cooldown_s} is less than stability.settle_s = {s.settle_s}"


def _operators(s: Settings, operators: Sequence[OperatorLoad]) -> Iterator[str]:
    if not operators:
        return
    known = {operator.name for operator in operators}
    for name in sorted({*s.min_parallelism, *s.max_parallelism} - known):
        yield f"bounds name operator '{name}', which has no instances; those that have: {', '.join(sorted(known))}"
    for operator in operators:
        lowest, highest = bounds(s, operator)
        if highest is not None and lowest > highest:
            yield f"operator '{operator.name}': at least {lowest} but at most {highest} instances contradict"
