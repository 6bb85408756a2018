"""Who runs what, where: plans, their first version, and the stages a batch job is made of."""

from updraft.plan.initial import initial_plan, split_tasks
from updraft.plan.model import Instance, Plan, Worker
from updraft.plan.stages import Layout, Slot, Stage, lay_out

__all__ = ["Instance", "Layout", "Plan", "Slot", "Stage", "Worker", "initial_plan", "lay_out", "split_tasks"]
