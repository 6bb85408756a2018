"""One partition of one stage, in a Python worker: unpack, run the instance and what is fused with it, route, report.

This is the function Spark calls. It must be small to pickle, because it is sent with every task: the program comes
as a broadcast and is unpickled once per process.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from updraft.enforce import Shares
from updraft.eventtime import Clocks, Seen, merge_seen
from updraft.plan import Instance
from updraft.runtime.enforcing import enforced
from updraft.runtime.instances import InstanceRun
from updraft.runtime.outbox import Outbox
from updraft.runtime.pieces import END, Kind, Piece, pack, unpack
from updraft.runtime.program import LEG, Program
from updraft.runtime.reports import Report
from updraft.runtime.storage import Storage
from updraft.runtime.usage import worker_use
from updraft.state.spec import Level

_LONG = struct.Struct("!q")
COLLECTED_BYTES = 16 << 20
_programs: dict[str, Program] = {}


class Shipped(Protocol):
    """A Spark broadcast of pickled bytes."""

    @property
    def value(self) -> bytes: ...


InstanceLevels = Mapping[tuple[str, int], Mapping[str, tuple[Level, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What changes from batch to batch."""

    id: int
    attempt: int
    now_ms: int
    publish: bool  # whether this batch brings the checkpoint up to date
    published: int  # the last batch whose segments are all in the checkpoint
    retired: tuple[str, ...]  # segments no kept commit needs any more
    levels: InstanceLevels
    drops: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by worker, files of tasks it gave away
    clocks: Clocks = field(default_factory=Clocks)  # event time after the last batch
    shares: Shares | None = None  # of CPU; None: nothing is enforced
    watched: bool = True  # whether anybody looks at what reports say beyond what the engine needs


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCall:
    """Spark's `f(partition index, elements) -> elements` for one level of one batch."""

    program_id: str
    program: Shipped
    storage: Storage
    batch: Batch
    level: int
    slots: int  # of this level; 0 for the source's partitions
    zipped: bool = False  # elements alternate with the placing RDD's fillers
    last_slots: int = (
        0  # > 0: after the last level, spread sink output over that many slots (slot 0: reports)
    )
    most_output_bytes: int = COLLECTED_BYTES  # of DataFrame sinks, by partition, when there are no such slots

    def __call__(self, split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        program = self._load()
        out: list[Piece] = []
        seen: Seen = {}
        if self.level == 0:

            def read(run: InstanceRun) -> None:
                for messages in _growing(itertools.islice(elements, 0, None, 2 if self.zipped else 1)):
                    run.report.bytes_in += sum(map(len, messages))
                    run.source_rows(_read_legs(program, messages))

            seen = self._run(program, split, None, out, seen, read).seen_us
        else:
            received = list(elements)[:: 2 if self.zipped else 1]
            mine: dict[tuple[str, int], list[Piece]] = {}
            times: list[Seen] = []
            for piece in (piece for bundle in received for piece in unpack(bundle)):
                if piece.kind is Kind.TIMES:
                    times.append(json.loads(bytes(piece.payload)))
                elif piece.level == self.level:
                    mine.setdefault((program.consumers[piece.edge], piece.instance), []).append(piece)
                else:
                    out.append(piece)  # only passing through
            # Every sender of the level before has sent what it knows, so this is what all of them have seen.
            seen = merge_seen(times)
            for instance in program.stages[self.level].slots[split].instances:
                pieces = mine.get((instance.operator, instance.index), [])
                self._run(program, split, instance, out, seen, partial(_exchange, instance, pieces))
        return self._emit(program, split, out, seen)

    def _load(self) -> Program:
        return load_program(self.program_id, self.program)

    def _run(
        self,
        program: Program,
        split: int,
        instance: Instance | None,
        out: list[Piece],
        seen: Seen,
        work: Callable[[InstanceRun], None],
    ) -> Report:
        """Times an instance's work and adds what it sends, and its report, to `out`."""
        started = time.perf_counter()
        report = Report(
            level=self.level,
            slot=split,
            operator=instance.operator if instance else None,
            instance=instance.index if instance else None,
            tasks=instance.tasks if instance else (),
            shadow_of=program.shadows.get((instance.operator, instance.index)) if instance else None,
            worker=self.storage.worker_id(),
            pid=os.getpid(),
            started_ms=time.time() * 1000,
        )
        sender = instance.index if instance else split
        run = InstanceRun(
            program=program,
            batch=self.batch,
            storage=self.storage,
            report=report,
            sender=sender,
            outbox=Outbox(sender=sender, beside=self.level == 0),
            seen=seen,
        )

        def act() -> list[Piece]:
            cpu_s = time.thread_time()
            work(run)
            sent = run.finish()
            report.cpu_s += time.thread_time() - cpu_s
            return sent

        out += enforced(report, self.storage.run_id, self.batch.shares, act)
        report.wall_s = time.perf_counter() - started
        if report.group_cpu_s is not None:
            report.cpu_s = report.group_cpu_s  # of all threads, such as Arrow's too
        told = any(piece.kind is Kind.REPORT for piece in out)
        if self.batch.watched and self.storage.own_directory and not told:
            use = worker_use()  # once per partition is enough
            report.process = None if use is None else (use.cpu_s, use.memory_bytes, use.limit_cores)
        out.append(
            Piece(kind=Kind.REPORT, level=END, slot=0, edge=0, sender=sender, payload=report.to_json())
        )
        return report

    def _emit(self, program: Program, split: int, pieces: list[Piece], seen: Seen) -> Iterator[bytes]:
        """Exactly one bundle per slot of the next stage, preceded by its number; or one for the driver."""
        following = self.level + 1
        if following < len(program.stages):
            count = len(program.stages[following].slots)
            by_slot: list[list[Piece]] = [[] for _ in range(count)]
            if program.event_times:
                known = json.dumps(seen, separators=(",", ":")).encode()
                for slot in range(count):
                    by_slot[slot].append(
                        Piece(
                            kind=Kind.TIMES, level=following, slot=slot, edge=0, sender=split, payload=known
                        )
                    )
            for piece in pieces:
                # What is not for the next level is relayed by whoever runs there, spread by destination or sender.
                turn = (
                    piece.slot if piece.level == following else (split if piece.level == END else piece.slot)
                )
                by_slot[turn % count].append(piece)
        elif self.last_slots:
            by_slot = [[] for _ in range(self.last_slots)]
            for piece in pieces:
                stays = piece.kind is Kind.OUTPUT and piece.edge in program.framed
                by_slot[1 + split % (self.last_slots - 1) if stays else 0].append(piece)
        else:
            yield pack(self._collectable(program, split, pieces))
            return
        for slot, mine in enumerate(by_slot):
            yield _LONG.pack(slot)
            yield pack(mine)

    def _collectable(self, program: Program, split: int, pieces: list[Piece]) -> list[Piece]:
        """What the driver gets; too much output of sinks that take a DataFrame is not for it."""
        framed = (p for p in pieces if p.kind is Kind.OUTPUT and p.edge in program.framed)
        if sum(len(piece.payload) for piece in framed) <= self.most_output_bytes:
            return pieces
        return [Piece(kind=Kind.OVERFLOW, level=END, slot=0, edge=0, sender=split, payload=b"")]


def _exchange(instance: Instance, pieces: list[Piece], run: InstanceRun) -> None:
    run.report.bytes_in = sum(len(piece.payload) for piece in pieces)
    run.exchanged_rows(instance, pieces)


def load_program(program_id: str, program: Shipped) -> Program:
    """The program, unpickled once per process; the one of a plan in preparation may be there beside the one in use."""
    found = _programs.get(program_id)
    if found is None:
        while len(_programs) > 2:
            _programs.pop(next(iter(_programs)))
        found = _programs[program_id] = cloudpickle.loads(program.value)
    return found


@dataclass(frozen=True, slots=True)
class WarmCall:
    """Spark's function that only makes a worker's process know a program before the first batch needs it. `slots`: it sends
    so many empty bundles on, each preceded by its number."""

    program_id: str
    program: Shipped
    slots: int = 0

    def __call__(self, _split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        for _ in elements:
            pass
        load_program(self.program_id, self.program)
        for slot in range(self.slots):
            yield _LONG.pack(slot)
            yield pack([])
        if not self.slots:
            yield b"ready"


def _growing(messages: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Messages in groups of slowly growing size: work begins while the JVM still reads, yet groups stay few."""
    group: list[bytes] = []
    wanted = 2
    for message in messages:
        group.append(message)
        if len(group) == wanted // 2:
            yield group
            group, wanted = [], wanted + 1
    if group:
        yield group


def _read_legs(program: Program, messages: list[bytes]) -> dict[str, pa.Table]:
    """Spark's Arrow messages as one table per source leg."""
    schema = program.source_schema()
    batches = [ipc.read_record_batch(pa.py_buffer(message), schema) for message in messages]
    if len(program.legs) == 1:
        return {program.legs[0]: pa.Table.from_batches(batches, schema)}
    by_leg: dict[str, list[pa.RecordBatch]] = {leg: [] for leg in program.legs}
    for batch in batches:
        numbers = batch.column(LEG).to_numpy()
        # Mostly one: Spark merges partitions of a union only where its parts are distributed alike, as after coalesce(1).
        for number in np.unique(numbers).tolist():
            leg = program.legs[number]
            rows = batch.column(f"__leg{number}")
            if not (numbers == number).all():
                rows = rows.filter(pa.array(numbers == number))
            schema = program.nodes[leg].output_schema
            by_leg[leg].append(pa.RecordBatch.from_arrays(rows.flatten(), schema=schema))
    return {
        leg: pa.Table.from_batches(found, program.nodes[leg].output_schema) for leg, found in by_leg.items()
    }
