"""Plays a seed on a cluster of this machine: starts the driver, lets events happen after batches, and judges what came out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from updraft.chaos.schedule import CHANGES, Event, Kind, draw
from updraft.chaos.workload import OPERATORS, TASKS, mistakes, write_input
from updraft.cluster import LocalCluster
from updraft.cluster.executors import executors
from updraft.cluster.processes import ProcessId, send
from updraft.control import Drain, Move, Request, Rescale
from updraft.errors import UpdraftError

_PATIENCE_S = 240.0  # for a batch: workers come back, a machine may be busy


class Failed(UpdraftError):
    """A seed did not come out as it should; the message names it and says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long and how hard."""

    replicas: int = 2
    seconds: float = 60.0  # no further event begins after so long
    events: int | None = None  # at most so many
    hang_timeout_s: float = 8.0
    checkpoint_interval: int | None = None  # None: by seed, mostly 1
    files: int = 3_000


@dataclass(slots=True)
class Driver:
    """The running driver process, and what it last said."""

    process: subprocess.Popen[str]
    app: str = ""
    batch: int = -1
    workers: list[str] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    heard: threading.Condition = field(default_factory=threading.Condition)

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            found = json.loads(line)
            with self.heard:
                self.said.append(found)
                self.app = found.get("app", self.app)
                self.batch = found.get("batch", self.batch)
                self.workers = found.get("workers", self.workers)
                self.heard.notify_all()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        with self.heard:
            while not condition():
                self.heard.wait(0.5)
                if self.process.poll() is not None and not condition():
                    raise Failed(f"the driver ended by itself, waiting for {what}")
                if time.monotonic() > deadline:
                    raise Failed(f"nothing for {_PATIENCE_S:.0f} s, waiting for {what}; batch {self.batch}")


def play(
    cluster: LocalCluster,
    scratch: Path,
    seed: int,
    settings: Settings,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """One seed from start to verdict; `Failed` if anything differs from a recomputation."""
    scratch.mkdir(parents=True)
    write_input(scratch / "input", seed, settings.files)
    interval = settings.checkpoint_interval or (3 if seed % 3 == 0 else 1)
    stage = _Stage(cluster=cluster, scratch=scratch, settings=settings, interval=interval, say=say)
    try:
        return stage.play(seed)
    except Failed as failure:
        raise Failed(
            f"seed {seed} with replicas={settings.replicas}: {failure}. Events: {'; '.join(stage.played)}. "
            f"The same again: updraft chaos --seed {seed} --replicas {settings.replicas}"
        ) from failure
    finally:
        stage.end()


@dataclass(slots=True, kw_only=True)
class _Stage:
    cluster: LocalCluster
    scratch: Path
    settings: Settings
    interval: int
    say: Callable[[str], None]
    played: list[str] = field(default_factory=list)
    _driver: Driver | None = None
    _frozen: dict[ProcessId, float] = field(default_factory=dict)

    def play(self, seed: int) -> dict[str, Any]:
        settings = self.settings
        driver = self._start()
        driver.wait(lambda: driver.batch >= 1, "the first batches")
        began = time.monotonic()
        count = 0
        for event in draw(seed, replicas=settings.replicas, hang_timeout_s=settings.hang_timeout_s):
            if time.monotonic() - began > settings.seconds or count == settings.events:
                break
            count += 1
            self._after(event.after_batches)
            self._happen(event)
        self._after(2)
        self._thaw(everything=True)
        last = self._finish()
        self.say(f"seed {seed}: verifying {last + 1} batches after {count} events")
        wrong = mistakes(
            self.scratch / "out",
            self.scratch / "checkpoint",
            batches=last + 1,
            interval=self.interval,
        )
        if wrong:
            raise Failed(f"{len(wrong)} mistakes: {'; '.join(wrong[:5])}")
        return {"seed": seed, "batches": last + 1, "events": list(self.played)}

    def end(self) -> None:
        """Whatever happened, nothing of it is left running."""
        self._thaw(everything=True)
        if self._driver is not None and self._driver.process.poll() is None:
            os.killpg(self._driver.process.pid, signal.SIGKILL)
            self._driver.process.wait()

    def _start(self) -> Driver:
        request = {
            "master": self.cluster.master_url,
            "input": str(self.scratch / "input"),
            "out": str(self.scratch / "out"),
            "checkpoint": str(self.scratch / "checkpoint"),
            "replicas": self.settings.replicas,
            "hang_timeout_s": self.settings.hang_timeout_s,
            "checkpoint_interval": self.interval,
        }
        asked = self.scratch / "request.json"
        asked.write_text(json.dumps(request))
        process = subprocess.Popen(
            [sys.executable, "-m", "updraft.chaos.driver", str(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.scratch / "driver.log").open("a"),
            text=True,
            start_new_session=True,
        )
        driver = self._driver = Driver(process)
        threading.Thread(target=driver.listen, daemon=True).start()
        return driver

    def _after(self, batches: int) -> None:
        driver = self._running
        wanted = driver.batch + batches
        deadline = time.monotonic() + _PATIENCE_S
        while driver.batch < wanted:
            self._thaw()
            if driver.process.poll() is not None:
                raise Failed(f"the driver ended by itself after batch {driver.batch}: {self._log()}")
            if time.monotonic() > deadline:
                raise Failed(
                    f"no batch {wanted} within {_PATIENCE_S:.0f} s; the last is {driver.batch}: {self._log()}"
                )
            time.sleep(0.05)

    @property
    def _running(self) -> Driver:
        assert self._driver is not None
        return self._driver

    def _happen(self, event: Event) -> None:
        driver = self._running
        self.played.append(f"{event.kind.value} at batch {driver.batch}")
        self.say(self.played[-1])
        match event.kind:
            case Kind.KILL:
                found = self._executors()
                for number in range(len(event.picks)):
                    if found:
                        send(found.pop(event.pick(number, sorted(found))), signal.SIGKILL)
            case Kind.FREEZE:
                found = {name: one for name, one in self._executors().items() if one not in self._frozen}
                if found:
                    victim = found[event.pick(0, sorted(found))]
                    send(victim, signal.SIGSTOP)
                    self._frozen[victim] = time.monotonic() + event.frozen_s
            case Kind.RESTART:
                os.killpg(driver.process.pid, signal.SIGKILL)
                driver.process.wait()
                self._thaw(everything=True)  # else they would hold their cores against the next driver's
                again, reached = self._start(), driver.batch
                again.wait(lambda: again.batch >= reached, "the restarted driver's first batch")
            case kind if kind in CHANGES:
                self._ask(event)

    def _ask(self, event: Event) -> None:
        driver = self._running
        operator = event.pick(0, list(OPERATORS))
        request: Request
        match event.kind:
            case Kind.RESCALE:
                request = Rescale(parallelism={operator: 1 + int(event.picks[1] * 6)})
            case Kind.MOVE:
                first = int(event.picks[1] * TASKS)
                tasks = tuple(range(first, min(TASKS, first + 1 + int(event.picks[2] * 4))))
                worker = event.pick(3, driver.workers)
                request = Move(operator=operator, tasks=tasks, to_worker=worker)
            case _:
                request = Drain(worker=event.pick(1, driver.workers), release=False)
        assert driver.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            driver.process.stdin.write(json.dumps(request.to_json()) + "\n")
            driver.process.stdin.flush()

    def _executors(self) -> dict[str, ProcessId]:
        return executors(self.cluster.name, self.cluster.home, self._running.app)

    def _thaw(self, *, everything: bool = False) -> None:
        now = time.monotonic()
        for victim in [one for one, until in self._frozen.items() if everything or until <= now]:
            del self._frozen[victim]
            send(victim, signal.SIGCONT)

    def _finish(self) -> int:
        """Let the driver end after its batch; the last batch it committed."""
        driver = self._running
        assert driver.process.stdin is not None
        driver.process.stdin.close()
        deadline = time.monotonic() + _PATIENCE_S
        while driver.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        ended = [one for one in list(driver.said) if "ended" in one]
        if driver.process.poll() != 0 or not ended:
            raise Failed(f"the driver did not end well (exit code {driver.process.poll()}): {self._log()}")
        return int(ended[-1]["last"])

    def _log(self) -> str:
        return (self.scratch / "driver.log").read_text(errors="replace")[-1500:]
