"""How other processes ask a running supervisor for something: one JSON line each way over a Unix socket.

The socket lies in the cluster's directory, which only its owner may enter. Socket addresses are limited to
about 100 bytes, paths are not; so the address goes through an open descriptor of the directory.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from updraft.errors import ClusterError

_SOCKET = "control"


@contextmanager
def _address(directory: Path) -> Iterator[str]:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


def listen(directory: Path) -> socket.socket:
    (directory / _SOCKET).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    with _address(directory) as address:
        server.bind(address)
    server.listen(8)
    return server


def answer_one(
    server: socket.socket, handle: Callable[[dict[str, Any]], dict[str, Any]], wait_s: float
) -> None:
    """Wait for one request and answer it; a refused or broken one never ends the supervisor."""
    ready, _, _ = select.select([server], [], [], wait_s)
    if not ready:
        return
    connection, _ = server.accept()
    # The asker may be gone before the answer is ready.
    with connection, suppress(OSError):
        connection.settimeout(5)
        try:
            reply = handle(json.loads(_read_line(connection)))
        except (ClusterError, ValueError, KeyError, TypeError) as error:
            reply = {"problem": str(error)}
        connection.sendall(json.dumps(reply, default=str).encode() + b"\n")


def ask(directory: Path, request: dict[str, Any], timeout_s: float = 90.0) -> dict[str, Any]:
    """Send one request to the supervisor of the cluster in this directory and wait for its answer."""
    try:
        with socket.socket(socket.AF_UNIX) as client, _address(directory) as address:
            client.settimeout(timeout_s)
            client.connect(address)
            client.sendall(json.dumps(request).encode() + b"\n")
            reply: dict[str, Any] = json.loads(_read_line(client))
    except (OSError, ValueError) as error:
        raise ClusterError(f"the cluster's supervisor does not answer ({error}); see {directory}") from error
    if problem := reply.get("problem"):
        raise ClusterError(problem)
    return reply


def _read_line(connection: socket.socket) -> bytes:
    chunks = []
    while chunk := connection.recv(65536):
        chunks.append(chunk)
        if chunk.endswith(b"\n"):
            break
    return b"".join(chunks)
