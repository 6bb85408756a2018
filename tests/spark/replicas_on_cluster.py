"""A driver program on a real cluster of three workers whose workers are killed and frozen; a line of JSON per scenario.

In `moments` a worker dies exactly while it merges segments, while it writes one, and while it publishes to the checkpoint: its
operator finds the name of a moment in a file and lets that moment of its own process kill the executor around it.

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

import cloudpickle
import pyarrow as pa
from tests.spark import live_on_cluster
from tests.spark.live_on_cluster import TASKS, Changes, Run, Told, executor_of, play

import updraft as ud
from updraft import cluster
from updraft.cluster.executors import executors
from updraft.runtime import faults
from updraft.runtime.session import start_session
from updraft.runtime.storage import Storage
from updraft.runtime.workers import ask_for_workers
from updraft.state import table
from updraft.state.store import LocalStore

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


class Mortal(Changes):
    """Counts like `Changes`; dies at the moment that the file names."""

    def __init__(self, order: str) -> None:
        self._order = Path(order)

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        taken = self._order.with_suffix(f".{os.getpid()}")
        try:
            self._order.rename(taken)  # only one process gets it
        except FileNotFoundError:
            return super().process(rows, ctx)
        MOMENTS[taken.read_text()]()
        return super().process(rows, ctx)


def _die() -> None:
    os.kill(executor_of(os.getpid()), signal.SIGKILL)
    time.sleep(60)  # whatever is left of this process must not get any further


def _die_merging() -> None:
    """At the next compaction, when it is decided and not done."""
    decide = table.levels_to_merge

    def deadly(*arguments: Any, **options: Any) -> int:
        count = decide(*arguments, **options)
        if count:
            _die()
        return count

    table.levels_to_merge = deadly


def _die_writing() -> None:
    """With half of a segment written."""

    def deadly(self: LocalStore, name: str, batch: pa.RecordBatch) -> tuple[int, str]:
        size, checksum = write(self, name, batch)
        os.truncate(self.path(name), size // 2)
        _die()
        return size, checksum

    write, LocalStore.write = LocalStore.write, deadly  # type: ignore[method-assign]


def _die_publishing() -> None:
    """With a segment in the checkpoint that no commit will name."""

    def deadly(self: Storage, store: LocalStore, name: str) -> bytes | None:
        payload = publish(self, store, name)
        _die()
        return payload

    publish, Storage.publish = Storage.publish, deadly  # type: ignore[method-assign]


MOMENTS = {"merging": _die_merging, "writing": _die_writing, "publishing": _die_publishing}


def build_mortal(source: str, out: ud.sinks.MemorySink, order: str) -> ud.Topology:
    """As `build`, but its second operator can be told to die."""
    app = ud.Topology("mortal")

    def frame(spark: Any) -> Any:
        return spark.readStream.schema("number LONG").option("maxFilesPerTrigger", 1).parquet(source)

    counted = app.source("numbers", frame).key_by("number")
    counts = counted.count("n", name="counted", tasks=TASKS, parallelism=2, replicas=2)
    counts.key_by("number").process(
        Mortal(order), name="changes", tasks=TASKS, parallelism=3, replicas=2
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
    everyone["twins"] = len(run.live._course.residence._copies._twins)
    return [one, two, everyone]


def frozen(run: Run, ask: Callable[[int], None]) -> list[Told]:
    """More replicas than nodes; a worker is stopped until it counts as lost, and goes on when others have its tasks.
    Then a node joins, and the application, which had a fixed number of workers, asks for one more."""
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
    ask(4)
    fewer = short["missing"]
    until(lambda: run.live.status()["copies"]["missing"] < fewer, "copies on the new node")
    copies_follow(run)
    return [recoveries(run)[0], short, dict(run.live.status()["copies"])]


def moments(run: Run, order: Path) -> list[Told]:
    """One death per moment, each when copies are whole again."""
    found = []
    for moment in MOMENTS:
        until(lambda: run.live.status()["copies"]["missing"] == 0, "copies on the new worker")
        copies_follow(run)
        known = len(recoveries(run))
        (draft := order.with_suffix(".draft")).write_text(moment)
        draft.rename(order)
        until(lambda known=known: len(recoveries(run)) > known, f"nobody died {moment}")  # type: ignore[misc]
        until(lambda: "rereplicate" in recoveries(run)[-1]["phases"], f"no batch after the death {moment}")
        found.append({"moment": moment, **recoveries(run)[-1]})
    run.wait_for_batches(2)
    return found


def fewer(run: Run) -> list[Told]:
    """The checkpoint of a run on three workers, started again on two of them."""
    run.wait_for_batches(1)  # the first one of this run
    until(lambda: run.live.status()["copies"]["through_batch"] >= 0, "copies do not follow")
    run.wait_for_batches(2)
    return [{"workers": run.workers(), **run.live.status()["copies"]}]


def main() -> None:
    master, source, checkpoints, name, home, *scenarios = sys.argv[1:]
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session, _ = start_session("replicated", master=master, conf=conf, hang_timeout_s=HANG_TIMEOUT_S)

    def ask(total: int) -> None:
        ask_for_workers(session.sparkContext, total)

    cloudpickle.register_pickle_by_value(live_on_cluster)  # workers know nothing of the tests
    for scenario in scenarios:
        run = Run(0, name, Path(home))
        out = ud.sinks.memory()
        order = Path(checkpoints) / "order"
        topology, play_one = {
            "killed": (build(source, out, replicas=3), killed),
            "fewer": (build(source, out, replicas=3), fewer),
            "frozen": (build(source, out, replicas=4), lambda run: frozen(run, ask)),
            "moments": (build_mortal(source, out, str(order)), lambda run: moments(run, order)),  # noqa: B023
        }[scenario]
        checkpoint = "killed" if scenario == "fewer" else scenario
        options = {"workers": 2} if scenario == "fewer" else {"workers": 3}
        told = play(session, topology, out, f"{checkpoints}/{checkpoint}", run, play_one, **options)
        print(json.dumps({"scenario": scenario, **told}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
