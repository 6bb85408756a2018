"""Finds the Java that Spark will use, and says in one line how to get one when it cannot be used.

Spark takes `$JAVA_HOME/bin/java` when JAVA_HOME is set and else the first `java` on the PATH; so does this
module. A good Java on the PATH does not excuse a bad JAVA_HOME, because Spark would still take the bad one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from updraft.errors import JavaNotFound

MIN_JAVA = 17
_HOW = (
    f"Spark needs Java {MIN_JAVA} or newer: install it with 'sudo apt install openjdk-17-jre-headless' "
    "or 'brew install openjdk@17', or point JAVA_HOME at one"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A usable Java: its launcher and its feature release (17, 21, …)."""

    path: Path
    major: int


def parse_major(said: str) -> int | None:
    """The feature release in what `java -version` printed: 17 for "17.0.15", 8 for "1.8.0_392"."""
    match = _VERSION.search(said)
    return int(match.group(1)) if match else None


def require_java(env: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark will use under this environment; raises JavaNotFound if it would not work."""
    env = os.environ if env is None else env
    path = _find(env)
    said = _ask_version(path)
    major = parse_major(said)
    if major is None:
        raise JavaNotFound(f"wrong Java: {path} does not tell its version. {_HOW}")
    if major < MIN_JAVA:
        raise JavaNotFound(f"wrong Java: {path} is Java {major}. {_HOW}")
    return Java(path=path, major=major)


def _find(env: Mapping[str, str]) -> Path:
    home = env.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise JavaNotFound(f"no Java at JAVA_HOME={home}. {_HOW}")
        return path
    found = shutil.which("java", path=env.get("PATH", os.defpath))
    if found is None:
        raise JavaNotFound(f"no Java found. {_HOW}")
    return Path(found)


def _ask_version(path: Path) -> str:
    """What `java -version` prints: on standard error, perhaps after "Picked up JAVA_TOOL_OPTIONS" lines."""
    try:
        done = subprocess.run(
            [str(path), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFound(f"wrong Java: {path} cannot be run ({error}). {_HOW}") from error
    return done.stderr + done.stdout
