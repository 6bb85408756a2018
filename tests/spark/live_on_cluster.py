"""A driver program on a real cluster whose plan changes while it counts; prints one line of JSON per scenario.

usage: live_on_cluster.py MASTER INPUT CHECKPOINTS SEED CLUSTER HOME SCENARIO...
INPUT/numbers and INPUT/events have a file per batch; `windows` runs the topology of `timed`, the others a count.
A scenario is `random:CHANGES`, or the name of a function below; each has a checkpoint of its own and ends the run.
"""

# ruff: noqa: T201 -- its output is what the test reads
from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.spark import timed

import updraft as ud
from updraft import cluster
from updraft.control import ChangeRefused, Drain, Move, Request, Rescale
from updraft.policy import Decision, Forecast, Memory, Policy, Settings, Snapshot
from updraft.runtime.live import LiveTopology
from updraft.runtime.session import start_session

TASKS = 16
NODES = 3
STRATEGIES = ("all_at_once", "one_by_one", "batched:3")
Told = dict[str, Any]


class Changes(ud.KeyedOperator):
    """A second stateful operator behind the count: how often the count of each key has changed."""

    state = {"times": pa.int64()}  # noqa: RUF012
    output = {"number": pa.int64(), "n": pa.int64(), "times": pa.int64()}  # noqa: RUF012

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        before = ctx.state.get(rows.select(["number"]), ctx.hashes).values.column("times")
        times = pa.array([(value or 0) + 1 for value in before.to_pylist()], pa.int64())
        ctx.state.put(pa.table({"number": rows["number"], "times": times}), ctx.hashes)
        return pa.table({"number": rows["number"], "n": rows["n"], "times": times})


class Run:
    """What a scenario sees of the run."""

    def __init__(self, seed: int, name: str, home: Path) -> None:
        self.chance = random.Random(seed)
        self.cluster, self.home = name, home
        self.live: LiveTopology
        self.pids: dict[str, int] = {}  # a Python process of each worker
        self.batch = -1
        self.known: set[str] = set()  # workers that a plan may use for sources without naming them
        self.sources: list[
            tuple[int, str]
        ] = []  # batches whose source partitions ran where the plan knows nobody

    def wait_for_batches(self, more: int) -> None:
        wanted = self.batch + more
        while self.batch < wanted:
            time.sleep(0.05)

    def workers(self) -> list[str]:
        return [worker["id"] for worker in self.live.status()["workers"]]

    def change(self, request: Request, timeout_s: float = 90) -> Told:
        ticket = self.live.apply(request, who="test")
        return dict(self.live.wait(ticket.change_id, timeout_s))


def build(source: str, out: ud.sinks.MemorySink) -> ud.Topology:
    app = ud.Topology("changing")

    def frame(spark: Any) -> Any:
        return spark.readStream.schema("number LONG").option("maxFilesPerTrigger", 1).parquet(source)

    counted = app.source("numbers", frame).key_by("number")
    counts = counted.count("n", name="counted", tasks=TASKS, parallelism=2, max_parallelism=12)
    counts.key_by("number").process(Changes(), name="changes", tasks=TASKS, parallelism=2).sink("out", out)
    return app


def at_random(run: Run, changes: int) -> list[Told]:
    """Changes one after the other; some are not waited for, so that the next one supersedes them; some are cancelled."""
    asked: list[int] = []
    for _ in range(changes):
        request = _any_request(run)
        try:
            ticket = run.live.apply(request, who="test")
        except ChangeRefused:
            # A move may need more instances than the operator may have; everything else is possible.
            if isinstance(request, Move):
                continue
            raise
        asked.append(ticket.change_id)
        patience = run.chance.random()
        if patience < 0.25:
            time.sleep(run.chance.random() * 1.5)
            if patience < 0.1:
                with contextlib.suppress(ChangeRefused):  # it may be in effect already
                    run.live.cancel(who="test")
        else:
            run.live.wait(ticket.change_id, 90)
    run.live.wait(asked[-1], 90)
    return [dict(run.live.change(number)) for number in asked]


def _any_request(run: Run) -> Request:
    chance = run.chance
    strategy = chance.choice(STRATEGIES)
    workers = run.workers()
    match chance.randrange(4):
        case 0:
            names = chance.sample(["counted", "changes"], chance.randint(1, 2))
            return Rescale(parallelism={name: chance.randint(1, 8) for name in names}, strategy=strategy)
        case 1:
            return Drain(worker=chance.choice(workers), strategy=strategy, release=False)
        case _:
            tasks = tuple(sorted(chance.sample(range(TASKS), chance.randint(1, 8))))
            operator = chance.choice(["counted", "changes"])
            return Move(operator=operator, tasks=tasks, to_worker=chance.choice(workers), strategy=strategy)


