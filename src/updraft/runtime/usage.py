"""What a whole worker uses: its JVM, the Python daemon and all Python workers, from /proc. Called in a Python worker.

The reports' CPU is that of instances alone; shuffles, garbage collection and the JVM's compiler are the worker's (paper 5's
OP is about just this difference). A few small files, a fraction of a millisecond.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from updraft.enforce.limits import own_limit_cores

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """Since the worker began. `limit_cores`: what a cgroup lets it use; None: all of its cores."""

    cpu_s: float
    memory_bytes: int
    limit_cores: float | None = None


def worker_use() -> ProcessUse | None:
    """Of the executor this process works for; None where /proc does not say."""
    try:
        daemon = os.getppid()
        jvm = _fields(daemon)[1]
        family = [daemon, *_children(daemon)]
        total, memory = 0, 0
        for pid in (jvm, *family):
            with suppress(OSError):  # a worker that ended meanwhile
                ticks, _, pages = _fields(pid, with_reaped=pid == daemon)
                total, memory = total + ticks, memory + pages * _PAGE
    except (OSError, ValueError, IndexError):
        return None
    return ProcessUse(cpu_s=total / _TICKS, memory_bytes=memory, limit_cores=_limit())


@lru_cache(maxsize=1)
def _limit() -> float | None:
    """Read once: a limit that is changed later is another cluster's matter."""
    return own_limit_cores()


def _fields(pid: int, with_reaped: bool = False) -> tuple[int, int, int]:
    """(CPU ticks, parent, resident pages) of a process; its name may hold spaces and brackets."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    own = int(fields[11]) + int(fields[12])
    reaped = int(fields[13]) + int(fields[14]) if with_reaped else 0
    return own + reaped, int(fields[1]), int(fields[21])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
