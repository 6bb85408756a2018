"""Processes are known by pid and start time, ended exactly, and die with the parent that armed them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from updraft.cluster.processes import ProcessId, end, identify, is_alive, marked, send, wait_gone

SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    yield child
    child.kill()
    child.wait()


def known(child: subprocess.Popen[bytes]) -> ProcessId:
    process = identify(child.pid)
    assert process is not None
    return process


def test_a_process_with_the_same_pid_but_another_start_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    process = known(sleeper)
    impostor = ProcessId(pid=process.pid, started=process.started - 1)
    assert is_alive(process)
    assert not is_alive(impostor)
    assert not send(impostor, signal.SIGKILL)
    end([impostor])
    assert is_alive(process)


def test_end_also_ends_what_ignores_a_request() -> None:
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
    stubborn = f"{ignoring}; {SLEEP}"
    child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    end([known(child)], grace_s=0.3)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()


def test_a_zombie_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    process = known(sleeper)
    sleeper.kill()
    assert wait_gone([process], 5) == ()
    assert identify(process.pid) is None
    assert sleeper.returncode is None, "not waited for yet, so it is still a zombie"


def test_marked_finds_grandchildren_by_their_environment() -> None:
    value = uuid.uuid4().hex
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
    child = subprocess.Popen([sys.executable, "-c", nested], env=os.environ | {"UPDRAFT_TEST_MARK": value})
    try:
        for _ in range(100):
            if len(marked("UPDRAFT_TEST_MARK", value)) == 2:
                break
            wait_gone([known(child)], 0.1)
        assert len(marked("UPDRAFT_TEST_MARK", value)) == 2
        assert marked("UPDRAFT_TEST_MARK", value[:-1]) == ()
    finally:
        end(marked("UPDRAFT_TEST_MARK", value))
        child.wait()
    assert marked("UPDRAFT_TEST_MARK", value) == ()


def test_an_armed_child_dies_when_its_parent_is_killed() -> None:
    parent_code = (
        "import subprocess, time\n"
        "from updraft.cluster.processes import dies_with_parent\n"
        # A shell that becomes another program, as spark-class does: the setting must survive exec.
        "child = subprocess.Popen(['sh', '-c', 'exec sleep 60'], preexec_fn=dies_with_parent())\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    grandchild = identify(int(parent.stdout.readline()))
    assert grandchild is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_gone([grandchild], 5) == ()
