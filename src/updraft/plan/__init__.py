"""Who runs what, where: plans, changes between them, the stages of a batch job. Pure: no Spark, no I/O, no clock."""

from updraft.plan.change import Refusal, drain, move, relocate, replan, rescale, without_workers
from updraft.plan.diff import Copy, Drop, Holdings, Promote, Step, apply_step, diff, holdings_of, without
from updraft.plan.initial import initial_plan, split_tasks
from updraft.plan.model import Instance, Plan, PlanError, TaskKey, Worker
from updraft.plan.regroup import regroup, room_of
from updraft.plan.stages import Layout, Slot, Stage, lay_out
from updraft.plan.strategy import (
    Strategy,
    all_at_once,
    batched,
    budgeted,
    changed_tasks,
    max_rounds,
    one_by_one,
    strategy_named,
)
from updraft.plan.validate import Limits, limits_of, validate

__all__ = [
    "Copy",
    "Drop",
    "Holdings",
    "Instance",
    "Layout",
    "Limits",
    "Plan",
    "PlanError",
    "Promote",
    "Refusal",
    "Slot",
    "Stage",
    "Step",
    "Strategy",
    "TaskKey",
    "Worker",
    "all_at_once",
    "apply_step",
    "batched",
    "budgeted",
    "changed_tasks",
    "diff",
    "drain",
    "holdings_of",
    "initial_plan",
    "lay_out",
    "limits_of",
    "max_rounds",
    "move",
    "one_by_one",
    "regroup",
    "relocate",
    "replan",
    "rescale",
    "room_of",
    "split_tasks",
    "strategy_named",
    "validate",
    "without",
    "without_workers",
]
