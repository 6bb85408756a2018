"""A kit for testing topologies and operators, the one Updraft tests itself with.

- `ScriptedSource` and `run_script`: real Spark over scripted micro-batches, with crashes (`ABORT`) and clean ends
  (`END`) where the script has them, so that a recovery test reads as prose.
- `memory`: a sink that keeps its rows.
- `recompute` and `assert_equals_recomputation`: what the results must be, and a readable difference if they are not.
- `files_by_batch`: what a batch of a file source consisted of, for comparisons batch by batch.
- `operator_harness` and `ManualClock`: one operator over real state and a clock of your own, without Spark.
"""

from updraft.sinks import MemorySink, memory
from updraft.testing.clock import ManualClock
from updraft.testing.consumed import files_by_batch
from updraft.testing.harness import OperatorHarness, operator_harness
from updraft.testing.oracle import assert_equals_recomputation, assert_same_rows, recompute
from updraft.testing.runs import Outcome, ScriptedCrash, ScriptRun, run_script
from updraft.testing.script import ABORT, END, Abort, End, ScriptedSource

__all__ = [
    "ABORT",
    "END",
    "Abort",
    "End",
    "ManualClock",
    "MemorySink",
    "OperatorHarness",
    "Outcome",
    "ScriptRun",
    "ScriptedCrash",
    "ScriptedSource",
    "assert_equals_recomputation",
    "assert_same_rows",
    "files_by_batch",
    "memory",
    "operator_harness",
    "recompute",
    "run_script",
]
