"""The control API without its sockets: from a request line and a body to a status code and a JSON object.

GET  /status  /plan  /changes?limit=N  /changes/ID
POST /rescale /move /drain /place /cancel     (?dry_run=1 or "dry_run": true; "who" says who asks)
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from updraft.control.controls import Controls
from updraft.control.errors import BadRequest, ChangeRefused, UnknownChange, reasons_of
from updraft.control.journal import Journal
from updraft.control.requests import parse_request
from updraft.errors import UpdraftError
from updraft.plan.model import PlanError

CHANGING = ("rescale", "move", "drain", "place")
_READING = ("status", "plan", "changes")
_MOST_RECORDS = 1000
_FLAGS = {"1": True, "true": True, "0": False, "false": False}

log = logging.getLogger("updraft.control")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An HTTP request whose sender is known to be allowed to make it."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An HTTP answer."""

    status: HTTPStatus
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def problem(status: HTTPStatus, *reasons: str, headers: Mapping[str, str] | None = None) -> Reply:
    """The form of everything that is no success."""
    body = {"error": status.phrase.lower(), "reasons": list(reasons)}
    return Reply(status=status, body=body, headers=headers or {})


def respond(call: Call, controls: Controls, journal: Journal | None) -> Reply:
    """Never raises: what goes wrong is an answer too, and in the log if it is our fault."""
    allowed = _method_of(call.path)
    if allowed is None:
        known = " ".join(f"/{name}" for name in (*_READING, *CHANGING, "cancel"))
        return problem(HTTPStatus.NOT_FOUND, f"there is no {call.path[:100]}; there are {known}")
    if call.method != allowed:
        reason = f"{call.path[:100]} wants {allowed}, not {call.method[:20]}"
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, reason, headers={"Allow": allowed})
    try:
        if allowed == "GET":
            return Reply(status=HTTPStatus.OK, body=_read(call, controls, journal))
        return _change(call, controls)
    except BadRequest as error:
        return problem(HTTPStatus.BAD_REQUEST, *error.problems)
    except UnknownChange as error:
        return problem(HTTPStatus.NOT_FOUND, str(error))
    except PlanError as error:
        return problem(HTTPStatus.CONFLICT, *reasons_of(error))
    except UpdraftError as error:
        log.warning("%s %s: %s", call.method, call.path, error)
        return problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
    except Exception:  # a mistake of ours must neither end the server nor tell its inside to others
        log.exception("%s %s failed", call.method, call.path)
        return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log of the run has the details")


def _method_of(path: str) -> str | None:
    """What may be done with a path; None: there is no such path."""
    name = path.removeprefix("/")
    if name in _READING or (name.startswith("changes/") and name.removeprefix("changes/").isalnum()):
        return "GET"
    return "POST" if name in (*CHANGING, "cancel") else None


def _read(call: Call, controls: Controls, journal: Journal | None) -> Mapping[str, Any]:
    query = _query(call.query, ("limit",) if call.path == "/changes" else ())
    match call.path:
        case "/status":
            return controls.status()
        case "/plan":
            return controls.plan()
        case "/changes":
            limit = _number("limit", query.get("limit", "50"))
            records = journal.records(min(limit, _MOST_RECORDS)) if journal else ()
            return {"changes": [record.to_json() for record in records]}
        case _:
            return _one_change(_number("change", call.path.rpartition("/")[2]), controls, journal)


def _one_change(change_id: int, controls: Controls, journal: Journal | None) -> Mapping[str, Any]:
    try:
        return controls.change(change_id)
    except UnknownChange:
        record = journal.find(change_id) if journal else None
        if record is None:
            raise UnknownChange(f"there is no change {change_id}, or it is too long ago") from None
        return record.to_json()


def _change(call: Call, controls: Controls) -> Reply:
    query = _query(call.query, ("dry_run",))
    body = _object(call.body)
    problems: list[str] = []
    dry_run = _dry_run(query, body, problems)
    who = body.pop("who", "unknown")
    if not isinstance(who, str) or not 0 < len(who) <= 200 or not who.isprintable():
        problems.append("'who' must be a printable string of at most 200 characters")
    if call.path == "/cancel":
        problems += [f"unknown field '{name[:80]}'; there are dry_run, who" for name in sorted(body)]
        if problems:
            raise BadRequest(problems)
        return _cancel(controls, dry_run=dry_run, who=who)
    try:
        request = parse_request(call.path.removeprefix("/"), body)
    except BadRequest as error:
        raise BadRequest([*problems, *error.problems]) from None
    if problems:
        raise BadRequest(problems)
    if dry_run:
        preview = controls.preview(request).to_json()
        return Reply(status=HTTPStatus.OK, body={"dry_run": True, **preview})
    return Reply(status=HTTPStatus.ACCEPTED, body=controls.apply(request, who=who).to_json())


def _cancel(controls: Controls, *, dry_run: bool, who: str) -> Reply:
    if not dry_run:
        return Reply(status=HTTPStatus.OK, body=controls.cancel(who=who))
    change = controls.status().get("change")
    if change is None:
        raise ChangeRefused(["no change is in progress"])
    return Reply(status=HTTPStatus.OK, body={"dry_run": True, "change": change})


def _dry_run(query: Mapping[str, str], body: dict[str, Any], problems: list[str]) -> bool:
    asked = body.pop("dry_run", False)
    written = query.get("dry_run", "0").lower()
    if not isinstance(asked, bool):
        problems.append("'dry_run' must be true or false")
    if written not in _FLAGS:
        problems.append(f"?dry_run must be 1 or 0, not {written[:20]!r}")
    return asked is True or _FLAGS.get(written, False)


def _query(text: str, known: tuple[str, ...]) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=10)
    except ValueError as error:
        raise BadRequest([f"the query cannot be read: {error}"]) from error
    if wrong := sorted({name[:80] for name, _ in pairs if name not in known}):
        raise BadRequest([f"unknown query field '{name}'" for name in wrong])
    if len(dict(pairs)) < len(pairs):
        raise BadRequest(["a query field is given twice"])
    return dict(pairs)


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest([f"{what} must be a whole number, not {text[:40]!r}"])
    return int(text)


def _object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; nothing at all is an empty one."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest([f"the body is not JSON: {error or type(error).__name__}"]) from error
    if not isinstance(value, dict):
        raise BadRequest([f"the body must be a JSON object, not {type(value).__name__}"])
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"fields given twice: {sorted({name for name in names if names.count(name) > 1})}")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
