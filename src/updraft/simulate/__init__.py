"""A virtual cluster with a virtual clock, to compare policies in seconds."""

from updraft.simulate.applications import FPD, SENTIMENT, TOP_K
from updraft.simulate.cluster import Application, Hardware, VirtualCluster, VirtualOperator
from updraft.simulate.loads import Load, UnknownLoad, load
from updraft.simulate.run import Result, Trial, simulate

__all__ = [
    "FPD",
    "SENTIMENT",
    "TOP_K",
    "Application",
    "Hardware",
    "Load",
    "Result",
    "Trial",
    "UnknownLoad",
    "VirtualCluster",
    "VirtualOperator",
    "load",
    "simulate",
]
