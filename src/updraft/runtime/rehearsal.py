"""`python -m updraft.runtime.rehearsal MASTER FILE`: a small topology on a cluster of one node, whose executor writes an
archive of the classes that it has loaded as it ends (`cluster/archive.py`). It does what any topology does: reads, calls
operators, exchanges bundles, keeps state, writes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa

import updraft as ud
from updraft.apps.generators.tweets import Tweets
from updraft.apps.schedules import constant
from updraft.apps.source import Load
from updraft.runtime.session import remove_log, start_session

_BATCHES = 6
_ROWS = 2_000
_WRITE_S = 60.0


def _topics(rows: pa.Table) -> pa.Table:
    return rows.select(["ts", "topic"])


def rehearse(master: str, archive: Path) -> None:
    """Until the executor has written the file."""
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.extraJavaOptions": (
            f"-XX:ArchiveClassesAtExit={archive} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        ),
    }
    session, log = start_session("rehearsal", master=master, conf=conf)
    load = Load(
        generator=Tweets(),
        schedule=constant(float(_ROWS), float(_BATCHES)),
        paced=False,
        start_ms=1_700_000_000_000,
        max_rows_per_batch=_ROWS,
        partitions=2,
    )
    app = ud.Topology("rehearsal")
    rows = app.source("rows", load.frame, schema=load.schema).with_watermark("ts")
    topics = rows.map(
        _topics, name="topics", schema=pa.schema([load.schema.field("ts"), load.schema.field("topic")])
    )
    counts = topics.key_by("topic").window(ud.tumbling(10), emit="update").count("n", tasks=8, parallelism=2)
    counts.sink("out", ud.sinks.discard())
    ud.run(app, spark=session, until_idle=True, policy="static")
    # Ended by us and not by Spark's worker, which would give it ten seconds: writing may take longer on a busy machine.
    executor = session.sparkContext.parallelize([0], 1).map(_executor).first()
    os.kill(executor, signal.SIGTERM)
    deadline = time.monotonic() + _WRITE_S
    while Path(f"/proc/{executor}").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    session.stop()
    remove_log(log)


def _executor(_: int) -> int:
    """The JVM that this Python process works for: the parent of the one that it was forked from."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))


if __name__ == "__main__":
    rehearse(sys.argv[1], Path(sys.argv[2]))
