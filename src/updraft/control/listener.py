"""Connections of the control API: each in a thread of its own, few at a time, and none for longer than a deadline.

Anybody on this machine can connect to a loopback port. A client that sends nothing, or a byte now and then, costs one
thread until the deadline and keeps nobody else waiting; more connections than `max_connections` are turned away.
"""

from __future__ import annotations

import io
import logging
import socket
import socketserver
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

log = logging.getLogger("updraft.control")

_TURNED_AWAY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one client may take."""

    body_bytes: int = 256 * 1024
    connection_s: float = 10.0  # from accept to the last byte read; then again as long for the answer
    max_connections: int = 32
    close_s: float = 2.0  # how long closing waits for answers under way


class Listener(socketserver.TCPServer):
    """A TCP server on loopback that knows its open connections, so that closing it leaves nothing behind."""

    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler], limits: ServerLimits) -> None:
        self.limits = limits
        self._open: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self._serve_one,
            args=(request, client_address),
            name="updraft-control-request",
            daemon=True,  # a stuck answer must not keep the driver from ending
        )
        with self._lock:
            full = len(self._open) >= self.limits.max_connections
            if not full:
                self._open[request] = thread
        if full:
            log.warning("turned away %s: %d connections are open", client_address, len(self._open))
            with suppress(OSError):
                request.setblocking(False)
                request.send(_TURNED_AWAY)
            self.shutdown_request(request)
            return
        thread.start()

    def _serve_one(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("connection of %s broke", client_address, exc_info=True)

    def close(self) -> None:
        """Stop listening, let answers under way finish, cut off the rest. `serve_forever` must be running."""
        self.shutdown()
        self.server_close()
        self._join(self.limits.close_s)
        with self._lock:
            left = tuple(self._open)
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._join(self.limits.close_s)

    def _join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._lock:
            threads = [thread for thread in self._open.values() if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class DeadlineReader(io.RawIOBase):
    """Reads a socket until a moment, however the bytes drip in: a timeout per read would never end a slow sender."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        before = self._connection.gettimeout()
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(before)
