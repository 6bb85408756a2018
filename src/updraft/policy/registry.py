"""Policies by name. Every one gets the stability rules; `settings.stability` switches single ones off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from updraft.errors import UpdraftError
from updraft.policy import adaptive, joint, moving, static, symbiotic, threshold, updraft
from updraft.policy.settings import Settings
from updraft.policy.steady import steadied

if TYPE_CHECKING:
    from updraft.policy.model import Decide


class UnknownPolicy(UpdraftError):
    """No policy has this name; the message lists those there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A name, what it decides by, and the settings it implies."""

    name: str
    summary: str
    decide: Decide
    proactive: bool | None = None  # None: as set
    enforces: bool = False  # it decides by CPU shares: a run enforces them without being asked to
    scale_in_part: float = 1.0  # of the time that less must be enough elsewhere, as its scale-ins cost little

    def settings(self, settings: Settings) -> Settings:
        """The settings this policy runs with."""
        if self.proactive is not None:
            settings = replace(settings, proactive=self.proactive)
        rules = settings.stability
        return replace(
            settings,
            stability=replace(rules, scale_in_after_s=rules.scale_in_after_s * self.scale_in_part),
        )


_KNOWN = (
    Policy(name="static", summary="the plan of the start", decide=steadied(static.decide)),
    Policy(name="threshold", summary="paper 1: doubling and halving", decide=steadied(threshold.decide)),
    Policy(name="joint", summary="paper 5: more instances, one more worker", decide=steadied(joint.decide)),
    Policy(
        name="symbiotic",
        summary="paper 5: operators, then the fewest workers, for the measured load",
        decide=steadied(symbiotic.decide),
        proactive=False,
    ),
    Policy(
        name="symbiotic-proactive",
        summary="paper 5: the same for the forecast",
        decide=steadied(symbiotic.decide),
        proactive=True,
    ),
    Policy(
        name="adaptive",
        summary="paper 2: CPU shares for predicted demand",
        decide=steadied(adaptive.decide),
        enforces=True,
    ),
    Policy(
        name="online", summary="paper 3: one move a round, for balance or communication", decide=moving.decide
    ),
    Policy(
        name="updraft",
        summary="our own: the fewest workers for the near future, with an instance on every core of them",
        decide=updraft.with_moves(steadied(updraft.decide)),
        scale_in_part=0.5,
    ),
)

POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _KNOWN}
DEFAULT = "updraft"  # of runs that go on until they are stopped


def policy(name: str, known: Mapping[str, Policy] = POLICIES) -> Policy:
    """The policy of that name."""
    if name not in known:
        raise UnknownPolicy(f"there is no policy '{name}'; there are: {', '.join(sorted(known))}")
    return known[name]
