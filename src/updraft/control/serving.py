"""A running topology opens itself to its user: the API is served and the run is listed, for as long as a context lasts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from updraft.cluster.processes import identify
from updraft.control.controls import Controls
from updraft.control.directory import Entry, registered
from updraft.control.errors import ControlError
from updraft.control.journal import Journal
from updraft.control.server import ControlServer


@contextmanager
def serving(
    controls: Controls,
    *,
    topology: str,
    checkpoint: str,
    started_at: float,
    journal: Journal | None = None,
    port: int = 0,
    place: Path | None = None,
) -> Iterator[Entry]:
    """Serve the controls with a new token and register the run; ControlError if either cannot be done."""
    process = identify(os.getpid())
    if process is None:
        raise ControlError("this process is not in /proc; the control API needs Linux")
    token = secrets.token_urlsafe(32)
    with ControlServer(controls, token=token, journal=journal, port=port) as server:
        entry = Entry(
            topology=topology,
            process=process,
            port=server.port,
            token=token,
            checkpoint=checkpoint,
            started_at=started_at,
        )
        with registered(entry, place):
            yield entry
