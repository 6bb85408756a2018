"""`static`: nothing changes; the baseline of every comparison. Bounds are still kept and skew is still named."""

from __future__ import annotations

from updraft.policy.model import Decision, Forecast, Memory, Snapshot, hold
from updraft.policy.settings import Settings


def decide(snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings) -> Decision:
    """What runs now."""
    return hold(snapshot, memory, "static", "static: the plan of the start is kept")
