"""The smallest configuration that carries a load (paper 5, Algorithm 1), without flapping at its edges.

Stage 1: instances per operator. With `Execution.PIPELINE` as in the paper: the smallest p whose instance CPU is at most
core_max. With `Execution.STAGES` the *sum* of the levels' times must be at most core_max: from the lowest parallelism on, the
instance that saves most time is added until it fits (for CPU linear in rows this ends near p ∝ √demand, the optimum).
Stage 2: the smallest number of workers with every worker at most at cpu_max and no level slowed by sharing cores.

Deviations: the paper's loop that lowers p below core_min cannot act once p is the smallest possible and is left out; a plan is
kept while it is within `tolerance / 2` of its limits, and given up only for one that would also carry that much more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from updraft.policy.estimate import Estimator, estimate
from updraft.policy.model import Configuration, Snapshot
from updraft.policy.settings import Execution, Settings, bounds

HARDLY = 1.05  # so much more time is as good as none
WORTHWHILE = 0.99  # an instance more must leave no more time than this part
UNBOUNDED = 1024  # instances of a stateless operator without a maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizer:
    """Sizes one snapshot. `correction`: how much slower than estimated reality is."""

    snapshot: Snapshot
    estimator: Estimator
    settings: Settings
    correction: float = 1.0

    def time(self, configuration: Configuration, rows_per_s: float) -> float:
        found = estimate(self.snapshot, self.estimator, configuration, rows_per_s, self.settings)
        return found.time * self.correction

    def parallelism(self, rows_per_s: float) -> dict[str, int]:
        """Stage 1, as if there were cores for everybody."""
        limits = {o.name: bounds(self.settings, o) for o in self.snapshot.operators}
        chosen = {name: lowest for name, (lowest, _) in limits.items()}
        while True:
            now = self._alone(chosen, rows_per_s)
            if now <= self.settings.core_max:
                return chosen
            grown = [
                (self._alone({**chosen, name: count + 1}, rows_per_s), count, name)
                for name, count in chosen.items()
                if count < (limits[name][1] or UNBOUNDED)
            ]
            best = min(grown, default=None)
            # Where nothing is enough, instances that save next to nothing would only move state about.
            helps = best is not None and best[0] < now * WORTHWHILE
            ties = [] if helps else self._ties(chosen, limits, rows_per_s)
            if best is None or (not helps and not ties):
                return chosen
            if not helps:  # several equally slow instances: all must get help before it shows
                best = min(ties)
            chosen[best[2]] += 1

    def settled_parallelism(self, rows_per_s: float) -> dict[str, int]:
        """What to run: the current one while it will do, else stage 1."""
        now = dict(self.snapshot.configuration.parallelism)
        slack = 1 + self.settings.stability.tolerance / 2
        within = all(
            low <= now[o.name] <= (high or UNBOUNDED)
            for o in self.snapshot.operators
            for low, high in (bounds(self.settings, o),)
        )
        if not within or self._alone(now, rows_per_s) > self.settings.core_max * slack:
            return self._not_smaller(now, self.parallelism(rows_per_s))
        roomy = self.parallelism(rows_per_s * slack)
        return roomy if sum(roomy.values()) < sum(now.values()) else now

    def workers(self, parallelism: Mapping[str, int], rows_per_s: float) -> int:
        """Stage 2: smallest number of workers; the most there may be when none is enough."""
        most = self._most_workers(parallelism)
        for count in range(self.settings.min_workers, most):
            if self.fits(parallelism, count, rows_per_s, 1.0):
                return count
        if self.settings.execution is Execution.PIPELINE or self.fits(parallelism, most, rows_per_s, 1.0):
            return most
        # Nothing is enough: so many that more would hardly help.
        times = {
            count: self.time(Configuration(parallelism=parallelism, workers=count), rows_per_s)
            for count in range(self.settings.min_workers, most + 1)
        }
        return min(count for count, time in times.items() if time <= min(times.values()) * HARDLY)

    def settled_workers(self, parallelism: Mapping[str, int], rows_per_s: float) -> int:
        """The current number while it will do; embedded Spark has no workers to decide on."""
        now = len(self.snapshot.workers)
        if now == 0:
            return 0
        most = self.settings.max_workers
        if now < self.settings.min_workers or (most is not None and now > most):
            return self.workers(parallelism, rows_per_s)
        slack = 1 + self.settings.stability.tolerance / 2
        if not self.fits(parallelism, now, rows_per_s, slack):
            return max(now, self.workers(parallelism, rows_per_s))
        return min(now, self.workers(parallelism, rows_per_s * slack))

    def fits(self, parallelism: Mapping[str, int], workers: int, rows_per_s: float, slack: float) -> bool:
        """Whether no worker is stressed and no level has to wait for cores more than the limit allows."""
        configuration = Configuration(parallelism=parallelism, workers=workers)
        found = estimate(self.snapshot, self.estimator, configuration, rows_per_s, self.settings)
        if any(cpu > self.settings.cpu_max * slack for cpu in found.worker_cpu):
            return False
        if self.settings.execution is Execution.PIPELINE:
            return True
        limit = max(self.settings.core_max, self._alone(parallelism, rows_per_s))
        return found.time * self.correction <= limit * slack + 1e-9

    def _alone(self, parallelism: Mapping[str, int], rows_per_s: float) -> float:
        """Time with a core for every instance."""
        plenty = sum(parallelism.values()) or 1
        return self.time(Configuration(parallelism=parallelism, workers=plenty), rows_per_s)

    def _most_workers(self, parallelism: Mapping[str, int]) -> int:
        """Workers that have something to do; with stages, as many as the widest level (or the source) keeps busy at once."""
        useful = sum(parallelism.values())
        if self.settings.execution is Execution.STAGES:
            wide: dict[int, int] = {0: self.snapshot.source_partitions}
            for operator in self.snapshot.operators:
                wide[operator.level] = wide.get(operator.level, 0) + parallelism.get(operator.name, 0)
            useful = max(wide.values())
        useful = max(self.settings.min_workers, useful)
        return useful if self.settings.max_workers is None else min(useful, self.settings.max_workers)

    def _ties(
        self, chosen: Mapping[str, int], limits: Mapping[str, tuple[int, int | None]], rows_per_s: float
    ) -> list[tuple[float, int, str]]:
        """Operators whose slowest instance would become quicker by itself, slowest first."""
        here = self._instances(chosen, rows_per_s)
        return [
            (-here[name], count, name)
            for name, count in chosen.items()
            if count < (limits[name][1] or UNBOUNDED)
            and self._instances({**chosen, name: count + 1}, rows_per_s)[name] < here[name] - 1e-9
            and here[name] > self.settings.core_max / max(1, len(self._levels()))
        ]

    def _instances(self, parallelism: Mapping[str, int], rows_per_s: float) -> Mapping[str, float]:
        plenty = Configuration(parallelism=parallelism, workers=sum(parallelism.values()) or 1)
        return estimate(self.snapshot, self.estimator, plenty, rows_per_s, self.settings).instance_cores

    def _levels(self) -> set[int]:
        return {operator.level for operator in self.snapshot.operators}

    def _not_smaller(self, now: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
        """When more is needed, nothing is taken away in the same step: one change, one direction."""
        return {
            o.name: max(wanted[o.name], min(now[o.name], bounds(self.settings, o)[1] or UNBOUNDED))
            for o in self.snapshot.operators
        }
