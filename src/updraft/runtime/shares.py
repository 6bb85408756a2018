"""The CPU shares of a run, in the driver: the table that goes with every batch, and what workers say about enforcing it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark import SparkContext

from updraft.enforce import Shares, check_shares
from updraft.runtime.enforcing import RemoveCall
from updraft.runtime.rdds import Primitives
from updraft.runtime.reports import Report
from updraft.runtime.workers import list_workers

log = logging.getLogger("updraft.enforce")


class ShareTable:
    """Which shares hold from the next batch on. Set by a policy or the caller, read by the engine's thread."""

    def __init__(self, operators: Iterable[str] = (), cores: Mapping[str, float] | None = None) -> None:
        """cores: None: nothing is enforced in this run; empty: instances are counted but not limited yet."""
        self._operators = frozenset(operators)
        self._warned = False
        self._noted: set[str] = set()
        self.now: Shares | None = None
        if cores is not None:
            check_shares(cores, self._operators)
            self.now = Shares(version=1, cores=dict(cores))

    def change(self, cores: Mapping[str, float]) -> bool:
        """Other shares from the next batch on; False: they are not enforced in this run, or the same."""
        check_shares(cores, self._operators)
        if self.now is None or dict(cores) == dict(self.now.cores):
            return False
        self.now = self.now.changed(cores)
        return True

    def heard(self, reports: Iterable[Report]) -> None:
        """One warning if a worker cannot enforce, and every note once."""
        if self.now is None:
            return
        for report in reports:
            if report.unenforced is not None and not self._warned:
                self._warned = True
                log.warning("worker %s: %s", report.worker, report.unenforced)
            for note in report.notes:
                if note not in self._noted:
                    self._noted.add(note)
                    log.warning("share of operator '%s': %s", report.operator or "source", note)

    def to_json(self) -> dict[str, Any] | None:
        """For `updraft status`."""
        if self.now is None:
            return None
        return {"cores": dict(sorted(self.now.cores.items())), "enforced": not self._warned}


def remove_run_groups(context: SparkContext, run_id: str) -> None:
    """The run's cgroups on all workers; what cannot be removed now, the next start removes."""
    try:
        spark = Primitives(context)
        locations: list[str | None] = [worker.location for worker in list_workers(context)]
        ended = spark.collect(spark.python_stage(spark.placed(locations or [None], 1), RemoveCall(run_id)))
        if left := [name for one in ended for name in json.loads(one)["left"]]:
            log.warning("cgroups %s are still busy; the next start removes them", ", ".join(left))
    except Exception as error:  # the run's own end, or its error, matters more
        log.warning("cgroups of this run were not removed (%s); the next start does it", error)
