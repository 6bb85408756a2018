"""Finds the Spark session to run on, or starts one when the user does not bring one, with the settings that make it fast.

What the settings give up is said beside each; a user's own `spark_conf` always wins.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from updraft.errors import UpdraftError
from updraft.java import require_java
from updraft.operators.duration import duration_ms
from updraft.topology import Topology
from updraft.topology.records import SourceRecord

if TYPE_CHECKING:
    from updraft.runtime.options import RunOptions

TopologyFactory = Callable[[SparkSession], Topology]

HANG_TIMEOUT_S = 30.0
_LOGS = "updraft-log-"  # how directories of logs are named
_LOG_CONFIG = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def settings() -> dict[str, str]:
    """Spark settings that both sides of a benchmark get. None of them weakens what a commit means."""
    return {
        # Python tasks talk to the JVM over unix sockets: about 40 ms less for each of them.
        "spark.python.unix.domain.socket.enabled": "true",
        # Workers fork from a process that has already imported Arrow and Updraft.
        "spark.python.daemon.module": "updraft.runtime.daemon",
        # Python workers keep the memory they freed: asking the kernel for fresh pages costs about as much as sorting them.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(256 << 20),
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(512 << 20),
        "spark.executorEnv.MALLOC_TOP_PAD_": str(32 << 20),
        # The default manager forks shell commands on a local file system. Rename on a POSIX file system is atomic, which is
        # all the log needs; `run` goes back to Spark's default for checkpoints on other file systems.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Placement: a stage after a shuffle must not be pulled to where most of its input is ...
        "spark.shuffle.reduceLocality.enabled": "false",
        # ... and waits for its worker rather than run without its state.
        "spark.locality.wait.process": "1h",
        # Bundles are Arrow buffers that were just made and are read at once: compressing them costs more than it saves.
        "spark.shuffle.compress": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def hang_settings(timeout_s: float) -> dict[str, str]:
    """Spark gives up on an executor that has sent no heartbeat for so long, at most; the cluster manager replaces it."""
    step_ms = max(1, round(1000 * timeout_s / 6))
    return {
        "spark.executor.heartbeatInterval": f"{step_ms}ms",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{4 * step_ms}ms",
        "spark.network.timeoutInterval": f"{2 * step_ms}ms",
    }


def start_session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    hang_timeout_s: float = HANG_TIMEOUT_S,
) -> tuple[SparkSession, Path]:
    """A session, and the file its logs go to; `remove_log` when nobody will want to read it."""
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log = Path(tempfile.mkdtemp(prefix=_LOGS)) / "spark.log"
    config = log.with_name("log4j2.properties")
    config.write_text(_LOG_CONFIG.format(path=log))
    _redirect_logs(config)
    builder = SparkSession.builder.appName(name).master(master or "local[*]")
    options = f"-Dlog4j2.configurationFile=file:{config}"
    # Embedded, the only executor is this process: giving up on it would end the run.
    hanging = {} if (master or "local").startswith("local") else hang_settings(hang_timeout_s)
    wanted = {**settings(), **hanging, "spark.driver.extraJavaOptions": options, **(conf or {})}
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate(), log


def _redirect_logs(config: Path) -> None:
    """The JVM stays when a session is stopped, and the next one gets it: with the log of the last one, which may be removed."""
    jvm = SparkContext._jvm
    if jvm is None or SparkContext._active_spark_context is not None:
        return
    log4j = jvm.org.apache.logging.log4j
    current = log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource().getLocation()
    if current is not None and _LOGS in current:  # else it is the user's own
        log4j.core.config.Configurator.reconfigure(jvm.java.net.URI(config.as_uri()))


def remove_log(log: Path) -> None:
    """Remove what `start_session` wrote for a session's log; Spark may still have it open."""
    shutil.rmtree(log.parent, ignore_errors=True)


@contextmanager
def pointing_to(log: Path) -> Iterator[None]:
    """Adds to an error where Spark's own log is."""
    try:
        yield
    except UpdraftError as error:
        if log.exists():
            error.add_note(f"Spark's log: {log}")
        raise


def session_for(
    topology: Topology | TopologyFactory, spark: SparkSession | None, options: RunOptions
) -> tuple[SparkSession, Path | None]:
    """The session to use, and its log file if it is ours to stop."""
    if spark is not None:
        return spark, None
    if isinstance(topology, Topology):
        for record in topology.records:
            if isinstance(record, SourceRecord) and isinstance(record.frame, DataFrame):
                return record.frame.sparkSession, None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active, None
    name = topology.name if isinstance(topology, Topology) else getattr(topology, "__name__", "updraft")
    return start_session(
        name,
        master=options.master,
        conf=options.spark_conf,
        hang_timeout_s=duration_ms(options.hang_timeout) / 1000,
    )
