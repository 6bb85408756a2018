"""Groupings and numbers of an operator: what the user gave, judged, and the defaults for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from updraft.topology.records import Grouping, OperatorRecord, StatelessRecord

DEFAULT_TASKS = 32
DEFAULT_PARALLELISM = 2
DELTA, ACTIVE = "delta", "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The numbers of an operator with its defaults filled in."""

    tasks: int  # 0 for a stateless operator
    parallelism: int
    min_parallelism: int
    max_parallelism: int | None  # None: no limit (stateless operators only)
    replicas: int
    replication: str


def groupings(record: OperatorRecord) -> tuple[Grouping, ...]:
    """The grouping of each input; unsaid means fused for a map without own instances, else shuffled."""
    said = any(stream.grouping is not None for stream in record.inputs)
    fused = isinstance(record, StatelessRecord) and not said and not record.options.scaled
    unsaid = Grouping.FORWARD if fused else Grouping.SHUFFLE
    return tuple(stream.grouping or unsaid for stream in record.inputs)


def scale(record: OperatorRecord) -> Scale:
    """The numbers of a record without `scale_problems`; meaningless for a fused map."""
    options = record.options
    single = _single(record)
    stateless = isinstance(record, StatelessRecord)
    tasks = 0 if stateless else options.tasks or (1 if single else DEFAULT_TASKS)
    lowest = options.min_parallelism or 1
    highest = options.max_parallelism or (1 if single else tasks or None)
    wanted = options.parallelism or max(DEFAULT_PARALLELISM, lowest)
    return Scale(
        tasks=tasks,
        parallelism=wanted if highest is None else min(wanted, highest),
        min_parallelism=lowest,
        max_parallelism=highest,
        replicas=options.replicas or 1,
        replication=options.replication or DELTA,
    )


def scale_problems(who: str, record: OperatorRecord) -> Iterator[str]:
    """Numbers that are no counts, or that contradict each other."""
    if record.options.replication not in (None, DELTA, ACTIVE):
        yield f"{who}: replication={record.options.replication!r} is unknown; choose '{DELTA}' or '{ACTIVE}'"
    given = record.options.numbers()
    bad = {name: value for name, value in given.items() if type(value) is not int or value < 1}
    for name, value in bad.items():
        yield f"{who}: {name}={value!r} must be a whole number of at least 1"
    number = {name: value for name, value in given.items() if name not in bad}
    if _single(record):
        for name, value in number.items():
            if name != "replicas" and value != 1:
                yield f"{who}: {name}={value} but to_one() sends every row to one instance; leave {name} out"
        return
    tasks = 0 if isinstance(record, StatelessRecord) or "tasks" in bad else number.get("tasks", DEFAULT_TASKS)
    for name in ("parallelism", "min_parallelism", "max_parallelism"):
        if tasks and number.get(name, 0) > tasks:
            yield (
                f"{who}: {name}={number[name]} is more than its {tasks} tasks, and an instance needs one; "
                f"lower {name} or raise tasks (tasks stay fixed once there is a checkpoint)"
            )
    lowest, highest = number.get("min_parallelism", 1), number.get("max_parallelism")
    if highest is not None and lowest > highest:
        yield f"{who}: min_parallelism={lowest} is more than max_parallelism={highest}; swap or change them"
        return
    wanted = number.get("parallelism")
    if wanted is not None and (wanted < lowest or (highest is not None and wanted > highest)):
        limits = f"at least {lowest}" if highest is None else f"between {lowest} and {highest}"
        yield f"{who}: parallelism={wanted} must be {limits} (its min_parallelism and max_parallelism)"


def _single(record: OperatorRecord) -> bool:
    return bool(record.inputs) and all(stream.grouping is Grouping.GLOBAL for stream in record.inputs)
