"""A driver program on a real cluster of three workers whose workers are killed and frozen; a line of JSON per scenario.

usage: replicas_on_cluster.py MASTER INPUT CHECKPOINTS CLUSTER HOME SCENARIO...
"""

# ruff: noqa: T201 -- its output is what the test reads
from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.spark.live_on_cluster import TASKS, Run, Told, executor_of, play

import updraft as ud
from updraft import cluster
from updraft.cluster.executors import executors
from updraft.runtime import faults
from updraft.runtime.session import start_session

HANG_TIMEOUT_S = 6.0
_PATIENCE_S = 120.0


def build(source: str, out: ud.sinks.MemorySink, replicas: int) -> ud.Topology:
    """Two stateful operators: the count of each number, and how often that count has changed."""
    app = ud.Topology("replicated")

    def frame(spark: Any) -> Any:
        return spark.readStream.schema("number LONG").option("maxFilesPerTrigger", 1).parquet(source)

    numbers = app.source("numbers", frame).key_by("number")
    counted = numbers.count(
        "n", name="counted", tasks=TASKS, parallelism=3, replicas=replicas, replication="active"
    )
    changed = counted.key_by("number")
    changed.aggregate(
        name="changed", tasks=TASKS, parallelism=2, replicas=replicas, n=ud.max("n"), times=ud.count()
    ).sink("out", out)
    return app


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


def recoveries(run: Run) -> list[Told]:
    journal = run.live.journal
    assert journal is not None
    records = [record.to_json() for record in journal.records()]
    return [one for one in reversed(records) if one["request"]["kind"] == "recover"]


def copies_follow(run: Run) -> None:
    """Until all copies hold a version that is committed from now on, and the plan has every copy it can have."""
    batch = run.batch
    until(lambda: run.live.status()["copies"]["through_batch"] > batch, "copies do not follow")


def workers_seen(run: Run, count: int) -> None:
    until(lambda: len(set(run.workers()) & set(run.pids)) >= count, f"{count} workers that run something")


def lose(run: Run, victims: list[str], *, in_turn: bool = False, rebuilt: bool = True) -> Told:
    """Kill these workers (none: all there are), at once or one in each attempt at a batch; the record of the last recovery
    once output goes on, or once all copies are rebuilt."""
    known = len(recoveries(run))
    running = executors(run.cluster, run.home)
    processes = [running[victim].pid for victim in victims or running]
    for victim in victims or list(run.pids):
        run.pids.pop(victim, None)

    def at_begun(moment: str, _batch: int) -> None:
        if moment == "begun" and processes:
            os.kill(processes.pop(0), signal.SIGKILL)

    if in_turn:
        faults.hook = at_begun
    for process in () if in_turn else processes:
        os.kill(process, signal.SIGKILL)
    run.wait_for_batches(2)
    until(
        lambda: len(recoveries(run)) >= known + (len(victims) if in_turn else 1), "no recovery was recorded"
    )
    faults.hook = None
    phase = "done" if rebuilt else "rereplicate"
    until(lambda: phase in recoveries(run)[-1]["phases"], "the last recovery does not end")
    return recoveries(run)[-1]


def killed(run: Run) -> list[Told]:
    """One worker, then two in one batch, then all of them at once."""
    workers_seen(run, 3)
    copies_follow(run)
    one = lose(run, [run.workers()[0]])
    until(lambda: run.live.status()["copies"]["missing"] == 0, "copies on the new worker")
    copies_follow(run)
    used = [w for w in run.live.job.plan.workers() if w in run.pids]
    two = lose(run, used[:2], in_turn=True)
    copies_follow(run)
    everyone = lose(run, [], rebuilt=False)
    # Files that shadows made just as the primaries did.
    everyone["twins"] = len(run.live._residence._copies._twins)
    return [one, two, everyone]


def frozen(run: Run) -> list[Told]:
    """More replicas than nodes; a worker is stopped until it counts as lost, and goes on when others have its tasks."""
    workers_seen(run, 3)
    copies_follow(run)
    short = dict(run.live.status()["copies"])
    victim = run.live.job.plan.instances["counted"][0].worker
    assert victim is not None
    pid = executor_of(run.pids.pop(victim))
    os.kill(pid, signal.SIGSTOP)
    until(lambda: bool(recoveries(run)), "the frozen worker is not noticed")
    run.wait_for_batches(1)
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        short["zombie"] = "was killed"
    run.wait_for_batches(3)
    cluster.add_node(run.cluster, home=run.home)
    fewer = short["missing"]
    until(lambda: run.live.status()["copies"]["missing"] < fewer, "copies on the new node")
    copies_follow(run)
    return [recoveries(run)[0], short, dict(run.live.status()["copies"])]


def main() -> None:
    master, source, checkpoints, name, home, *scenarios = sys.argv[1:]
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session, _ = start_session("replicated", master=master, conf=conf, hang_timeout_s=HANG_TIMEOUT_S)
    known: dict[str, tuple[Callable[[Run], list[Told]], int]] = {"killed": (killed, 3), "frozen": (frozen, 4)}
    for scenario in scenarios:
        play_one, replicas = known[scenario]
        run = Run(0, name, Path(home))
        out = ud.sinks.memory()
        told = play(session, build(source, out, replicas), out, f"{checkpoints}/{scenario}", run, play_one)
        print(json.dumps({"scenario": scenario, **told}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