def vanish(run: Run) -> list[Told]:
    """The worker that state is being copied to is killed: the old plan goes on."""
    run.wait_for_batches(3)
    used = {i.worker for found in run.live.job.plan.instances.values() for i in found}
    target = next(worker for worker in run.workers() if worker in run.pids and worker in used)
    away = tuple(i.tasks[0] for i in run.live.job.plan.instances["counted"] if i.worker != target)
    found: list[Told] = []
    original = run.live._course.make_job

    def slow(*arguments: Any) -> Any:
        # The plan is made, nothing is copied yet: the moment at which the worker dies.
        job = original(*arguments)
        os.kill(executor_of(run.pids[target]), signal.SIGKILL)
        while target in run.workers():
            time.sleep(0.1)
        return job

    run.live._course.make_job = slow
    found.append(run.change(Move(operator="counted", tasks=away, to_worker=target)))
    run.live._course.make_job = original
    run.wait_for_batches(3)
    return found


def join_and_drain(run: Run) -> list[Told]:
    """A node joins and is used; one worker gets everything, is drained and released."""
    run.wait_for_batches(1)
    # Spark may still be replacing a worker that was killed before.
    while len(before := set(run.workers())) < NODES:
        time.sleep(0.2)
    cluster.add_node(run.cluster, home=run.home)
    while not (joined := set(run.workers()) - before):
        time.sleep(0.2)
    (new,) = joined
    found = [run.change(Rescale(parallelism={"counted": 4, "changes": 4}))]
    used = {i.worker for instances in run.live.job.plan.instances.values() for i in instances}
    found[-1]["used"] = new in used
    for operator in ("counted", "changes"):
        found.append(run.change(Rescale(parallelism={operator: 1})))
        found.append(run.change(Move(operator=operator, tasks=tuple(range(TASKS)), to_worker=new)))
    assert run.live.job.plan.workers() == (new,)
    run.wait_for_batches(2)
    found.append(run.change(Drain(worker=new)))
    deadline = time.monotonic() + 20
    while new in run.workers() and time.monotonic() < deadline:
        time.sleep(0.1)
    found[-1]["released"] = new not in run.workers()
    run.wait_for_batches(2)
    return found


def windows(run: Run) -> list[Told]:
    """Tasks of every operator go from worker to worker, all and some, while their windows are open."""
    found: list[Told] = []
    run.wait_for_batches(4)
    for turn in range(3):
        workers = run.workers()
        tasks = tuple(range(TASKS)) if turn == 0 else tuple(range(turn, TASKS, 2))
        for number, operator in enumerate(("closed", "sessions", "joined")):
            target = workers[(turn + number) % len(workers)]
            if turn == 0:
                run.live.wait(run.live.apply(Rescale(parallelism={operator: 1}), who="test").change_id, 90)
            found.append(run.change(Move(operator=operator, tasks=tasks, to_worker=target)))
        run.wait_for_batches(1)
    found.append(run.change(Rescale(parallelism={"closed": 3, "sessions": 4, "joined": 3})))
    run.wait_for_batches(6)
    return found


class Wanted:
    """A policy that wants as many workers, and instances of everything, as a scenario says."""

    def __init__(self) -> None:
        self.workers = 1

    def __call__(
        self, snapshot: Snapshot, forecast: Forecast | None, memory: Memory, settings: Settings
    ) -> Decision:
        count = self.workers
        return Decision(
            parallelism={"counted": count, "changes": count},
            workers=count,
            rule="wanted",
            reasons=(f"{count} are wanted",),
            memory=memory,
            changed=True,
        )


WANTED = Wanted()


def elastic(run: Run) -> list[Told]:
    """A policy asks the cluster for workers, uses them in one plan, and gives them back when they are empty."""
    found: list[Told] = []
    run.wait_for_batches(2)
    for count in (3, 1):
        WANTED.workers = count
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and (
            len(run.live.job.plan.workers()) != count or len(run.workers()) != count
        ):
            time.sleep(0.05)
        run.wait_for_batches(3)
        found.append({"planned": list(run.live.job.plan.workers()), "alive": run.workers()})
    found[-1]["sources"] = sorted({worker for _, worker in run.sources})
    return found


def as_given(run: Run) -> list[Told]:
    """Nobody chose a policy: ours decides on instances, but not on workers, and not on what was drained by hand."""
    run.wait_for_batches(2)
    before = run.workers()
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and run.live.job.plan.parallelism()["counted"] != 3:
        time.sleep(0.05)
    steering = run.live.status()["steering"]
    found: list[Told] = [{"policy": steering["policy"], "plan": run.live.job.plan.parallelism()}]
    drained = before[0]
    found.append(run.change(Drain(worker=drained, release=False)))
    run.wait_for_batches(1)
    while time.monotonic() < deadline and run.live.status()["steering"]["waits"] is None:
        time.sleep(0.05)
    run.wait_for_batches(8)
    found.append({
        "alive": [before, run.workers()],
        "drained": drained not in run.live.job.plan.workers(),
        "waits": run.live.status()["steering"]["waits"],
    })  # fmt: skip
    return found


