"""The control API over real sockets: who may ask, what is refused, and that no client can hold up another."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.unit.control.fakes import FakeControls

from updraft.control import ControlError, ControlServer, Journal, Move, Rescale, ServerLimits

TOKEN = "correct-horse-battery-staple"
LIMITS = ServerLimits(body_bytes=4096, connection_s=60.0, max_connections=8, close_s=0.5)
HEAD = f"POST /cancel HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
RESCALE = {"parallelism": {"count": 4}}


@pytest.fixture
def controls(tmp_path: Path) -> FakeControls:
    return FakeControls(Journal(tmp_path / "changes.jsonl"))


@pytest.fixture
def server(controls: FakeControls) -> Iterator[ControlServer]:
    with ControlServer(controls, token=TOKEN, journal=controls.journal, limits=LIMITS) as running:
        yield running


@pytest.fixture
def hasty(controls: FakeControls) -> Iterator[ControlServer]:
    """Gives a connection one second."""
    with ControlServer(controls, token=TOKEN, limits=replace(LIMITS, connection_s=1.0)) as running:
        yield running


def ask(
    server: ControlServer,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    token: str | None = TOKEN,
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
    text = body if isinstance(body, bytes | None) else json.dumps(body)
    try:
        connection.request(method, path, text, {**sent, **(headers or {})})
        answer = connection.getresponse()
        value = json.loads(answer.read() or b"null")
        if answer.status == 405:
            value["allow"] = answer.getheader("Allow")
        return answer.status, value
    finally:
        connection.close()


def raw(server: ControlServer, data: bytes, timeout_s: float = 10) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout_s) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_reading(server: ControlServer) -> None:
    status, told = ask(server, "GET", "/status")
    assert status == 200
    assert told["parallelism"] == {"count": 2, "clean": 1}
    status, plan = ask(server, "GET", "/plan")
    assert status == 200
    assert plan["operators"]["count"]["instances"][0] == {"tasks": [0, 1, 2, 3], "worker": "1"}


def test_a_change_from_request_to_journal(server: ControlServer, controls: FakeControls) -> None:
    status, ticket = ask(server, "POST", "/rescale", {**RESCALE, "strategy": "batched:2", "who": "ann"})
    assert status == 202
    assert controls.asked == [(Rescale(parallelism={"count": 4}, strategy="batched:2"), "ann")]
    number = ticket["change_id"]
    assert ask(server, "GET", f"/changes/{number}")[1]["progress"]["copies_arrived"] == 1
    controls.looks = 0
    assert ask(server, "GET", f"/changes/{number}")[1]["outcome"] == "done"
    status, journal = ask(server, "GET", "/changes")
    assert status == 200
    assert [(one["id"], one["who"], one["outcome"]) for one in journal["changes"]] == [
        (number, "ann", "done")
    ]


def test_the_journal_knows_changes_of_earlier_runs(server: ControlServer, controls: FakeControls) -> None:
    for _ in range(3):
        ask(server, "POST", "/drain", {"worker": "1"})
    controls._records.clear()
    assert ask(server, "GET", "/changes/2")[1]["request"]["kind"] == "drain"
    assert [one["id"] for one in ask(server, "GET", "/changes?limit=2")[1]["changes"]] == [3, 2]
    assert ask(server, "GET", "/changes/99") == (
        404,
        {"error": "not found", "reasons": ["there is no change 99, or it is too long ago"]},
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/move?dry_run=1", {"operator": "count", "tasks": [4], "to_worker": "1"}),
        ("/move", {"operator": "count", "tasks": [4], "to_worker": "1", "dry_run": True}),
        ("/rescale?dry_run=true", RESCALE),
        ("/drain?dry_run=1", {"worker": "2"}),
    ],
)
def test_a_dry_run_tells_and_changes_nothing(
    server: ControlServer, controls: FakeControls, path: str, body: Any
) -> None:
    status, preview = ask(server, "POST", path, body)
    assert status == 200
    assert preview["bytes_to_move"] == 3000
    assert preview["expected_delay_ms"] == 12.0
    assert preview["summary"][0] == "copy count:4-5,7 from worker 2 to worker 1"
    assert controls.asked == []


def test_cancel(server: ControlServer, controls: FakeControls) -> None:
    nothing = (409, {"error": "conflict", "reasons": ["no change is in progress"]})
    assert ask(server, "POST", "/cancel") == nothing
    assert ask(server, "POST", "/cancel?dry_run=1") == nothing
    ask(server, "POST", "/move", {"operator": "count", "tasks": [4, 5], "to_worker": "1"})
    assert controls.asked[0] == (Move(operator="count", tasks=(4, 5), to_worker="1"), "unknown")
    status, told = ask(server, "POST", "/cancel", {"dry_run": True})
    assert (status, told["change"]["outcome"]) == (200, "running")
    status, told = ask(server, "POST", "/cancel", {"who": "bob"})
    assert (status, told["outcome"], told["reason"]) == (200, "cancelled", "cancelled by bob")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer \xe9\xff"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/status?x=hidden"), ("POST", "/rescale"), ("GET", "/nowhere")]
)
def test_without_the_token_nothing_is_told_and_the_try_is_logged(
    server: ControlServer,
    controls: FakeControls,
    caplog: pytest.LogCaptureFixture,
    headers: dict[str, str],
    method: str,
    path: str,
) -> None:
    with caplog.at_level(logging.DEBUG, "updraft.control"):
        status, told = ask(server, method, path, RESCALE, headers=headers, token=None)
    assert status == 401
    assert told["error"] == "unauthorized"
    assert controls.asked == []
    refusals = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(refusals) == 1
    message = refusals[0].getMessage()
    assert path.partition("?")[0] in message
    assert "127.0.0.1:" in message
    for hidden in (TOKEN, "hidden", "wrong"):
        assert hidden not in caplog.text.replace("wrong token", "")


def test_the_token_twice_is_refused(server: ControlServer) -> None:
    line = f"Authorization: Bearer {TOKEN}\r\n"
    answer = raw(server, f"GET /status HTTP/1.1\r\nHost: localhost\r\n{line}{line}\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 401")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:80:90", "", "10.0.0.1"]
)
def test_another_hosts_name_is_refused_even_with_the_token(
    server: ControlServer, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    with caplog.at_level(logging.WARNING, "updraft.control"):
        assert ask(server, "GET", "/status", headers={"Host": host})[0] == 403
    assert "Host" in caplog.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]:80"])
def test_names_of_this_machine(server: ControlServer, host: str) -> None:
    assert ask(server, "GET", "/status", headers={"Host": host})[0] == 200


def test_a_request_without_a_host_is_refused(server: ControlServer) -> None:
    answer = raw(server, f"GET /status HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 403")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"4",
        b"\xff",
        b"[" * 4000,
        b'{"parallelism": {"count": NaN}}',
        b'{"parallelism": {"count": 1, "count": 2}}',
        b'{"parallelism": {"count": 1' + b"0" * 4000 + b"}}",
        b"",
    ],
    ids=lambda body: body[:20],
)
def test_malformed_bodies(server: ControlServer, controls: FakeControls, body: bytes) -> None:
    status, told = ask(server, "POST", "/rescale", body)
    assert status in (400, 409)
    assert told["reasons"]
    assert controls.asked == []


def test_all_problems_of_a_request_are_told(server: ControlServer) -> None:
    body = {"tasks": [True], "dry_run": "yes", "who": "\n", "colour": "red"}
    status, told = ask(server, "POST", "/move?dry_run=perhaps", body)
    assert status == 400
    assert len(told["reasons"]) == 7
    for word in ("dry_run", "?dry_run", "who", "operator", "tasks", "to_worker", "colour"):
        assert any(word in reason for reason in told["reasons"]), word
    assert ask(server, "POST", "/cancel", {"now": True})[0] == 400


def test_a_refused_plan_comes_with_its_reasons(server: ControlServer) -> None:
    status, told = ask(server, "POST", "/rescale", {"parallelism": {"count": 9, "clean": 10}})
    assert status == 409
    assert told["reasons"] == ["operator 'clean': more than 8 tasks", "operator 'count': more than 8 tasks"]
    status, told = ask(server, "POST", "/drain", {"worker": "7"})
    assert (status, told["reasons"]) == (409, ["worker '7' does not exist"])


@pytest.mark.parametrize(
    "path",
    ["/", "", "/nothing", "/status/", "/changes/", "/changes/1/2", "/../etc/passwd", "/%73tatus", "//status"],
)
def test_unknown_paths(server: ControlServer, path: str) -> None:
    # An empty path, and two slashes at the start, are made "/" and one slash on the way.
    assert ask(server, "GET", path)[0] == (200 if path == "//status" else 404)


@pytest.mark.parametrize(
    "path", ["/changes/x", "/changes/²", "/changes?limit=-1", "/status?limit=1", "/changes?limit=1&limit=2"]
)
def test_bad_numbers_and_queries(server: ControlServer, path: str) -> None:
    assert ask(server, "GET", quote(path, safe="/?=&-"))[0] in (400, 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/status", "GET"),
        ("GET", "/drain", "POST"),
        ("PUT", "/rescale", "POST"),
        ("DELETE", "/changes/1", "GET"),
    ],
)
def test_wrong_methods(server: ControlServer, method: str, path: str, allowed: str) -> None:
    status, told = ask(server, method, path)
    assert (status, told["allow"]) == (405, allowed)


@pytest.mark.parametrize("size", [LIMITS.body_bytes + 1, 3_000_000])
def test_a_body_that_is_too_large(server: ControlServer, controls: FakeControls, size: int) -> None:
    answer = raw(server, f"{HEAD}Content-Length: {size}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 413"), "it is told before the body is sent"
    if size < 1_000_000:
        assert ask(server, "POST", "/rescale", b" " * size)[0] == 413
    assert controls.asked == []


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("Content-Length: -1\r\n", 400),
        ("Content-Length: many\r\n", 400),
        ("Content-Length: 2\r\nContent-Length: 3\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", 411),
    ],
)
def test_a_body_of_unknown_length(server: ControlServer, lines: str, status: int) -> None:
    assert raw(server, f"{HEAD}{lines}\r\n{{}}".encode()).startswith(f"HTTP/1.0 {status}".encode())


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"nonsense\r\n\r\n",
        b"GET /status HTTP/9.9\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"BREW /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ],
    ids=lambda data: data[:12],
)
def test_what_is_no_http_does_no_harm(hasty: ControlServer, data: bytes) -> None:
    try:
        answer = raw(hasty, data)
    except ConnectionError:
        answer = b""
    assert b" 200 " not in answer.partition(b"\n")[0]
    assert b"<html" not in answer.lower()
    assert ask(hasty, "GET", "/status")[0] == 200


def test_a_mistake_of_ours_is_told_without_its_inside(
    server: ControlServer, controls: FakeControls, caplog: pytest.LogCaptureFixture
) -> None:
    controls.breaks = RuntimeError("the inside")
    status, told = ask(server, "GET", "/status")
    assert status == 500
    assert "inside" not in json.dumps(told)
    assert "the inside" in caplog.text
    controls.breaks = ControlError("the topology is ending")
    assert ask(server, "GET", "/status")[1]["reasons"] == ["the topology is ending"]
    controls.breaks = None
    assert ask(server, "GET", "/status")[0] == 200


def test_an_answer_that_is_no_json(
    server: ControlServer, controls: FakeControls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, "plan", lambda: {"rate": float("nan")})
    assert ask(server, "GET", "/plan")[0] == 500


def test_many_at_once(server: ControlServer, controls: FakeControls) -> None:
    def one(number: int) -> int:
        if number % 2:
            return ask(server, "GET", "/status")[0]
        return ask(server, "POST", "/rescale", {"parallelism": {"count": 1 + number % 8}})[0]

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(one, range(60))) == [200] * 30 + [202] * 30
    assert len(controls.asked) == 30
    assert [one["id"] for one in ask(server, "GET", "/changes")[1]["changes"]] == list(range(30, 0, -1))


def connect(server: ControlServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_slow_and_silent_clients_hold_up_nobody(server: ControlServer) -> None:
    with connect(server) as silent, connect(server) as half, connect(server) as line:
        half.sendall(HEAD.encode() + b"Content-Length: 50\r\n\r\n{")
        line.sendall(b"POST /can")
        assert ask(server, "GET", "/status")[0] == 200
        for connection in (silent, half, line):
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):  # still open: the answer came before they were cut off
                connection.recv(1)


def test_slow_and_silent_clients_are_cut_off(hasty: ControlServer) -> None:
    with connect(hasty) as silent, connect(hasty) as half, connect(hasty) as dripping:
        half.sendall(HEAD.encode() + b"Content-Length: 50\r\n\r\n{")
        with pytest.raises(ConnectionError):  # noqa: PT012 - any of the sends may be the one that fails
            for byte in b"GET /status HTTP/1.1\r\n" * 20:
                dripping.sendall(bytes([byte]))
                time.sleep(0.05)
        assert silent.recv(100) == b""
        assert half.recv(100).startswith(b"HTTP/1.0 408")


def test_too_many_connections_are_turned_away_and_it_recovers(server: ControlServer) -> None:
    idle = [connect(server) for _ in range(LIMITS.max_connections)]
    wait_until(lambda: len(names()) == 1 + LIMITS.max_connections)
    with connect(server) as more:
        assert more.recv(100).startswith(b"HTTP/1.0 503")
    for connection in idle:
        connection.close()
    wait_until(lambda: len(names()) == 1)
    assert ask(server, "GET", "/status")[0] == 200


def names() -> list[str]:
    return sorted(
        thread.name for thread in threading.enumerate() if thread.name.startswith("updraft-control")
    )


def test_closing_leaves_nothing_behind(controls: FakeControls) -> None:
    server = ControlServer(controls, token=TOKEN, limits=LIMITS)
    assert names() == [], "a constructor starts no thread"
    with pytest.raises(ControlError, match="not running"):
        _ = server.port
    server.start()
    port = server.port
    with pytest.raises(ControlError, match="running already"):
        server.start()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as half_open:
        half_open.sendall(b"GET /sta")
        wait_until(lambda: len(names()) == 2)
        server.close()
        assert names() == []
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=1)
    server.close()


def test_closing_lets_an_answer_under_way_finish(controls: FakeControls) -> None:
    server = ControlServer(controls, token=TOKEN, limits=replace(LIMITS, close_s=60.0))
    server.start()
    controls.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, server, "GET", "/status")
        wait_until(lambda: len(names()) == 2)
        threading.Timer(0.3, controls.gate.set).start()
        server.close()
        assert asked.result()[0] == 200
    assert names() == []


def test_it_listens_on_loopback_only_and_a_taken_port_is_told(
    server: ControlServer, controls: FakeControls
) -> None:
    assert server._listener is not None
    assert server._listener.socket.getsockname()[0] == "127.0.0.1"
    second = ControlServer(controls, token=TOKEN, port=server.port)
    with pytest.raises(ControlError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        second.start()
    with pytest.raises(ControlError, match="needs a token"):
        ControlServer(controls, token="")
