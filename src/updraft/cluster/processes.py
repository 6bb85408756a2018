"""Processes named so that a reused pid is never mistaken for them, and ways to end exactly those.

A pid alone is not a name: after a crash the kernel may give it to somebody else's process. A pid together
with the time it was started (field 22 of /proc/PID/stat) is one. Linux only, as is all of `cluster/`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """One process for ever: its pid, and the clock ticks since boot at which it was started."""

    pid: int
    started: int


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now; None if there is none or only its zombie is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name stands in parentheses and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return ProcessId(pid=pid, started=int(fields[19]))


def is_alive(process: ProcessId) -> bool:
    return identify(process.pid) == process


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal exactly this process; False if it is gone."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(processes: Iterable[ProcessId], timeout_s: float) -> tuple[ProcessId, ...]:
    """Wait until all are gone; returns those that are still there when the time is over."""
    left = tuple(processes)
    deadline = time.monotonic() + timeout_s
    while left := tuple(process for process in left if is_alive(process)):
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return left


def end(processes: Iterable[ProcessId], *, grace_s: float = 5.0) -> None:
    """Ask all of them to end, wait, then kill what is left."""
    asked = [process for process in processes if send(process, signal.SIGTERM)]
    killed = [process for process in wait_gone(asked, grace_s) if send(process, signal.SIGKILL)]
    wait_gone(killed, grace_s)


def marked(variable: str, value: str) -> tuple[ProcessId, ...]:
    """Every process of this user that was started with `variable=value` in its environment.

    This is how grandchildren (executors, Python workers) are found that no record names.
    """
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        process = identify(int(entry.name))
        if process is not None and wanted in environment.split(b"\0"):
            found.append(process)
    return tuple(found)


def dies_with_parent() -> Callable[[], None]:
    """A `preexec_fn`: the kernel kills the child when the thread that started it ends, however it ends.

    The setting survives exec, so it holds for the JVM that the spark-class script becomes.
    """
    parent = os.getpid()
    # Loaded here, before the fork: the child of a fork should do next to nothing before exec.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arm() -> None:
        if prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
            os._exit(126)
        # The parent may have died before the call above; then no signal will ever come.
        if os.getppid() != parent:
            os._exit(126)

    return arm
