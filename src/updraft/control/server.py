"""The control API on a loopback port, for those who have the token. What is asked is answered by `api.respond`.

Three checks come before anything is looked at. The Host header must name this machine: a web page whose name was made to
point to 127.0.0.1 would otherwise talk to us from the user's browser. The token must be right, compared in constant
time. The body must be of a known, small length. HTTP/1.0, one request per connection: nothing to keep in step.
"""

from __future__ import annotations

import hmac
import io
import json
import logging
import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from updraft.control.api import Call, Reply, problem, respond
from updraft.control.controls import Controls
from updraft.control.errors import ControlError
from updraft.control.journal import Journal
from updraft.control.listener import DeadlineReader, Listener, ServerLimits

log = logging.getLogger("updraft.control")

_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_POLL_S = 0.2
_DRAIN_BYTES = 1 << 20


class ControlServer:
    """Serves the controls of one running topology between `start` and `close` (or as a context)."""

    def __init__(
        self,
        controls: Controls,
        *,
        token: str,
        journal: Journal | None = None,
        port: int = 0,
        limits: ServerLimits | None = None,
    ) -> None:
        if not token:
            raise ControlError("the control API needs a token")
        self._controls = controls
        self._token = token.encode()
        self._journal = journal
        self._wanted_port = port
        self._limits = limits or ServerLimits()
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        if self._listener is None:
            raise ControlError("the control API is not running")
        return int(self._listener.server_address[1])

    def start(self) -> None:
        if self._listener is not None:
            raise ControlError("the control API is running already")
        owner = self

        class Handler(_Handler):
            server_of = owner
            timeout = owner.limits.connection_s  # for writing; reading has a deadline

        try:
            self._listener = Listener(self._wanted_port, Handler, self._limits)
        except (OSError, OverflowError) as error:
            raise ControlError(
                f"the control API cannot listen on 127.0.0.1:{self._wanted_port}: {error}; port 0 takes a free one"
            ) from error
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(_POLL_S,), name="updraft-control", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Fine to repeat."""
        listener, thread = self._listener, self._thread
        self._listener = self._thread = None
        if listener is not None and thread is not None:
            listener.close()
            thread.join(self._limits.close_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def may_enter(self, authorization: str) -> bool:
        """Whether the header carries the token."""
        scheme, _, given = authorization.partition(" ")
        # Compared whatever the scheme, so that the time says nothing.
        right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._token)
        return right and scheme.lower() == "bearer"

    def respond(self, call: Call) -> Reply:
        return respond(call, self._controls, self._journal)

    @property
    def limits(self) -> ServerLimits:
        return self._limits


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server_of: ControlServer
    server_version = "updraft"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(DeadlineReader(self.connection, self.server_of.limits.connection_s))
        self._unread = 0

    def _serve(self) -> None:
        try:
            reply = self._reply()
        except TimeoutError:
            reply = problem(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")
        self._send(reply)

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _serve  # noqa: N815

    def _reply(self) -> Reply:
        try:
            target = urlsplit(self.path)
        except ValueError:
            return problem(HTTPStatus.BAD_REQUEST, "the request line is malformed")
        length = self._length()
        self._unread = length or 0
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0].strip()):
            self._refused(f"Host {', '.join(hosts)[:200]!r}")
            return problem(HTTPStatus.FORBIDDEN, "the Host header must name this machine, such as localhost")
        given = self.headers.get_all("Authorization", [])
        if len(given) != 1 or not self.server_of.may_enter(given[0]):
            self._refused("wrong token" if given else "no token")
            return problem(
                HTTPStatus.UNAUTHORIZED,
                "'Authorization: Bearer TOKEN' with the token of this run is needed",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if "Transfer-Encoding" in self.headers:
            return problem(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length, not chunks")
        if length is None:
            return problem(HTTPStatus.BAD_REQUEST, "Content-Length must be one whole number")
        if length > self.server_of.limits.body_bytes:
            return problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body has {length} bytes, more than {self.server_of.limits.body_bytes}",
            )
        body = self.rfile.read(length)
        self._unread = length - len(body)
        if self._unread:
            return problem(HTTPStatus.BAD_REQUEST, "the body is shorter than its Content-Length")
        call = Call(method=self.command, path=target.path, query=target.query, body=body)
        return self.server_of.respond(call)

    def _length(self) -> int | None:
        given = self.headers.get_all("Content-Length", ["0"])
        good = len(given) == 1 and given[0].isascii() and given[0].isdigit() and len(given[0]) < 16
        return int(given[0]) if good else None

    def _refused(self, why: str) -> None:
        # Without the query: someone may have put the token there.
        log.warning(
            "refused %s %r from %s: %s",
            self.command,
            self.path.partition("?")[0][:200],
            ":".join(map(str, self.client_address[:2])),
            why,
        )

    def _send(self, reply: Reply) -> None:
        try:
            text = _text(reply.body)
        except (TypeError, ValueError):
            log.exception("the answer to %s is no JSON", self.command)
            reply = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log of the run")
            text = _text(reply.body)
        self.send_response(reply.status)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": f"{len(text)}",
            "Cache-Control": "no-store",
        }
        for name, value in {**headers, **reply.headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
        self._drain()

    def _drain(self) -> None:
        """Take in some of what was not read: closing with it unread would throw away the answer on its way."""
        left = min(self._unread, _DRAIN_BYTES)
        with suppress(OSError):
            if left > 0:
                self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (taken := len(self.rfile.read1(min(left, 65536)))):
                left -= taken

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server finds wrong with a request line or its headers, in our form."""
        self.command = getattr(self, "command", None) or "?"
        self._send(problem(HTTPStatus(code), message or HTTPStatus(code).phrase))

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s: " + format, self.client_address[0], *args)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Nothing: http.server would log the query too."""


def _text(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, default=_plain, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return dict(value)
        case set() | frozenset():
            return sorted(value)
        case _:
            return str(value)
