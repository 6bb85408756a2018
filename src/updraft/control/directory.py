"""Where running topologies say that they run, so that `updraft status` finds them: one file per run.

In $XDG_RUNTIME_DIR/updraft, or in a directory of the user's own under the temp directory when there is no such (cron,
containers). Readers look into both, since a job and the shell that asks about it may have different environments. The
files hold tokens: a directory that others own, or may look into, is refused.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from updraft.cluster.processes import ProcessId, is_alive
from updraft.control.errors import AmbiguousName, ControlError, NotRunning

log = logging.getLogger("updraft.control")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run: who it is and how to talk to it."""

    topology: str
    process: ProcessId
    port: int
    token: str = field(repr=False)
    checkpoint: str
    started_at: float  # unix seconds

    @property
    def address(self) -> str:
        """What tells it from other runs of the topology."""
        return f"{self.topology}@{self.process.pid}"

    @property
    def file_name(self) -> str:
        return f"{self.address}-{self.port}.json"

    def to_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "pid": self.process.pid,
            "process_started": self.process.started,
            "port": self.port,
            "token": self.token,
            "checkpoint": self.checkpoint,
            "started_at": self.started_at,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Entry:
        """Inverse of `to_json`; KeyError, TypeError or ValueError if it is none."""
        return cls(
            topology=str(value["topology"]),
            process=ProcessId(pid=int(value["pid"]), started=int(value["process_started"])),
            port=int(value["port"]),
            token=str(value["token"]),
            checkpoint=str(value["checkpoint"]),
            started_at=float(value["started_at"]),
        )


def places(env: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Directories where runs of this user may be registered; new ones go into the first."""
    env = os.environ if env is None else env
    own = Path(tempfile.gettempdir()) / f"updraft-{os.geteuid()}"
    runtime = Path(env.get("XDG_RUNTIME_DIR") or ".")
    # After `su` the variable may still name the other user's directory, and in a container none at all.
    usable = runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.geteuid()
    return (runtime / "updraft", own) if usable else (own,)


def place_problem(place: Path) -> str | None:
    """Why an existing directory cannot be trusted with tokens; None: it can."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{place} is not a directory"
    if found.st_uid != os.geteuid():
        return f"{place} belongs to another user (uid {found.st_uid})"
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        return f"{place} has mode {mode:o}, so others may look into it; 'chmod 700 {place}'"
    return None


@contextmanager
def registered(entry: Entry, place: Path | None = None) -> Iterator[Path]:
    """The run is listed while the context lasts; ControlError if there is no safe place for it."""
    where = places()[0] if place is None else place
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = place_problem(where)
    except OSError as error:
        problem = str(error)
    if problem is not None:
        raise ControlError(
            f"topology '{entry.topology}' cannot be registered for 'updraft status': {problem}; "
            "or set XDG_RUNTIME_DIR to a directory of your own"
        )
    path = where / entry.file_name
    _write_atomic(path, json.dumps(entry.to_json()))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def running(among: Sequence[Path] | None = None) -> tuple[Entry, ...]:
    """Runs of this user that are alive, by name and start; what dead ones left behind is removed.

    An unsafe first place is an error. Further ones are skipped then: anybody may make a directory under the temp one.
    """
    found: list[Entry] = []
    for number, place in enumerate(places() if among is None else among):
        try:
            problem = place_problem(place)
        except FileNotFoundError:
            continue
        if problem is None:
            found += _alive(place)
        elif number == 0:
            raise ControlError(f"cannot look for running topologies: {problem}")
        else:
            log.warning("not looking for running topologies there: %s", problem)
    return tuple(sorted(found, key=lambda entry: (entry.topology, entry.started_at, entry.port)))


def choose(entries: Iterable[Entry], wanted: str | None) -> Entry:
    """The run that NAME, NAME@PID or NAME@PID:PORT means; without one, the only run there is."""
    everyone = tuple(entries)
    fitting = tuple(
        entry
        for entry in everyone
        if wanted in (None, entry.topology, entry.address, f"{entry.address}:{entry.port}")
    )
    match fitting:
        case [entry]:
            return entry
        case []:
            others = ", ".join(entry.address for entry in everyone)
            there = f"running: {others}" if others else "none is running"
            what = "no topology" if wanted is None else f"no topology '{wanted}'"
            raise NotRunning(f"{what} of this user runs on this machine; {there}")
        case _:
            several = len({entry.address for entry in fitting}) < len(fitting)
            lines = [
                f"  {entry.address}{f':{entry.port}' if several else ''}  (checkpoint {entry.checkpoint})"
                for entry in fitting
            ]
            what = "topologies run" if wanted is None else f"runs answer to '{wanted}'"
            raise AmbiguousName("\n".join([f"{len(fitting)} {what}; name one of:", *lines]))


def _alive(place: Path) -> Iterator[Entry]:
    for path in sorted(place.glob("*.json")):
        try:
            entry = Entry.from_json(json.loads(path.read_bytes()))
        except FileNotFoundError:  # it ended just now
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is no entry of a running topology: %s", path, error)
            continue
        if is_alive(entry.process):
            yield entry
        else:
            path.unlink(missing_ok=True)


def _write_atomic(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    # Never readable by others, not even between creation and chmod.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
