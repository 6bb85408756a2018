"""Every error Updraft raises on purpose, under one base class.

Each message names what is wrong (operator, option, file) and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence


class UpdraftError(Exception):
    """Base of all errors raised on purpose by Updraft."""


class InvalidTopology(UpdraftError):
    """The topology cannot run; carries every problem found, not only the first."""

    def __init__(self, topology: str, problems: Sequence[str]) -> None:
        self.topology = topology
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        super().__init__(f"topology '{topology}' has {count}:\n{lines}")


class OperatorFailed(UpdraftError):
    """A user's operator raised, or returned something it must not; nothing of the batch was committed."""

    def __init__(
        self, *, topology: str, operator: str, tasks: str, batch: int, reason: str, trace: str = ""
    ) -> None:
        self.topology = topology
        self.operator = operator
        self.tasks = tasks
        self.batch = batch
        self.reason = reason
        self.trace = trace
        super().__init__(
            f"operator '{operator}' (task {tasks}) of topology '{topology}' failed in batch {batch}: {reason}. "
            "Nothing of this batch was committed; fix the operator and start again to resume."
            + (f"\n{trace}" if trace else "")
        )


class StateError(UpdraftError):
    """Something is wrong with stored state."""


class SegmentMissing(StateError):
    """A segment that a committed version names is in no place this worker can read."""


class SegmentCorrupt(StateError):
    """A segment's bytes do not match the checksum recorded when it was sealed; `what` is wrong with which file."""

    def __init__(self, message: str, what: str = "") -> None:
        self.what = what
        super().__init__(message)


class CheckpointError(UpdraftError):
    """A checkpoint directory cannot be used (unwritable, full, of another topology, of a newer format)."""


class CheckpointInUse(CheckpointError):
    """Another run holds the lock of this checkpoint directory."""


class JavaNotFound(UpdraftError):
    """No usable Java; the message says how to get one."""


class ClusterError(UpdraftError):
    """A local cluster cannot be started, found, changed or ended."""


class TargetError(UpdraftError):
    """What `updraft run` was asked to run cannot be loaded."""
