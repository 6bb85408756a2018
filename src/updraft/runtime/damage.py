"""What the driver makes of damaged state: what is said of it, and what was put right without a word from the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from updraft.errors import StateError
from updraft.runtime.reports import Failure, Report


def state_error(
    *, topology: str, batch: int, version: int, failures: Sequence[Failure], advice: Callable[[], str]
) -> StateError:
    """The error that ends a run because of its state: every operator and task, the version, what is lost, what to do.

    `advice` is only asked where something is lost: it may have to read a whole checkpoint.
    """
    parts = sorted({f"operator '{one.operator}' (task {one.tasks}): {one.reason}" for one in failures})
    told = "; ".join(parts)
    if any(one.lost for one in failures) and (what_to_do := advice()):
        told = f"{told}. {what_to_do}"
    return StateError(
        f"topology '{topology}' cannot use its state of version {version} in batch {batch}, of which nothing was "
        f"committed: {told}"
    )


def repaired_segments(reports: Iterable[Report]) -> tuple[str, ...]:
    """Segments that workers had to replace, each once."""
    return tuple(sorted({name for report in reports for name in report.repaired}))
