"""A driver program on a real cluster whose plan is changed at random while it counts; prints one line of JSON at the end.

usage: live_on_cluster.py MASTER INPUT CHECKPOINT SEED CHANGES
"""

# ruff: noqa: T201 -- its output is what the test reads
from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from typing import Any

import pyarrow as pa

import updraft as ud
from updraft.control import ChangeRefused, Drain, Move, Request, Rescale
from updraft.runtime.live import LiveTopology
from updraft.runtime.session import start_session

TASKS = 16
STRATEGIES = ("all_at_once", "one_by_one", "batched:3")


class Sums(ud.KeyedOperator):
    """A second stateful operator behind the count: the last count of every key, and how often it changed."""

    state = {"last": pa.int64(), "times": pa.int64()}  # noqa: RUF012
    output = {"number": pa.int64(), "n": pa.int64(), "times": pa.int64()}  # noqa: RUF012

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        before = ctx.state.get(rows.select(["number"]), ctx.hashes)
        times = pa.array(
            [(value or 0) + 1 for value in before.values.column("times").to_pylist()], pa.int64()
        )
        ctx.state.put(pa.table({"number": rows["number"], "last": rows["n"], "times": times}), ctx.hashes)
        return pa.table({"number": rows["number"], "n": rows["n"], "times": times})


def build(source: str, out: ud.sinks.MemorySink) -> ud.Topology:
    app = ud.Topology("changing")

    def frame(spark: Any) -> Any:
        return spark.readStream.schema("number LONG").option("maxFilesPerTrigger", 1).parquet(source)

    counted = (
        app.source("numbers", frame).key_by("number").count("n", name="counted", tasks=TASKS, parallelism=2)
    )
    counted.key_by("number").process(Sums(), name="sums", tasks=TASKS, parallelism=2).sink("out", out)
    return app


def ask(live: LiveTopology, random: random.Random) -> Request:
    workers = [worker["id"] for worker in live.status()["workers"]]
    strategy = random.choice(STRATEGIES)
    match random.randrange(4):
        case 0:
            wanted = {
                name: random.randint(1, 6)
                for name in random.sample(["counted", "sums"], random.randint(1, 2))
            }
            return Rescale(parallelism=wanted, strategy=strategy)
        case 1 if len(workers) > 1:
            return Drain(worker=random.choice(workers), strategy=strategy, release=False)
        case _:
            tasks = tuple(sorted(random.sample(range(TASKS), random.randint(1, 8))))
            operator = random.choice(["counted", "sums"])
            return Move(operator=operator, tasks=tasks, to_worker=random.choice(workers), strategy=strategy)


def change_often(live: LiveTopology, seed: int, changes: int, done: threading.Event) -> list[dict[str, Any]]:
    """Ask for changes one after the other; some are not waited for, so that the next supersedes them; some are cancelled."""
    chance = random.Random(seed)
    asked: list[int] = []
    refused: list[dict[str, Any]] = []
    while len(asked) + len(refused) < changes and not done.is_set():
        request = ask(live, chance)
        try:
            ticket = live.apply(request, who="test")
        except ChangeRefused as refusal:
            refused.append({"outcome": "refused", "request": request.to_json(), "reason": str(refusal)})
            continue
        asked.append(ticket.change_id)
        patience = chance.random()
        if patience < 0.15:
            time.sleep(chance.random() * 0.3)
        elif patience < 0.25:
            time.sleep(chance.random() * 0.3)
            try:
                live.cancel(who="test")
            except ChangeRefused:
                pass
        else:
            live.wait(ticket.change_id, 60)
    if asked:
        live.wait(asked[-1], 60)
    return [*map(dict, map(live.change, asked)), *refused]


def main() -> None:
    master, source, checkpoint, seed, changes = sys.argv[1:]
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session, _ = start_session("changing", master=master, conf=conf)
    out, done, found = ud.sinks.memory(), threading.Event(), {}

    def start(live: LiveTopology) -> None:
        def work() -> None:
            found["changes"] = change_often(live, int(seed), int(changes), done)

        found["thread"] = threading.Thread(target=work)
        found["thread"].start()

    ran: Counter[str] = Counter()
    elsewhere: list[Any] = []

    def look(batch: ud.BatchSummary) -> None:
        assert batch.plan is not None
        for report in batch.reports:
            if report.operator is not None and report.instance is not None:
                planned = batch.plan.instances[report.operator][report.instance].worker
                ran[report.worker] += 1
                if planned != report.worker:
                    elsewhere.append(
                        [batch.batch_id, report.operator, report.instance, planned, report.worker]
                    )

    result = ud.run(
        build(source, out),
        checkpoint=checkpoint,
        spark=session,
        until_idle=True,
        on_start=start,
        progress=look,
    )
    done.set()
    found["thread"].join()
    rows = [row for batch in sorted(out.batches) for row in out.batches[batch].to_pylist()]
    print(
        json.dumps(
            {
                "rows": rows,
                "changes": found["changes"],
                "batches": result.batches,
                "ran": dict(ran),
                "elsewhere": elsewhere,
            }
        )
    )
    session.stop()


if __name__ == "__main__":
    main()
