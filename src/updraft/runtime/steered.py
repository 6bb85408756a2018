"""Wires a run to its monitor and its policy: the metrics store, the loop, the Prometheus page. Here they meet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import isclose
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from updraft.control.decisions import DECISIONS_FILE, DecisionRecord, Decisions
from updraft.control.loop import ControlLoop, LoopOptions
from updraft.control.past import Past, past_of
from updraft.control.steering import Mode
from updraft.control.together import Together
from updraft.errors import UpdraftError
from updraft.monitor.convert import shape_of
from updraft.monitor.feed import Feed
from updraft.monitor.prometheus import Endpoint, render_copies
from updraft.monitor.snapshot import Shape
from updraft.monitor.store import MetricsStore, MetricsUnreadable, read_metrics
from updraft.placement.model import UnknownStrategy
from updraft.placement.running import Placer, placement_named
from updraft.policy.model import InstanceLoad, OperatorLoad
from updraft.policy.registry import DEFAULT, Policy, UnknownPolicy, policy
from updraft.policy.settings import InvalidSettings, Settings, check, settings_from
from updraft.predict.network import Network
from updraft.profile import Profile, ProfileError
from updraft.runtime.engine import Engine
from updraft.runtime.live import LiveTopology
from updraft.runtime.progress import BatchSummary, Progress
from updraft.runtime.workers import ask_for_workers, is_embedded
from updraft.topology import Topology
from updraft.topology.records import SourceRecord

METRICS_FILE = "metrics.sqlite"
"""Name of the metrics store in a checkpoint directory."""

FORECASTS = ("auto", "last", "line", "seasonal", "ann", "recalled")
_RECALLED = 20_000  # batches of an earlier run

log = logging.getLogger("updraft.run")
Told = Callable[[DecisionRecord], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerOptions:
    """How a run is watched and steered; see `run`. `policy` None: nobody chose one. `streams`: whether the run goes on until
    it is stopped and its plan can be changed; unless it does, there is nothing to steer for."""

    policy: str | Policy | None = None
    streams: bool = True
    mode: str = "auto"
    settings: Settings | Mapping[str, object] = field(default_factory=dict)
    workers: int | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    price_per_worker_hour: float | None = None
    period_s: float = 10.0
    forecast: str = "auto"
    history: str | None = None
    placement: str | None = None
    monitor: bool = True
    metrics_port: int | None = None

    @property
    def steers(self) -> bool:
        """Whether a policy decides on anything."""
        return self.policy_found().name != "static"

    @property
    def sizes(self) -> bool:
        """Whether that policy decides on the number of workers, too."""
        return self.steers and not self.settings_found().keep_workers

    def policy_found(self) -> Policy:
        if self.policy is None:
            return policy(DEFAULT if self.streams and self.monitor else "static")
        return policy(self.policy) if isinstance(self.policy, str) else self.policy

    def settings_found(self, replicas: int = 1, begun_with: int | None = None) -> Settings:
        """The settings with the bounds on workers. Unless the user says how few there may be, copies keep their workers:
        a quiet topology on one worker would have none. Who chose no policy is not sent the bill of one: then there are never
        more workers than the run has begun with, and without any bounds their number stays the cluster's."""
        given = self.settings if isinstance(self.settings, Settings) else settings_from(self.settings)
        least = given.min_workers if self.min_workers is None else self.min_workers
        most = given.max_workers if self.max_workers is None else self.max_workers
        if self.policy is None and most is None:
            bounded = self.workers is not None or self.min_workers is not None
            if not bounded and given.min_workers == Settings().min_workers:
                return replace(given, keep_workers=True)
            most = None if begun_with is None else max(begun_with, least)
        if self.min_workers is None:
            least = max(least, replicas if most is None else min(replicas, most))
        return replace(given, min_workers=least, max_workers=most)

    def problems(self) -> list[str]:
        """Everything wrong with the options."""
        found: list[str] = []
        try:
            check(self.policy_found().settings(self.settings_found()))
        except InvalidSettings as error:
            found += error.problems
        except UnknownPolicy as error:
            found.append(str(error))
        try:
            if self.placement is not None:
                placement_named(self.placement)
        except UnknownStrategy as error:
            found.append(str(error))
        if self.mode not in tuple(Mode):
            found.append(f"mode={self.mode!r}: there are {', '.join(Mode)}")
        if not self.period_s > 0:
            found.append(f"period_s={self.period_s} must be more than 0")
        if self.price_per_worker_hour is not None and not self.price_per_worker_hour >= 0:
            found.append(f"price_per_worker_hour={self.price_per_worker_hour} must not be negative")
        if self.workers is not None and self.workers < 1:
            found.append(f"workers={self.workers} must be at least 1")
        if self.forecast not in FORECASTS:
            found.append(f"forecast={self.forecast!r}: there are {', '.join(FORECASTS)}")
        if self.history is not None and not (Path(self.history) / METRICS_FILE).exists():
            found.append(
                f"history={self.history!r}: there is no {METRICS_FILE} in it; name the checkpoint directory of an earlier run"
            )
        return found

    def _network(self) -> Network | None:
        """The profile's forecaster of input load, if it looks ahead in the steps in which decisions are made."""
        profile = self.settings_found().profile
        if not isinstance(profile, Profile) or profile.input_load is None:
            return None
        if not isclose(profile.slot_s, self.period_s, rel_tol=0.01):
            log.warning(
                "the profile's input load was learnt in slots of %g s, decisions are made every %g s: forecasts do without it; "
                "profile with --slot %g",
                profile.slot_s,
                self.period_s,
                self.period_s,
            )
            return None
        return profile.input_load

    def loop_options(self) -> LoopOptions:
        return LoopOptions(
            policy=self.policy_found(),
            mode=Mode(self.mode),
            settings=self.settings_found(),
            period_s=self.period_s,
            forecast=self.forecast,
            network=self._network(),
            placement=self.placement,
            price_per_worker_hour=self.price_per_worker_hour,
        )


