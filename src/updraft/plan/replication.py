"""What the copies of a plan lack, and the next of it to copy: read from what is held, so that whatever went wrong before is
made good by looking again. Paper 4's shadows, as holders of the same log instead of tasks that process it again.

A copy that is behind by a few batches comes before one that is far behind: as many tasks as possible are to be
whole on a second worker at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from updraft.plan.model import Plan, TaskKey
from updraft.plan.protocol import Chain, CopyKey, CopySegments

Has: TypeAlias = Callable[[str, str, int], bool]
"""(worker, segment, task) -> whether the worker has the task's rows of the segment"""

Makes: TypeAlias = Callable[[str, str, int], int | None]
"""(worker, segment, task) -> bytes from which the worker can make the task's rows of the segment; None: it cannot"""


def makes_nothing(worker: str, segment: str, task: int) -> int | None:
    """Every segment is copied."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What copies lack, by copy and segment, in bytes. A copy that is current is not named."""

    wanted: int  # copies the plan has
    lacking: Mapping[CopyKey, Mapping[str, int]]

    @property
    def bytes(self) -> int:
        return sum(sum(segments.values()) for segments in self.lacking.values())


def backlog(plan: Plan, chains: Mapping[TaskKey, Chain], has: Has, makes: Makes = makes_nothing) -> Backlog:
    """How far the plan's copies are behind the version of these chains, in bytes to send."""
    lacking: dict[CopyKey, dict[str, int]] = {}
    wanted = 0
    for operator, tasks in sorted(plan.copies.items()):
        for task, workers in sorted(tasks.items()):
            chain = chains.get((operator, task), {})
            for worker in workers:
                wanted += 1
                absent = {
                    name: size if (made := makes(worker, name, task)) is None else min(size, made)
                    for name, size in chain.items()
                    if not has(worker, name, task)
                }
                if absent:
                    lacking[operator, task, worker] = absent
    return Backlog(wanted=wanted, lacking=lacking)


def covers(orders: Iterable[CopySegments], behind: Backlog) -> bool:
    """Whether these copies bring everything that is lacking."""
    return sum(len(order.segments) for order in orders) == sum(len(one) for one in behind.lacking.values())


def next_copies(plan: Plan, behind: Backlog, *, batch: int, budget_bytes: int) -> tuple[CopySegments, ...]:
    """Copies of at most `budget_bytes` together, or a single one of more. The primary sends: it has every segment, or
    fetches it from the checkpoint."""
    primaries = plan.primaries()
    orders: list[CopySegments] = []
    room = budget_bytes
    for key, segments in sorted(behind.lacking.items(), key=lambda item: (sum(item[1].values()), item[0])):
        operator, task, worker = key
        chosen: dict[str, int] = {}
        for name, size in sorted(segments.items(), key=lambda item: (item[1], item[0])):
            if size > room and (orders or chosen):
                break
            chosen[name] = size
            room -= size
        if not chosen:
            break
        orders.append(
            CopySegments(
                operator=operator,
                task=task,
                from_worker=primaries.get((operator, task)),
                to_worker=worker,
                segments=tuple(sorted(chosen)),
                bytes=sum(chosen.values()),
                through_batch=batch,
            )
        )
    return tuple(orders)
