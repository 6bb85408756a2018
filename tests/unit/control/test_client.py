"""The client, against a real server: answers as values, failures as errors that say what to do."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.control.fakes import FakeControls

from updraft.control import (
    BadRequest,
    ChangeRefused,
    Client,
    ControlError,
    Drain,
    Entry,
    Journal,
    Move,
    Rescale,
    UnknownChange,
    Unreachable,
    choose,
    running,
    serving,
)


@pytest.fixture
def controls(tmp_path: Path) -> FakeControls:
    return FakeControls(Journal(tmp_path / "changes.jsonl"))


@pytest.fixture
def client(controls: FakeControls, tmp_path: Path) -> Iterator[Client]:
    place = tmp_path / "updraft"
    with serving(
        controls,
        topology="orders",
        checkpoint="checkpoints/orders",
        started_at=5.0,
        journal=controls.journal,
        place=place,
    ) as entry:
        found = choose(running([place]), "orders")
        assert found == entry
        assert found.process.pid == os.getpid()
        yield Client(entry=found, who="ann", timeout_s=5.0)
    assert running([place]) == ()


def test_everything_that_can_be_asked(client: Client, controls: FakeControls) -> None:
    assert client.status()["batch"] == 41
    assert client.plan()["version"] == 1
    request = Move(operator="count", tasks=(4, 5), to_worker="1", strategy="one_by_one")
    assert client.preview(request)["tasks_moved"] == 3
    assert controls.asked == []
    number = client.apply(request)["change_id"]
    assert controls.asked == [(request, "ann")]
    assert client.change(number)["outcome"] == "running"
    assert client.cancel()["reason"] == "cancelled by ann"
    assert [(one["id"], one["outcome"]) for one in client.changes()] == [(number, "cancelled")]
    assert client.apply(Drain(worker="2", release=False))["change_id"] == number + 1
    assert controls.asked[-1] == (Drain(worker="2", release=False), "ann")


def test_refused_with_all_reasons(client: Client) -> None:
    with pytest.raises(ChangeRefused) as caught:
        client.apply(Rescale(parallelism={"count": 9, "clean": 9}))
    assert len(caught.value.reasons) == 2
    assert str(caught.value).startswith("refused:\n  - operator 'clean'")


def test_bad_and_unknown(client: Client) -> None:
    with pytest.raises(BadRequest, match="batched:K"):
        client.apply(Rescale(parallelism={"count": 2}, strategy="quickly"))
    with pytest.raises(UnknownChange, match="there is no change 77"):
        client.change(77)


def test_a_failure_inside_the_run(client: Client, controls: FakeControls) -> None:
    controls.breaks = RuntimeError("secret")
    with pytest.raises(ControlError, match="log of the run"):
        client.status()


def test_a_wrong_token(client: Client) -> None:
    other = Client(entry=replace(client.entry, token="other"), who="ann")
    with pytest.raises(Unreachable, match="does not accept the token"):
        other.status()


def entry_of(port: int) -> Entry:
    from updraft.cluster.processes import ProcessId

    process = ProcessId(pid=1, started=1)
    return Entry(topology="gone", process=process, port=port, token="t", checkpoint="", started_at=0.0)


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(Unreachable, match=r"'gone@1' cannot be reached on port \d+ .*ending just now"):
            Client(entry=entry_of(port), who="ann").status()


def test_somebody_listens_who_says_nothing_or_nonsense() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(Unreachable, match="does not answer within"):
            Client(entry=entry_of(port), who="ann", timeout_s=0.2).status()
        listener.accept()[0].close()

        def nonsense() -> None:
            connection = listener.accept()[0]
            connection.recv(65536)
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            connection.close()

        thread = threading.Thread(target=nonsense)
        thread.start()
        with pytest.raises(Unreachable, match="no answer"):
            Client(entry=entry_of(port), who="ann", timeout_s=5).status()
        thread.join()


def test_proxies_of_the_environment_are_not_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert client.status()["batch"] == 41