@contextmanager
def steered(
    engine: Engine,
    live: LiveTopology,
    app: Topology,
    options: SteerOptions,
    *,
    trigger: str | None,
    told: Told | None,
    together: Together | None = None,
) -> Iterator[ControlLoop | None]:
    """The loop of a run, as long as the run lasts; None: the run is not even watched."""
    if not options.monitor and not options.steers:
        yield None
        return
    directory = engine.checkpoint.local
    shape = shape_of(engine.graph)
    check(options.policy_found().settings(options.settings_found()), _bounds(shape))
    _check_profile(options, shape)
    context = engine.spark.sparkContext
    with ExitStack() as stack:
        store = MetricsStore(None if directory is None else directory / METRICS_FILE, say=log.warning)
        stack.callback(store.close)
        feed = Feed(shape.topology, store, backlog=backlog_of(app))
        embedded = is_embedded(context)
        replicas = 1 if embedded else max((node.replicas for node in engine.graph.stateful), default=1)
        begun_with = None if embedded else len(live.running().workers)
        settings = options.settings_found(replicas, begun_with)
        # Shares that the user has set are the user's, unless a policy was chosen besides.
        limits = engine.shares.now
        shares = limits is not None and (options.policy is not None or not limits.cores)
        settings = replace(settings, shares=shares)
        if embedded:
            settings = replace(settings, worker_cores=context.defaultParallelism)
        loop = ControlLoop(
            topology=live,
            shape=shape,
            feed=feed,
            decisions=Decisions(_file(directory, options)),
            options=replace(
                options.loop_options(), settings=settings, past=_past(options, shape, settings, store)
            ),
            ask_workers=lambda total: _ask(context, shape.topology, total, together),
            idle=lambda: trigger is None and live.resting,
            working=lambda: not live.resting,
            told=told or (lambda record: None),
            share=live.set_shares if shares else None,
        )
        if isinstance(live.place, Placer):
            live.place.recent = feed.recent
        engine.progress, engine.watched = both(feed.take, engine.progress), True
        live.more_status = lambda: {"steering": loop.status()}
        if options.metrics_port is not None:
            stack.callback(_served(feed, live, options.metrics_port).stop)
        stack.callback(loop.stop)
        if together is None:
            loop.start()
        else:
            live.given_up, live.release = together.unwanted, together.release
            together.join(shape.topology, loop)
            stack.callback(together.leave, shape.topology)
        yield loop


def _past(options: SteerOptions, shape: Shape, settings: Settings, store: MetricsStore) -> Past:
    """What is known from the run named, else from before this one was started again."""
    if not options.steers:
        return Past()
    if options.history is None:
        return past_of(store.recent(shape.topology, last=_RECALLED), shape, settings, options.period_s)
    try:
        found = read_metrics(Path(options.history) / METRICS_FILE, shape.topology, last=_RECALLED)
    except MetricsUnreadable as error:
        log.warning("policies do without history: %s", error)
        return Past()
    if not found:
        log.warning("policies do without history: %s has no batches of '%s'", options.history, shape.topology)
    return past_of(found, shape, settings, options.period_s)


def _ask(context: SparkContext, topology: str, total: int, together: Together | None) -> None:
    if together is None:
        ask_for_workers(context, total)
    else:
        together.ask_workers(topology, total)


def both(first: Progress, then: Progress | None) -> Progress:
    """Tell two about every batch."""
    if then is None:
        return first

    def tell(summary: BatchSummary) -> None:
        first(summary)
        then(summary)

    return tell


def backlog_of(app: Topology) -> Callable[[], int | None]:
    """Rows that wait at the sources, if each of them is a method of something that knows its `lag()`."""
    frames = [record.frame for record in app.records if isinstance(record, SourceRecord)]
    owners = [getattr(frame, "__self__", None) for frame in frames]
    if not owners or not all(hasattr(owner, "lag") for owner in owners):
        return lambda: None

    def waiting() -> int | None:
        lags: list[Any] = [owner.lag() for owner in owners if owner is not None]
        return None if None in lags else sum(int(lag.behind_events) for lag in lags)

    return waiting


def _file(directory: Path | None, options: SteerOptions) -> Path | None:
    return directory / DECISIONS_FILE if directory is not None and options.steers else None


def _check_profile(options: SteerOptions, shape: Shape) -> None:
    profile = options.settings_found().profile
    if isinstance(profile, Profile) and (problems := profile.fits(shape)):
        raise ProfileError(
            f"the profile cannot be used: {'; '.join(problems)}; 'updraft profile' makes one of this topology"
        )


def _bounds(shape: Shape) -> list[OperatorLoad]:
    return [
        OperatorLoad(
            name=one.name,
            instances=(InstanceLoad(index=0),),
            tasks=one.tasks,
            lowest=one.lowest,
            highest=one.highest,
        )
        for one in shape.operators
    ]


def _served(feed: Feed, live: LiveTopology, port: int) -> Endpoint:
    def page() -> str:
        status = live.status()
        return feed.page() + render_copies(status["topology"], status["copies"])

    try:
        endpoint = Endpoint(page, port=port)
    except OSError as error:
        raise UpdraftError(f"the metrics cannot be served on port {port}: {error}") from error
    endpoint.start()
    return endpoint
