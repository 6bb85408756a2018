"""An archive of Spark's classes, from which the JVM of a new executor starts in less than two thirds of the time.

Most of what an executor does until it can work is reading, checking and laying out some eight thousand classes. Java can
keep them laid out in a file (application class data sharing) and map it. The file belongs to one Java, one Spark and one class
path, so a cluster that uses it has the same empty configuration directory as the executors it was made from; Java checks all
that itself and ignores a file that does not fit. It is made once, by running a small topology whose executor writes down
what it has loaded when it ends.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from updraft.cluster.daemons import Classes, spark_home
from updraft.java import require_java

_MAKE_S = 120.0


def archive_path(home: Path) -> Path:
    """Where the archive of this Java and this Spark is, or would be."""
    java, spark = require_java().path, spark_home()
    jars = sorted(path.name for path in (spark / "jars").glob("*.jar"))
    told = "\n".join([str(java.resolve()), str(spark), str(java.stat().st_mtime_ns), *jars])
    return home / "classes" / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def classes_in(home: Path) -> Classes:
    """What a cluster needs to know; the configuration directory must stay empty, or Java does not use the archive."""
    conf = home / "classes" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    return Classes(archive=archive_path(home), conf=conf)


def make_archive(
    path: Path, run_on: Callable[[Path], str], say: Callable[[str], None] = lambda text: None
) -> bool:
    """See that the archive is there; False: it cannot be made here, and workers start as ever. `run_on` runs the small topology
    on a cluster whose one executor is to write the archive, and tells what went wrong."""
    if path.exists():
        return True
    say("making an archive of Spark's classes, once: this takes up to a minute")
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / path.name
        problem = run_on(made)
        if problem or not made.exists():
            reason = problem or "the executor wrote none"
            say(f"no archive of Spark's classes could be made ({reason}): workers start as ever")
            return False
        made.replace(path)
    return True


def rehearse(master_url: str, archive: Path) -> str:
    """Run the small topology on a cluster of one node; what went wrong, or nothing."""
    command = [sys.executable, "-m", "updraft.runtime.rehearsal", master_url, str(archive)]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MAKE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_MAKE_S:.0f} s"
    return "" if ended.returncode == 0 else (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
