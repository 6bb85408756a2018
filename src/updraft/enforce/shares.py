"""Shares of CPU by operator: a table beside the plan, so that it may change from batch to batch without a new plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from updraft.enforce.model import EnforceError

SOURCE = "source"  # stands for the partitions of the source stage, which have no operator of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Cores for each instance of an operator; one that is not named has no limit, but is counted."""

    version: int = (
        0  # another one for other shares: processes that set a quota long ago know by it that it may be old
    )
    cores: Mapping[str, float] = field(default_factory=dict)

    def of(self, operator: str | None) -> float | None:
        """Cores of one instance; None: no limit."""
        return self.cores.get(operator or SOURCE)

    def changed(self, cores: Mapping[str, float]) -> Shares:
        """The next table."""
        return Shares(version=self.version + 1, cores=dict(cores))


def group_of(run_id: str, operator: str | None, index: int) -> str:
    """The group of one instance of one run, or of one source partition."""
    return f"{run_id}-{operator or SOURCE}-{index}"


def check_shares(cores: Mapping[str, float], operators: Iterable[str]) -> None:
    """EnforceError with every share that cannot be."""
    if problems := list(_problems(cores, sorted({*operators, SOURCE}))):
        raise EnforceError("CPU shares are not possible: " + "; ".join(problems))


def _problems(cores: Mapping[str, float], known: list[str]) -> Iterator[str]:
    for name, value in sorted(cores.items()):
        if name not in known:
            yield f"there is no operator '{name}' with instances; there are {', '.join(known)}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"'{name}': {value!r} is not a number of cores"
        elif not math.isfinite(value) or value < 0:
            yield f"'{name}': {value} cores is not possible; give a number of cores such as 0.4"
