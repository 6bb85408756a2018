"""Spark's Python daemon with the imports done once, before workers are forked from it.

Spark starts this module instead of its own (`spark.python.daemon.module`). A new Python worker then costs a fork
instead of a second of imports.
"""

from pyspark.daemon import manager

import updraft.runtime.stage  # noqa: F401

if __name__ == "__main__":
    manager()
