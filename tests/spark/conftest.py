"""One embedded Spark for all tests that run in this process; tests that kill drivers start their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from pyspark.sql import SparkSession
from tests.spark.support import SHORT_LIVED_JVM

from updraft.runtime.session import start_session

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, quiet, with a mount table so that viewfs:// stands for a remote file system."""
    mounted = tmp_path_factory.mktemp("viewfs")
    conf = {
        "spark.hadoop.fs.viewfs.mounttable.default.link./data": f"file://{mounted}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", SHORT_LIVED_JVM)
        session, _ = start_session("tests", master="local[2]", conf=conf)
    yield session
    session.stop()


def pytest_collection_finish(session: pytest.Session) -> None:
    # Functions of test modules travel to workers, which cannot import the tests.
    names = {item.module.__name__ for item in session.items if HERE in item.path.parents}  # type: ignore[attr-defined]
    for name in names & set(sys.modules):
        cloudpickle.register_pickle_by_value(sys.modules[name])
