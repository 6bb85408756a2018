"""The value of a change in preparation: its phase, the copies it makes, what they lack. `migration.py` advances it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from updraft.plan.diff import Holdings
from updraft.plan.model import Plan, TaskKey
from updraft.plan.protocol import Chain, CopyKey, CopySegments


class Phase(Enum):
    """Where a change is."""

    COPYING = "copying"  # some task has not arrived yet
    FOLLOWING = "following"  # all have arrived once, some are behind the last committed batch
    READY = "ready"  # all hold the last committed version: the plan may take effect at the next batch
    PROMOTED = "promoted"  # in effect; old copies are still there
    DROPPED = "dropped"  # done: old copies were given up
    CANCELLED = "cancelled"  # given up on request or for a newer plan; the old plan stays
    FAILED = "failed"  # could not be prepared; the old plan stays


TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    # The last first copy arrives and is behind (FOLLOWING) or current (READY: no batch was committed meanwhile).
    Phase.COPYING: frozenset({Phase.FOLLOWING, Phase.READY, Phase.CANCELLED, Phase.FAILED}),
    # The deltas arrive before the next commit.
    Phase.FOLLOWING: frozenset({Phase.READY, Phase.CANCELLED, Phase.FAILED}),
    # The engine switches; or it had begun another batch already, whose deltas must be followed too.
    Phase.READY: frozenset({Phase.PROMOTED, Phase.FOLLOWING, Phase.CANCELLED, Phase.FAILED}),
    # The first batch of the new plan is committed. No way back: from here another plan is needed.
    Phase.PROMOTED: frozenset({Phase.DROPPED}),
    Phase.DROPPED: frozenset(),
    Phase.CANCELLED: frozenset(),
    Phase.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a change is, for people and the journal."""

    phase: Phase
    copies: int  # to be made
    copies_arrived: int  # at least once in full
    copies_current: int  # at the last committed version
    bytes_copied: int
    bytes_missing: int  # until current, in flight included
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self.phase.value,
            "copies": self.copies,
            "copies_arrived": self.copies_arrived,
            "copies_current": self.copies_current,
            "bytes_copied": self.bytes_copied,
            "bytes_missing": self.bytes_missing,
            "reason": self.reason,
        }


PREPARING = frozenset({Phase.COPYING, Phase.FOLLOWING, Phase.READY})


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """One copy that is being made."""

    held: frozenset[str] = frozenset()  # segments that arrived
    through_batch: int | None = None  # None: has never been whole
    in_flight: CopySegments | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A target plan, who holds what now, and the copies it needs."""

    target: Plan
    holdings: Holdings  # of the plan in effect, less what was lost
    batch: int  # last committed
    chains: Mapping[TaskKey, Chain]
    copies: Mapping[CopyKey, CopyState]
    budget_bytes: int
    phase: Phase = Phase.COPYING
    bytes_copied: int = 0
    promoted_at: int | None = None
    lost: frozenset[str] = frozenset()
    reason: str = ""

    def missing(self, key: CopyKey) -> dict[str, int]:
        """Segments a copy lacks, with their bytes."""
        held = self.copies[key].held
        return {name: size for name, size in self.chains.get(key[:2], {}).items() if name not in held}

    def is_current(self, key: CopyKey) -> bool:
        """Whether a copy holds the last committed version."""
        return not self.missing(key) and self.copies[key].in_flight is None

    @property
    def can_finish(self) -> bool:
        """Whether what is missing fits one window: then the engine may wait for it at a batch boundary."""
        arrived = all(copy.through_batch is not None for copy in self.copies.values())
        return self.phase in PREPARING and arrived and self.progress().bytes_missing <= self.budget_bytes

    def progress(self) -> Progress:
        return Progress(
            phase=self.phase,
            copies=len(self.copies),
            copies_arrived=sum(copy.through_batch is not None for copy in self.copies.values()),
            copies_current=sum(self.is_current(key) for key in self.copies),
            bytes_copied=self.bytes_copied,
            bytes_missing=sum(sum(self.missing(key).values()) for key in self.copies),
            reason=self.reason,
        )

    def arrived(self) -> dict[CopyKey, frozenset[str]]:
        """What the copies hold, for a plan that supersedes this one."""
        return {key: copy.held for key, copy in self.copies.items() if copy.held and key[2] not in self.lost}
