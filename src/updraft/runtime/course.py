"""What the parts of a running topology share: the job in effect, the change under way, and the locks that say whose turn it is.

Threads: the *engine's* (Spark's streaming thread; batches and repairs), one that *prepares* a change (`preparing.py`), the
*guard* (`losses.py`), the *follower* (`follower.py`), and whoever asks for something (API, policy, the caller). Locks are taken
in this order and no other:

1. `Changes.asked`: one request at a time.
2. `in_batch`: held by the engine from begin to end of a batch. Whoever has the turn only tries it, never waits for it.
3. `turn`: its holder moves a change on or puts another job into effect. The same thread may take it again. Only the end of a
   change that is done, or of the run, comes without it.
4. the lock in `Residence`, for as long as a look takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from updraft.control import Journal
from updraft.plan import Plan, Worker
from updraft.plan.shadows import needed_workers
from updraft.runtime.change import Change
from updraft.runtime.checkpoints import RunCheckpoint
from updraft.runtime.follower import Follower
from updraft.runtime.job import BatchJob
from updraft.runtime.keeping import Keeping
from updraft.runtime.pace import Pace
from updraft.runtime.residence import Residence
from updraft.runtime.transfer import Transfer
from updraft.topology.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How much a change may take from the batches."""

    bytes_per_s: int = 64 << 20  # copying, on average
    window_bytes: int = 8 << 20  # copied at a time; the most a batch waits for
    leave_bytes: int = (
        1 << 20
    )  # so much of the last deltas is left to be read from a checkpoint that workers see

    @classmethod
    def paced(cls, bytes_per_s: int) -> LiveOptions:
        """So many bytes per second, an eighth of a second's worth at a time."""
        return cls(
            bytes_per_s=bytes_per_s, window_bytes=max(1 << 16, min(cls().window_bytes, bytes_per_s // 8))
        )


@dataclass(slots=True, kw_only=True)
class Course:
    """The course a topology is on. Put together, and taken apart again, by `LiveTopology`."""

    graph: Graph
    checkpoint: RunCheckpoint
    residence: Residence
    job: BatchJob  # of the plan in effect
    make_job: Callable[[Plan, tuple[Worker, ...]], BatchJob]
    transfer: Transfer | None  # None: embedded, nothing is ever copied
    workers: Callable[[], tuple[Worker, ...]]
    alive: Callable[[], frozenset[str]]
    journal: Journal | None
    options: LiveOptions
    keeping: Keeping
    follower: Follower | None = None  # None: no replicas
    change: Change | None = None  # the one under way
    job_is_old: bool = False  # other workers are to have shadows than its program knows
    pace: Pace = field(default_factory=Pace)
    turn: threading.RLock = field(default_factory=threading.RLock)
    in_batch: threading.Lock = field(default_factory=threading.Lock)
    closed: threading.Event = field(default_factory=threading.Event)  # the run is about to end
    _retired_jobs: list[BatchJob] = field(default_factory=list)
    _numbers: int = 0

    @property
    def plan(self) -> Plan:
        """The plan in effect."""
        return self.job.plan

    @property
    def totals(self) -> dict[str, int]:
        """Tasks by operator."""
        return {node.name: node.tasks for node in self.graph.stateful}

    def use(self, job: BatchJob) -> None:
        """From the next batch on; the old one is closed when that is committed."""
        job.take_over(self.job)
        self._retired_jobs.append(self.job)
        self.keeping.leave(self.job.plan)
        self.job = job

    def close_retired_jobs(self) -> None:
        """A batch of the job in effect is committed: nobody goes back to those before it."""
        retired, self._retired_jobs = self._retired_jobs, []  # another thread may add one at any time
        for job in retired:
            job.close()

    def needed_workers(self) -> frozenset[str]:
        """Workers without which a batch cannot be run."""
        return needed_workers(self.job.plan, self.graph)

    def sweep(self, *more: Plan) -> None:
        """Let workers forget what neither the plan in effect nor these have them hold."""
        self.residence.sweep(self.job.plan, *more, *self.keeping.outgoing)

    def wake_follower(self) -> None:
        """A batch was committed, or a plan took effect."""
        if self.follower is not None:
            self.follower.wake()

    def next_id(self) -> int:
        """Of a change or a recovery."""
        if self.journal is not None:
            return self.journal.next_id()
        self._numbers += 1
        return self._numbers

    def write(self, change: Change) -> None:
        """The change as it is now, into the journal."""
        if self.journal is not None:
            self.journal.append(change.record())
