"""Runs topologies on Spark. The only package that imports pyspark."""

from updraft.runtime.lifecycle import run
from updraft.runtime.progress import BatchSummary, RunResult

__all__ = ["BatchSummary", "RunResult", "run"]
