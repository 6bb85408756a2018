"""`run`: from a topology to a running query and back to a result, with everything that can go wrong on the way.

`options.py` has the options and their check, `session.py` Spark's session, `wiring.py` puts the run together, `execution.py`
runs the query, `stopping.py` knows when to end it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from updraft.control.together import Together
from updraft.errors import UpdraftError
from updraft.operators.duration import Duration
from updraft.plan.prune import prune_legs
from updraft.policy.registry import Policy
from updraft.policy.settings import Settings
from updraft.runtime.checkpoints import open_checkpoint
from updraft.runtime.course import LiveOptions
from updraft.runtime.execution import Execution
from updraft.runtime.frames import leg_frames, leg_schemas, selected, united
from updraft.runtime.live import LiveTopology
from updraft.runtime.options import RunOptions, check_interval
from updraft.runtime.progress import Progress, RunResult
from updraft.runtime.session import HANG_TIMEOUT_S, TopologyFactory, pointing_to, session_for
from updraft.runtime.shares import remove_run_groups
from updraft.runtime.steered import SteerOptions, Told, steered
from updraft.runtime.stopping import stopper
from updraft.runtime.wiring import controlled, make_engine
from updraft.topology import Topology, compile_topology


def run(
    topology: Topology | TopologyFactory,
    *,
    checkpoint: str | Path | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    trigger: str | None = None,
    until_idle: bool = False,
    max_batches: int | None = None,
    checkpoint_interval: int = 1,
    retain: int = 10,
    retain_for: Duration | None = None,
    allow_dropped: Sequence[str] = (),
    fsync: bool = False,
    spark_conf: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
    control: bool = True,
    fixed_plan: bool = False,
    hang_timeout: Duration = HANG_TIMEOUT_S,
    copy_bytes_per_s: int | None = None,
    enforce: bool = False,
    shares: Mapping[str, float] | None = None,
    on_start: Callable[[LiveTopology], None] | None = None,
    policy: str | Policy | None = None,
    mode: str = "auto",
    settings: Settings | Mapping[str, object] | None = None,
    workers: int | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    price_per_worker_hour: float | None = None,
    period_s: float = 10.0,
    forecast: str = "auto",
    history: str | Path | None = None,
    placement: str | None = None,
    monitor: bool = True,
    metrics_port: int | None = None,
    on_decision: Told | None = None,
    together: Together | None = None,
) -> RunResult:
    """Run a topology until it is stopped.

    topology: a `Topology`, or a function of the SparkSession that builds one.
    checkpoint: directory (local or any path Spark can write) that holds state and progress; a run started on it again
        goes on where the last one ended. Without one, state lives in a temporary directory and ends with the run.
    spark: session to use; else the one the sources were built with, else a new one on `master` (default `local[*]`).
    trigger: like "1 second", the pace of batches; by default the next batch begins when the last one ends.
    until_idle: process what is available now, then return.
    max_batches: return after that many batches.
    checkpoint_interval: bring the checkpoint up to date every so many batches. With more than 1 a restart repeats the
        batches since then from the source, which must still have them; results stay exactly once.
    retain: how many commits to keep in the checkpoint, at least.
    retain_for: keep commits younger than this as well, such as "1 hour"; `updraft state restore` can go back to any kept one.
    allow_dropped: names of stateful operators whose stored state may be dropped because the topology no longer has them.
    fsync: force segments and commits to the disk, so that a commit also survives a power failure.
    progress: called with a `BatchSummary` after every commit. stop: set it to end the run after the current batch.
    control: serve the control API on loopback, for `updraft status`, `rescale`, `move`, `drain` of the same user.
    fixed_plan: the first plan stays for the whole run, and nothing is kept or served that a change would need.
    hang_timeout: a worker that gives no sign of life for so long is taken for lost (seconds, or "20 seconds"). Only where
        `run` starts Spark itself; a session of your own needs the settings of `runtime.session.hang_settings`.
    copy_bytes_per_s: how fast state may be copied between workers, for a new plan or for replicas, on average.
    enforce: every instance works in a cgroup of its own on its worker, within the CPU share that the policy or `shares` gives
        it, and its CPU use is read from there. Where no cgroup can be made: one warning, and use is only measured.
        Policy "adaptive" enforces without being asked to.
    shares: cores for each instance by operator, such as {"count": 0.4} ("source": a partition of the source); implies enforce.
    on_start: called once with the running topology's controls (the same as the API's), before the first batch.
    policy: who decides on parallelism and workers while it runs, by name (docs/policies.md); "static" decides nothing.
        Without one it is "updraft" for a run that goes on until it is stopped, and "static" for one that ends by itself
        (`until_idle`, `max_batches`: its load is no stream), with `fixed_plan` or with `monitor=False`. After a change by
        hand a policy changes nothing for ten minutes (setting `hands_off_s`).
    mode: "auto" carries decisions out, "advise" only records them (`updraft decisions`).
    settings: thresholds and rules of the policy, as `updraft.policy.Settings` or by name.
    workers: how many workers to begin with; without it, all that the cluster gives (at most `max_workers`).
    min_workers, max_workers: bounds for the policy. If you choose no policy and give neither these nor `workers`, workers are
        neither asked for nor given back; without `max_workers` there are then never more than at the start.
    price_per_worker_hour: what one costs, for the reports. period_s: seconds between decisions.
    forecast: "auto" or one method. placement: where instances of new plans go, by name.
    history: checkpoint directory of an earlier run of the same topology: forecasts recall what came then when the load goes as
        it went then. Without it they recall what this run's own directory has from before a restart.
    monitor: keep metrics of every batch in the checkpoint directory. metrics_port: serve them to Prometheus on loopback.
    together: whoever steers the topologies of one application together (`run_all` sets it).
    on_decision: called with every `DecisionRecord`, when it is made and when more is known of it.
    """
    options = RunOptions(
        checkpoint=None if checkpoint is None else str(checkpoint),
        master=master,
        trigger=trigger,
        until_idle=until_idle,
        max_batches=max_batches,
        checkpoint_interval=checkpoint_interval,
        retain=retain,
        retain_for=retain_for,
        allow_dropped=tuple(allow_dropped),
        fsync=fsync,
        spark_conf=dict(spark_conf or {}),
        control=control,
        fixed_plan=fixed_plan,
        hang_timeout=hang_timeout,
        live=LiveOptions() if copy_bytes_per_s is None else LiveOptions.paced(copy_bytes_per_s),
        shares=dict(shares or {}) if enforce or shares else None,
        steer=SteerOptions(
            policy=policy,
            streams=not fixed_plan and not until_idle and max_batches is None,
            mode=mode,
            settings=settings if settings is not None else {},
            workers=workers,
            min_workers=min_workers,
            max_workers=max_workers,
            price_per_worker_hour=price_per_worker_hour,
            period_s=period_s,
            forecast=forecast,
            history=None if history is None else str(history),
            placement=placement,
            monitor=monitor,
            metrics_port=metrics_port,
        ),
    )
    if problems := options.problems():
        raise UpdraftError("run() cannot start: " + "; ".join(problems))
    if options.shares is None and options.steer.policy_found().enforces:
        options = replace(options, shares={})
    if isinstance(topology, Topology):
        topology.validate()  # everything that can be wrong without Spark, before Spark starts
    with ExitStack() as stack:
        session, log = session_for(topology, spark, options)
        if log is not None:
            stack.callback(session.stop)
            stack.enter_context(pointing_to(log))
        check_interval(options, session)
        app = topology if isinstance(topology, Topology) else topology(session)
        frames = leg_frames(app, session)
        graph = compile_topology(app, leg_schemas(app, frames))
        state = stack.enter_context(open_checkpoint(graph, options, session))
        graph = prune_legs(graph)
        engine = make_engine(session, graph, state, options, progress)
        if options.shares is not None:
            stack.callback(remove_run_groups, session.sparkContext, engine.storage.run_id)
        stack.callback(engine.plans.close)
        if isinstance(engine.plans, LiveTopology):
            engine.plans.abandon = engine.abandon_batch
            if options.control:
                stack.enter_context(controlled(engine.plans, engine))
            stack.enter_context(
                steered(
                    engine,
                    engine.plans,
                    app,
                    options.steer,
                    trigger=options.trigger,
                    told=on_decision,
                    together=together,
                )
            )
            if on_start is not None:
                on_start(engine.plans)
        frame = united([selected(frames[leg.name], leg.output_schema.names) for leg in graph.legs])
        asked = stack.enter_context(stopper(stop))
        return Execution(engine=engine, frame=frame, options=options, stopper=asked, log=log).go()