def refusals(run: Run) -> list[Told]:
    """Impossible requests are refused with their reasons, and nothing changes."""
    requests: list[Request] = [
        Rescale(parallelism={"counted": TASKS + 1}),
        Rescale(parallelism={"counted": 13, "changes": 99}),
        Rescale(parallelism={"nobody": 2}),
        Move(operator="counted", tasks=(99,), to_worker=run.workers()[0]),
        Move(operator="counted", tasks=(0,), to_worker="nowhere"),
        Drain(worker="nowhere"),
    ]
    found: list[Told] = []
    for request in requests:
        try:
            run.live.apply(request, who="test")
        except ChangeRefused as refusal:
            found.append({"outcome": "refused", "reasons": refusal.reasons})
    return found


def executor_of(python_pid: int) -> int:
    """The executor's JVM: the parent of the daemon that forked its Python processes."""
    pid = python_pid
    while b"java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def play(
    session: SparkSession,
    topology: ud.Topology,
    out: ud.sinks.MemorySink,
    checkpoint: str,
    run: Run,
    scenario: Callable[[Run], list[Told]],
    **options: Any,
) -> Told:
    stop, told = threading.Event(), {}
    elsewhere: list[Any] = []

    def look(batch: ud.BatchSummary) -> None:
        assert batch.plan is not None
        run.batch = batch.batch_id
        known = {*run.known, *batch.plan.workers()}
        for report in batch.reports:
            if report.operator is None and report.worker not in known:
                run.sources.append((batch.batch_id, report.worker))
            run.pids[report.worker] = report.pid
            if report.operator is not None and report.instance is not None:
                planned = batch.plan.instances[report.operator][report.instance].worker
                if planned != report.worker:
                    elsewhere.append(
                        [batch.batch_id, report.operator, report.instance, planned, report.worker]
                    )

    def work() -> None:
        try:
            told["changes"] = scenario(run)
        except BaseException as error:
            told["error"] = f"{type(error).__name__}: {error}"
        finally:
            stop.set()

    def start(live: LiveTopology) -> None:
        run.live = live
        threading.Thread(target=work, daemon=True).start()

    result = ud.run(
        topology,
        checkpoint=checkpoint,
        spark=session,
        stop=stop,
        on_start=start,
        progress=look,
        **{"policy": "static", **options},  # unless it is the scenario's: only the test changes the plan
    )
    rows = [row for batch in sorted(out.batches) for row in out.batches[batch].to_pylist()]
    return {**told, "rows": rows, "batches": result.batches, "elsewhere": elsewhere}


def main() -> None:
    master, source, checkpoints, seed, name, home, *scenarios = sys.argv[1:]
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session, _ = start_session("changing", master=master, conf=conf)
    for scenario in scenarios:
        what, _, count = scenario.partition(":")
        known: dict[str, Callable[[Run], list[Told]]] = {
            "random": lambda run, count=count: at_random(run, int(count)),  # type: ignore[misc]
            "vanish": vanish,
            "join_and_drain": join_and_drain,
            "refusals": refusals,
            "windows": windows,
            "elastic": elastic,
            "as_given": as_given,
        }
        options: dict[str, Any] = {}
        if scenario == "elastic":
            policy = Policy(name="wanted", summary="as the test says", decide=WANTED)
            options = {"policy": policy, "workers": 1, "max_workers": 3, "period_s": 0.5}
        if scenario == "as_given":
            bounds = {"min_parallelism": {"counted": 3}}  # so that there is something to decide
            options = {"policy": None, "settings": bounds, "period_s": 1.0}
        run = Run(int(seed), name, Path(home))
        sinks = {each: ud.sinks.memory() for each in (*timed.STATEFUL, "out")}
        if scenario == "windows":
            topology = timed.topology(timed.files(f"{source}/events"), sinks, tasks=TASKS)
        else:
            topology = build(f"{source}/numbers", sinks["out"])
        told = play(session, topology, sinks["out"], f"{checkpoints}/{what}", run, known[what], **options)
        if scenario == "windows":
            told["emitted"] = timed.emitted(
                {each: sinks[each].batches for each in timed.STATEFUL}, told["batches"]
            )
            told["emitted"] = {
                each: [list(b.items()) for b in made] for each, made in told["emitted"].items()
            }
        print(json.dumps({"scenario": what, **told}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
