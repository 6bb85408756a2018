"""How commands talk to a running topology; what goes wrong is said in words a person understands.

Straight to the loopback port: no proxy of the environment is asked, no redirect followed, so the token goes nowhere else.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from updraft.control.directory import Entry
from updraft.control.errors import BadRequest, ChangeRefused, ControlError, UnknownChange, Unreachable
from updraft.control.requests import Request


def current_user() -> str:
    """Who asks, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid without a name
        return f"uid {os.getuid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Asks one run."""

    entry: Entry
    who: str
    timeout_s: float = 30.0

    def status(self) -> dict[str, Any]:
        return self._ask("GET", "/status")

    def plan(self) -> dict[str, Any]:
        return self._ask("GET", "/plan")

    def changes(self, limit: int = 50) -> list[dict[str, Any]]:
        """Newest first."""
        found = self._ask("GET", f"/changes?limit={limit}").get("changes")
        return found if isinstance(found, list) else []

    def change(self, change_id: int) -> dict[str, Any]:
        return self._ask("GET", f"/changes/{change_id}")

    def preview(self, request: Request) -> dict[str, Any]:
        return self._ask("POST", _path(request), {**request.to_json(), "dry_run": True})

    def apply(self, request: Request) -> dict[str, Any]:
        """The ticket: `change_id` and what the change will do."""
        return self._ask("POST", _path(request), {**request.to_json(), "who": self.who})

    def cancel(self) -> dict[str, Any]:
        return self._ask("POST", "/cancel", {"who": self.who})

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.entry.port, timeout=self.timeout_s)
        headers = {"Authorization": f"Bearer {self.entry.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
            value = json.loads(text) if text else {}
        except TimeoutError as error:
            raise Unreachable(
                f"topology '{self.entry.address}' does not answer within {self.timeout_s:.0f} s; "
                "is its driver stopped or overloaded?"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(
                f"topology '{self.entry.address}' cannot be reached on port {self.entry.port} ({error}); "
                "it may be ending just now"
            ) from error
        finally:
            connection.close()
        if not isinstance(value, dict):
            raise Unreachable(f"topology '{self.entry.address}' answers with what is no answer")
        if status in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            return value
        raise self._error(status, tuple(str(reason) for reason in value.get("reasons", ())))

    def _error(self, status: int, reasons: tuple[str, ...]) -> Exception:
        told = reasons or (f"HTTP status {status}",)
        who = f"topology '{self.entry.address}'"
        match status:
            case HTTPStatus.CONFLICT:
                return ChangeRefused(told)
            case HTTPStatus.BAD_REQUEST:
                return BadRequest(told)
            case HTTPStatus.NOT_FOUND:
                return UnknownChange(told[0])
            case HTTPStatus.UNAUTHORIZED:
                return Unreachable(
                    f"{who} does not accept the token it is registered with; is it another one's port?"
                )
            case HTTPStatus.SERVICE_UNAVAILABLE:
                return Unreachable(f"{who} has too many connections open; try again")
            case _:
                return ControlError(f"{who} failed to answer: {'; '.join(told)}")


def _path(request: Request) -> str:
    return f"/{request.to_json()['kind']}"
