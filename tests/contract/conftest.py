"""The embedded Spark of tests/spark, for implementations that need one."""

from tests.spark.conftest import spark

__all__ = ["spark"]
