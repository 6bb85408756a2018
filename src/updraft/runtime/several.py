"""`run_all`: several topologies in one Spark application, on the same workers, steered together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from updraft.control.together import Together
from updraft.errors import UpdraftError
from updraft.runtime.lifecycle import run
from updraft.runtime.progress import RunResult
from updraft.runtime.session import remove_log, start_session
from updraft.runtime.stopping import stopper
from updraft.runtime.workers import ask_for_workers, release_worker
from updraft.topology import Topology

_POLL_S = 0.2


def run_all(
    topologies: Sequence[Topology],
    *,
    checkpoint: str | Path,
    spark: SparkSession | None = None,
    master: str | None = None,
    stop: threading.Event | None = None,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> dict[str, RunResult]:
    """Run topologies side by side until all have ended or are stopped; the results by name.

    checkpoint: a directory in which each topology has one of its own, by name.
    each: options of `run` for single topologies, by name; `options` are for all.

    They share the workers of one Spark application. Their policy, by default as in `run`, decides on all of them together: at
    most one is changed per round, and a worker is given back only when none of them wants it. If one fails, the others are
    stopped.
    """
    _check(topologies, each or {})
    with ExitStack() as stack:
        session, log = spark, None
        if session is None:
            session, log = start_session("updraft", master=master)
            stack.callback(session.stop)
        context = session.sparkContext
        together = Together(
            ask=lambda total: ask_for_workers(context, total),
            release=lambda worker: release_worker(context, worker),
        )
        stack.callback(together.close)
        asked = stack.enter_context(stopper(stop))
        ending = threading.Event()
        results: dict[str, RunResult] = {}
        failures: dict[str, Exception] = {}

        def one(topology: Topology) -> None:
            try:
                results[topology.name] = run(
                    topology,
                    checkpoint=Path(checkpoint) / topology.name,
                    spark=session,
                    stop=ending,
                    together=together,
                    **{**options, **(each or {}).get(topology.name, {})},
                )
            except Exception as error:
                failures[topology.name] = error
                ending.set()

        threads = [
            threading.Thread(target=one, args=(topology,), name=f"updraft-{topology.name}", daemon=True)
            for topology in topologies
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if asked.wanted:
                ending.set()
            if asked.aborted:
                context.cancelAllJobs()
            for thread in threads:
                thread.join(_POLL_S / len(threads))
    if failures:
        name, error = min(failures.items(), key=lambda found: found[0])
        failed = UpdraftError(f"topology '{name}' failed, the others were stopped: {error}")
        if log is not None:
            failed.add_note(f"Spark's log: {log}")
        raise failed from error
    if log is not None:
        remove_log(log)
    return results


def _check(topologies: Sequence[Topology], each: Mapping[str, Mapping[str, Any]]) -> None:
    names = [topology.name for topology in topologies]
    problems = [f"two topologies are named '{name}'" for name in sorted(set(names)) if names.count(name) > 1]
    problems += [f"options for '{name}', which is not among them" for name in sorted(set(each) - set(names))]
    if not names:
        problems.append("there is no topology")
    if problems:
        raise UpdraftError("run_all() cannot start: " + "; ".join(problems))
