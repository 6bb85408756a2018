"""Spark's Python daemon with the imports done once, before workers are forked from it.

Spark starts this module instead of its own (`spark.python.daemon.module`). A new Python worker then costs a fork
instead of a second of imports. Spark's daemon also runs a full garbage collection after every task; what was
imported here is frozen, so that this collection looks only at what the task left.
"""

import gc

import numpy as np
import pyarrow as pa
from pyspark.daemon import manager

import updraft.runtime.stage  # noqa: F401

if __name__ == "__main__":
    pa.array(
        np.zeros(1)
    )  # makes Arrow import pandas now, if there is one, rather than in every worker's first task
    pa.set_cpu_count(1)  # a worker's parallelism is Spark's to decide
    gc.collect()
    gc.freeze()
    manager()
