"""What is known and said of a plan's copies, and of the recovery whose copies are not rebuilt yet. Told by
`losses.py`, `tending.py` and, of batches, by `live.py`."""

from __future__ import annotations

import logging
from typing import Any

from updraft.control import Journal, Outcome
from updraft.placement.copies import missing_copies, replicated
from updraft.plan import Plan, Worker
from updraft.plan.replication import Backlog
from updraft.runtime.recovery import Recovery
from updraft.topology.graph import Graph

log = logging.getLogger("updraft.replicas")


class Keeping:
    """Without replicas it places nothing, and a recovery is over with the batch that was run again."""

    def __init__(self, graph: Graph, journal: Journal | None, *, replicas: bool) -> None:
        self._graph = graph
        self._journal = journal
        self._replicas = replicas
        self._behind: Backlog | None = None
        self._through = -1  # the last version that all copies have held
        self._missed = 0  # copies without a node, as was last said
        self.recovery: Recovery | None = None
        self.outgoing: tuple[Plan, ...] = ()  # whose copies stay until those of the plan in effect are whole

    def leave(self, plan: Plan) -> None:
        """Another plan takes effect: until its copies are whole, workers keep what they hold under the last whole one."""
        if self._replicas and not self.outgoing:
            self.outgoing = (plan,)

    def placed(self, plan: Plan, workers: tuple[Worker, ...], *, before: Plan) -> Plan:
        """The plan with the copies that `replicas=` asks for, as far as there are nodes."""
        return replicated(plan, self._graph, workers, before=before)[0] if self._replicas else plan

    def say(self, plan: Plan) -> None:
        """Once: copies find no node of their own; and once that all have one again."""
        missing = missing_copies(plan, self._graph) if self._replicas else 0
        if missing and not self._missed:
            log.warning("%s; they are made when workers come", _shortage(missing))
        elif self._missed and not missing:
            log.warning("all tasks have as many copies as replicas= asks for")
        self._missed = missing

    def followed(self, behind: Backlog, through: int, *, whole: bool) -> None:
        """How far copies are behind, which version all of them have held, and whether those were the copies of the plan in
        effect."""
        self._behind, self._through = behind, through
        if not whole:
            return
        self.outgoing = ()
        recovery = self.recovery
        if recovery is not None and recovery.committed is not None and through >= recovery.committed:
            self.end(Outcome.DONE, _shortage(self._missed) if self._missed else "")

    def status(self, plan: Plan) -> dict[str, Any] | None:
        """For people and the API; None without replicas."""
        if not self._replicas:
            return None
        behind = self._behind
        return {
            "wanted": sum(node.tasks * (node.replicas - 1) for node in self._graph.stateful),
            "missing": missing_copies(plan, self._graph),
            "through_batch": self._through,
            "behind": None if behind is None else len(behind.lacking),
            "behind_bytes": None if behind is None else behind.bytes,
        }

    def begin(self, recovery: Recovery) -> None:
        """Workers were lost; one that is not over yet is overtaken."""
        lost = ", ".join(recovery.lost)
        self.end(Outcome.SUPERSEDED, f"worker {lost} was lost before all copies were rebuilt")
        self.recovery = recovery
        self.write()

    def went_on(self, batch: int) -> None:
        """A batch is committed: the first one after a loss is what copies must reach again."""
        if self.recovery is None or self.recovery.committed is not None:
            return
        self.recovery.went_on(batch)
        if self._replicas:
            self.write()
        else:
            self.end(Outcome.DONE)

    def end(self, outcome: Outcome, reason: str = "") -> None:
        """The recovery under way, if there is one, is over."""
        recovery, self.recovery = self.recovery, None
        if recovery is not None:
            recovery.end(outcome, reason)
            self._append(recovery)

    def write(self) -> None:
        """The recovery under way as it is now."""
        if self.recovery is not None:
            self._append(self.recovery)

    def _append(self, recovery: Recovery) -> None:
        if self._journal is not None:
            self._journal.append(recovery.record())


def _shortage(missing: int) -> str:
    return f"{missing} copies of tasks that replicas= asks for have no node of their own"
