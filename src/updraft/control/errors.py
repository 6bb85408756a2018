"""What can go wrong between a person and a running topology, each with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from updraft.errors import UpdraftError
from updraft.plan.model import PlanError


class ControlError(UpdraftError):
    """A running topology cannot be found, reached or asked."""


class NotRunning(ControlError):
    """No such topology of this user runs on this machine."""


class AmbiguousName(ControlError):
    """Several running topologies answer to the name."""


class Unreachable(ControlError):
    """The topology is registered but does not answer, or answers what is no answer."""


class BadRequest(ControlError):
    """A request that cannot be understood; carries every problem found."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(_listed("the request is not valid", self.problems))


class UnknownChange(ControlError):
    """No change has this number."""


class ChangeRefused(PlanError):
    """A change that is understood but not possible; carries every reason. The plan stays as it is."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(_listed("refused", self.reasons))


def reasons_of(error: PlanError) -> tuple[str, ...]:
    """Why a plan was refused, one string per reason."""
    return error.reasons if isinstance(error, ChangeRefused) else (str(error),)


def _listed(what: str, reasons: Sequence[str]) -> str:
    if len(reasons) == 1:
        return f"{what}: {reasons[0]}"
    return "\n".join([f"{what}:", *(f"  - {reason}" for reason in reasons)])
