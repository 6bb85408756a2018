"""Policies as pure functions: what should change, and why."""

from updraft.policy.online import (
    InvalidMeasurements,
    Load,
    OnlineCase,
    OnlineDecision,
    OnlineInstance,
    OnlineMemory,
    OnlineMove,
    OnlineSettings,
    OnlineView,
    OnlineWorker,
    decide_online,
)

__all__ = [
    "InvalidMeasurements",
    "Load",
    "OnlineCase",
    "OnlineDecision",
    "OnlineInstance",
    "OnlineMemory",
    "OnlineMove",
    "OnlineSettings",
    "OnlineView",
    "OnlineWorker",
    "decide_online",
]
