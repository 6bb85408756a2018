"""How Spark's own Master and Worker are started on loopback, and what the master says of its workers."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from updraft.cluster.processes import dies_with_parent
from updraft.errors import ClusterError

HOST = "127.0.0.1"
CLUSTER_VARIABLE = "UPDRAFT_CLUSTER"
NODE_VARIABLE = "UPDRAFT_NODE"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
# Ports are chosen here; Spark must fail rather than silently move to the next one, where nobody looks for it.
_DAEMON_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false"
    # Executors that are killed again and again must not make the master give the application up.
    " -Dspark.deploy.maxExecutorRetries=-1"
)
# Variables by which a user's other Spark would leak into this one.
_FOREIGN = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_MASTER_OPTS", "SPARK_WORKER_OPTS")
_LOGGING_FILE = "log4j2.properties"
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Where executors find Spark's classes laid out (`archive.py`), and the empty directory on their class path."""

    archive: Path
    conf: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker as the master lists it."""

    port: int
    alive: bool
    cores: int
    cores_used: int


def spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError("pyspark is not installed in this environment: run 'make setup'")
    return Path(spec.origin).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def environment(
    cluster_id: str, directory: Path, node: str | None = None, classes: Classes | None = None
) -> dict[str, str]:
    """What a daemon, and every executor it starts, finds in its environment."""
    env = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
    env |= {
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(write_conf(directory) if classes is None else classes.conf),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_PUBLIC_DNS": HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
        # The launcher JVM that spark-class runs first: half a second less without the optimising compiler.
        "SPARK_LAUNCHER_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
        "PYSPARK_PYTHON": sys.executable,
        CLUSTER_VARIABLE: cluster_id,
    }
    if classes is not None:
        # By the variable that every Java reads: executors get their options from applications, which know nothing of this.
        logging = write_conf(directory) / _LOGGING_FILE
        shared = f" -XX:SharedArchiveFile={classes.archive} -Xshare:auto" if classes.archive.exists() else ""
        own = env.get("JDK_JAVA_OPTIONS", "")
        env["JDK_JAVA_OPTIONS"] = f"{own} -Dlog4j2.configurationFile=file:{logging}{shared}".strip()
    if node is not None:
        env[NODE_VARIABLE] = node
        env["SPARK_LOCAL_DIRS"] = str(directory / node / "local")
    return env


def write_conf(directory: Path) -> Path:
    """The cluster's own configuration directory: quiet logs, nothing of the user's spark-defaults."""
    conf = directory / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / _LOGGING_FILE).write_text(_LOGGING)
    return conf


def host_of(number: int) -> str:
    """A loopback address for a node that must not share one with the others."""
    return f"127.0.{1 + number // 250}.{1 + number % 250}"


def start_master(
    env: Mapping[str, str], directory: Path, *, port: int, ui_port: int
) -> subprocess.Popen[bytes]:
    arguments = [_MASTER, "--host", HOST, "--port", str(port), "--webui-port", str(ui_port)]
    return _start(env, arguments, directory / "master.log")


def start_worker(
    env: Mapping[str, str],
    directory: Path,
    *,
    master_url: str,
    port: int,
    cores: int,
    memory: str,
    host: str = HOST,
) -> subprocess.Popen[bytes]:
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [_WORKER, "--host", host, "--port", str(port), "--webui-port", "0"]
    arguments += [
        "--cores",
        str(cores),
        "--memory",
        memory,
        "--work-dir",
        str(directory / "work"),
        master_url,
    ]
    return _start(env, arguments, directory / "worker.log")


def _start(env: Mapping[str, str], arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(spark_home() / "bin" / "spark-class"), *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            # Ctrl-C at a terminal must reach the supervisor alone, which then ends its children in order.
            start_new_session=True,
            # The supervisor starts its children from its only thread, so this is safe after the fork.
            preexec_fn=dies_with_parent(),  # noqa: PLW1509
        )


def workers_seen(ui_url: str, timeout_s: float = 2.0) -> tuple[WorkerSeen, ...] | None:
    """The workers the master lists; None while the master does not answer."""
    # Loopback must be asked directly, whatever proxy the environment names.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{ui_url}/json/", timeout=timeout_s) as answer:
            told: dict[str, Any] = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError):
        return None
    if told.get("status") != "ALIVE":
        return None
    return tuple(
        WorkerSeen(
            port=int(worker["port"]),
            alive=worker["state"] == "ALIVE",
            cores=int(worker["cores"]),
            cores_used=int(worker["coresused"]),
        )
        for worker in told["workers"]
    )
