"""Which worker runs which instance: strategies by name, as pure functions. Who holds copies goes with it."""

from updraft.placement.model import (
    Demand,
    Flows,
    InstanceKey,
    InvalidRequest,
    Lack,
    Node,
    PlacedOperator,
    Placement,
    PlacementRequest,
    UnknownStrategy,
    Unmet,
    WorkerRoom,
)
from updraft.placement.place import STRATEGIES, place
from updraft.placement.plans import edges_between, flows_of, request_of, to_plan

__all__ = [
    "STRATEGIES",
    "Demand",
    "Flows",
    "InstanceKey",
    "InvalidRequest",
    "Lack",
    "Node",
    "PlacedOperator",
    "Placement",
    "PlacementRequest",
    "UnknownStrategy",
    "Unmet",
    "WorkerRoom",
    "edges_between",
    "flows_of",
    "place",
    "request_of",
    "to_plan",
]
