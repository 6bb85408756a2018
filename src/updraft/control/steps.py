"""Steps and tasks as text: `3,5-9` for tasks, one line for steps that differ in nothing but the task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from updraft.plan.diff import Copy, Drop, Promote, Step
from updraft.state.spec import task_ranges

_MOST_TASKS = 1 << 20  # a range of more than that is a typing mistake, not a list to build


def ranges(tasks: Iterable[int]) -> str:
    """Tasks as "3,5-9"."""
    return ",".join(
        f"{first}" if first == last else f"{first}-{last}" for first, last in task_ranges(set(tasks))
    )


def parse_ranges(text: str) -> tuple[int, ...]:
    """Inverse of `ranges`, in any order; ValueError names every part that is none."""
    found: set[int] = set()
    wrong: list[str] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first]
        if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            wrong.append(part)
            continue
        low, high = int(first), int(last if dash else first)
        if high < low or high - low > _MOST_TASKS:
            wrong.append(part)
            continue
        found.update(range(low, high + 1))
    if wrong:
        raise ValueError(f"not tasks: {', '.join(repr(part) for part in wrong)}; write 7 or 3-9")
    return tuple(sorted(found))


def step_json(step: Step) -> dict[str, Any]:
    """A step as a JSON object."""
    what = {"operator": step.operator, "task": step.task}
    match step:
        case Copy():
            return {"step": "copy", **what, "from": step.from_worker, "to": step.to_worker}
        case Promote():
            return {"step": "promote", **what, "worker": step.worker}
        case Drop():
            return {"step": "drop", **what, "worker": step.worker}


def step_lines(steps: Iterable[Step]) -> tuple[str, ...]:
    """Steps for people, in their order: those that differ only in the task are one line."""
    tasks: dict[tuple[str, str, str], list[int]] = {}
    for step in steps:
        match step:
            case Copy(from_worker=None):
                key = ("copy", step.operator, f"from the checkpoint to worker {step.to_worker}")
            case Copy():
                key = ("copy", step.operator, f"from worker {step.from_worker} to worker {step.to_worker}")
            case Promote():
                key = ("promote", step.operator, f"on worker {step.worker}")
            case Drop():
                key = ("drop", step.operator, f"on worker {step.worker}")
        tasks.setdefault(key, []).append(step.task)
    return tuple(
        f"{what} {operator}:{ranges(found)} {where}" for (what, operator, where), found in tasks.items()
    )
