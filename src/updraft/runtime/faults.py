"""Named moments of a batch at which a test can make the driver fail. Does nothing unless `hook` is set.

Moments, in order: "begun" (nothing done yet), "processed" (state sealed, nothing delivered), "delivered" (sinks have the rows,
no commit), "committed" (our commit is written, Spark's is not).
"""

from __future__ import annotations

from collections.abc import Callable

MOMENTS = ("begun", "processed", "delivered", "committed")

hook: Callable[[str, int], None] | None = None


def reach(moment: str, batch_id: int) -> None:
    """Called by the engine."""
    if hook is not None:
        hook(moment, batch_id)
