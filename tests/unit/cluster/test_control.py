"""Requests to a supervisor: answered, refused with a reason, and never deadly to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from updraft.cluster.control import answer_one, ask, listen
from updraft.errors import ClusterError


def handle(request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "refuse":
        raise ClusterError("not today")
    return {"did": request["do"]}


def answer(folder: Path, times: int) -> threading.Thread:
    server = listen(folder)

    def serve() -> None:
        with server:
            for _ in range(times):
                answer_one(server, handle, 5)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_requests_are_answered_even_in_a_directory_with_a_very_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    thread = answer(folder, 3)
    assert ask(folder, {"do": "add"}) == {"did": "add"}
    with pytest.raises(ClusterError, match="not today"):
        ask(folder, {"do": "refuse"})
    with pytest.raises(ClusterError, match="do"):
        ask(folder, {})
    thread.join()


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="does not answer"):
        ask(tmp_path, {"do": "add"})
    listen(tmp_path).close()
    with pytest.raises(ClusterError, match="does not answer"):
        ask(tmp_path, {"do": "add"})
