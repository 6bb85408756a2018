"""Copies rows of tasks from workers to workers: one Spark job, a stage on the holders, a shuffle, a stage on the receivers.

The rows travel as Arrow; a receiver writes them as parts (`state/copies.py`) and opens them, so that the first batch after the
change finds them mapped and verified. Every receiver says what it has; one that Spark put elsewhere says so and writes nothing.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.ipc as ipc

from updraft.plan import Worker
from updraft.plan.protocol import Copied, CopyFailed, CopySegments
from updraft.runtime.pieces import END, Kind, Piece, pack, unpack
from updraft.runtime.rdds import Primitives
from updraft.runtime.storage import Storage
from updraft.state.copies import Part, part_name
from updraft.state.remake import remade
from updraft.state.slices import concat_rows, earliest_timer_us, rows_of_tasks
from updraft.state.spec import Level, SegmentRef, TableSpec
from updraft.state.store import SegmentStore

_LONG = struct.Struct("!q")
_SIZE = struct.Struct("<I")
NO_DROPS: Mapping[str, tuple[str, ...]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """Rows of some tasks of one segment, from a worker that holds them to another one."""

    segment: str
    batch: int
    part: str  # the file they become
    tasks: tuple[int, ...]
    total: int  # tasks of the operator
    levels: tuple[Level, ...]  # where the sender finds them
    slot: int  # the receiver
    making: Making | None = None  # instead: what the receiver needs to make them


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How a receiver makes the rows itself from changes that a sender has; see `state/remake.py`."""

    sender: str
    tasks: tuple[int, ...]
    way: Mapping[str, Any]
    changes: tuple[SegmentRef, ...]
    spec: TableSpec


Make: TypeAlias = Callable[[str, SegmentRef, Iterable[int]], Iterable[Making]]
"""(receiver, segment, tasks) -> what it can make of them"""


def makes_nothing(receiver: str, segment: SegmentRef, tasks: Iterable[int]) -> Iterable[Making]:
    """Every row is sent."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What one receiver wrote, or why not."""

    worker: str
    part: Part | None
    wire_bytes: int
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan:
    """One window: partition i of the sending stage is `senders[i]`, of the receiving one `receivers[i]`."""

    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    shipments: tuple[tuple[Shipment, ...], ...]  # by sender


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCall:
    """Spark's function on a holder."""

    storage: Storage
    shipments: tuple[tuple[Shipment, ...], ...]  # by partition
    receivers: int

    def __call__(self, split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        for _ in elements:
            pass
        store = self.storage.store()
        by_slot: list[list[Piece]] = [[] for _ in range(self.receivers)]
        for shipment in self.shipments[split]:
            try:
                payload = _pack_rows(shipment, _rows_to_send(shipment, store))
            except Exception as error:  # the receiver reports it: an exception here would only be retried
                payload = _pack(_header(shipment, problem=f"{type(error).__name__}: {error}"), b"")
            by_slot[shipment.slot].append(
                Piece(kind=Kind.SEGMENT, level=END, slot=0, edge=0, sender=split, payload=payload)
            )
        for slot, pieces in enumerate(by_slot):
            yield _LONG.pack(slot)
            yield pack(pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveCall:
    """Spark's function on a receiver; elements alternate with the placing RDD's fillers."""

    storage: Storage
    workers: tuple[str, ...]  # by partition
    drops: tuple[tuple[str, ...], ...] = ()  # by partition, files nobody needs there any more
    making: Mapping[str, tuple[Making, int]] = field(
        default_factory=dict
    )  # by part, with all tasks there are

    def __call__(self, split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        here = self.storage.worker_id()
        store = self.storage.store()
        if self.drops and here == self.workers[split]:
            self.storage.retire(store, self.drops[split])
        for bundle in list(elements)[::2]:
            for piece in unpack(bundle):
                header, sent = _unpack(piece.payload)
                problem = header["problem"]
                if problem is None and here != self.workers[split]:
                    problem = (
                        f"worker '{self.workers[split]}' is gone or busy: Spark ran the copy on '{here}'"
                    )
                answer: dict[str, Any] = {"worker": self.workers[split], "problem": problem, "ref": None}
                if problem is None:
                    try:
                        rows = self._rows(header["part"], sent, store)
                        size, checksum = store.write(header["part"], rows)
                        ref = SegmentRef(
                            name=header["part"],
                            batch=header["batch"],
                            rows=rows.num_rows,
                            bytes=size,
                            checksum=checksum,
                            tasks=tuple(header["tasks"]),
                            min_timer_us=earliest_timer_us(rows),
                        )
                        store.open(ref)
                        answer["ref"] = ref.to_json()
                    except Exception as error:
                        answer["problem"] = f"{type(error).__name__}: {error}"
                yield json.dumps(
                    {**answer, "segment": header["segment"], "wire_bytes": len(piece.payload)}
                ).encode()

    def _rows(self, part: str, sent: Sequence[pa.RecordBatch], store: SegmentStore) -> pa.RecordBatch:
        if part not in self.making:
            return sent[0]
        making, total = self.making[part]
        return remade(making.way, sent, store, making.spec, total)


def _rows_to_send(shipment: Shipment, store: SegmentStore) -> list[pa.RecordBatch]:
    if shipment.making is not None:
        return [
            rows_of_tasks(store.open(ref).batch, shipment.tasks, shipment.total)
            for ref in shipment.making.changes
        ]
    found = (
        rows_of_tasks(store.open(level.ref).batch, level.live or shipment.tasks, shipment.total)
        for level in shipment.levels
    )
    return [concat_rows(found)]


class Transfer:
    """Carries out copy instructions, one window at a time."""

    def __init__(self, primitives: Primitives, storage: Storage) -> None:
        self._spark = primitives
        self._storage = storage
        self._numbers = 0
        self._flying: dict[str, frozenset[str]] = {}  # by job group, the workers of a copy

    def plan(
        self,
        orders: Sequence[CopySegments],
        *,
        refs: Mapping[str, SegmentRef],
        totals: Mapping[str, int],
        find: Callable[[str, Iterable[Level], Iterable[int]], tuple[Level, ...]],
        make: Make = makes_nothing,
    ) -> TransferPlan:
        """Who sends what to whom: the rows of all tasks that go the same way from one segment become one part."""
        wanted: dict[tuple[str, str, str], list[CopySegments]] = {}
        for order in orders:
            for segment in order.segments if order.from_worker is not None else ():
                wanted.setdefault((order.from_worker or "", order.to_worker, segment), []).append(order)
        receivers = sorted({key[1] for key in wanted})
        shipments: dict[str, list[Shipment]] = {}
        for (holder, receiver, segment), some in sorted(wanted.items()):
            tasks = {order.task for order in some}
            makings = tuple(make(receiver, refs[segment], sorted(tasks)))
            sent = tasks.difference(*(making.tasks for making in makings))
            loads: list[tuple[str, tuple[int, ...], Making | None]] = [
                (making.sender, making.tasks, making) for making in makings
            ]
            if sent:
                loads.append((holder, tuple(sorted(sent)), None))
            for sender, mine, making in loads:
                self._numbers += 1
                live = Level(ref=refs[segment], live=frozenset(mine))
                shipments.setdefault(sender, []).append(
                    Shipment(
                        segment=segment,
                        batch=refs[segment].batch,
                        part=part_name(segment, f"{os.getpid()}-{self._numbers}"),
                        tasks=mine,
                        total=totals[some[0].operator],
                        levels=() if making is not None else find(sender, [live], mine),
                        slot=receivers.index(receiver),
                        making=making,
                    )
                )
        return TransferPlan(
            senders=tuple(sorted(shipments)),
            receivers=tuple(receivers),
            shipments=tuple(tuple(shipments[sender]) for sender in sorted(shipments)),
        )

    def run(
        self,
        orders: Sequence[CopySegments],
        plan: TransferPlan,
        workers: Iterable[Worker],
        drops: Mapping[str, tuple[str, ...]] = NO_DROPS,
    ) -> tuple[list[Arrival], list[Copied | CopyFailed]]:
        """Copy; returns what arrived and, order by order, what to tell the migration.

        An order whose rows nobody holds any more is done at once: the receiver reads them from the checkpoint.
        """
        if not plan.senders:
            return [], _outcomes(orders, [])
        locations = {worker.id: worker.location for worker in workers}
        with self._spark.job_group("copies of state") as group:
            self._flying[group] = frozenset({*plan.senders, *plan.receivers})
            try:
                arrivals = self._ship(plan, locations, drops)
            except Exception as error:
                reason = f"the copy was broken off: {str(error).splitlines()[0]}"
                return [], [_failed(order, reason) for order in orders]
            finally:
                del self._flying[group]
        return arrivals, _outcomes(orders, arrivals)

    @property
    def is_busy(self) -> bool:
        """Whether a copy is under way."""
        return bool(self._flying)

    def abandon(self, alive: frozenset[str]) -> None:
        """Break off copies from or to workers that are gone: Spark would let their tasks wait for them."""
        for group, involved in list(self._flying.items()):
            if not involved <= alive:
                self._spark.cancel(group)

    def _ship(
        self, plan: TransferPlan, locations: Mapping[str, str], drops: Mapping[str, tuple[str, ...]]
    ) -> list[Arrival]:
        spark = self._spark
        send = SendCall(storage=self._storage, shipments=plan.shipments, receivers=len(plan.receivers))
        rdd = spark.python_stage(spark.placed([locations.get(worker) for worker in plan.senders], 1), send)
        rdd = spark.shuffle(rdd, spark.partitioner(len(plan.receivers)))
        rdd = rdd.zip(spark.placed([locations.get(worker) for worker in plan.receivers], len(plan.senders)))
        receive = ReceiveCall(
            storage=self._storage,
            workers=plan.receivers,
            drops=tuple(drops.get(worker, ()) for worker in plan.receivers) if drops else (),
            making={
                one.part: (one.making, one.total)
                for some in plan.shipments
                for one in some
                if one.making is not None
            },
        )
        return [_arrival(answer) for answer in spark.collect(spark.python_stage(rdd, receive))]


def pause_s(sent_bytes: int, took_s: float, bytes_per_s: int) -> float:
    """How long to wait before the next window so that on average no more than the budget is sent."""
    return max(0.0, sent_bytes / bytes_per_s - took_s)


def _outcomes(orders: Sequence[CopySegments], arrivals: Sequence[Arrival]) -> list[Copied | CopyFailed]:
    found: dict[tuple[str, str, int], Arrival] = {}
    problems: dict[str, str] = {}
    for arrival in arrivals:
        if arrival.part is None:
            problems[arrival.worker] = arrival.problem or "unknown"
            continue
        for task in arrival.part.ref.tasks:
            found[arrival.worker, arrival.part.segment, task] = arrival
    outcomes: list[Copied | CopyFailed] = []
    for order in orders:
        mine = [found.get((order.to_worker, segment, order.task)) for segment in order.segments]
        if order.from_worker is not None and not all(mine):
            outcomes.append(_failed(order, problems.get(order.to_worker, "nothing arrived")))
            continue
        # A shipment carries several tasks; each is charged its share of the bytes.
        shares = [
            a.wire_bytes / max(1, len(a.part.ref.tasks)) for a in mine if a is not None and a.part is not None
        ]
        outcomes.append(_copied(order, round(sum(shares))))
    return outcomes


def _failed(order: CopySegments, reason: str) -> CopyFailed:
    return CopyFailed(operator=order.operator, task=order.task, worker=order.to_worker, reason=reason)


def _copied(order: CopySegments, size: int) -> Copied:
    return Copied(
        operator=order.operator,
        task=order.task,
        worker=order.to_worker,
        through_batch=order.through_batch,
        bytes=size,
    )


def _header(shipment: Shipment, problem: str | None) -> dict[str, Any]:
    return {
        "segment": shipment.segment,
        "part": shipment.part,
        "batch": shipment.batch,
        "tasks": list(shipment.tasks),
        "problem": problem,
    }


def _pack_rows(shipment: Shipment, batches: Sequence[pa.RecordBatch]) -> bytes:
    """One stream after the other: which columns changes have may differ from batch to batch."""
    sink = pa.BufferOutputStream()
    for rows in batches:
        with ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
    return _pack({**_header(shipment, None), "batches": len(batches)}, sink.getvalue())


def _pack(header: Mapping[str, Any], rows: pa.Buffer | bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-(_SIZE.size + len(text)) % 8)
    return b"".join((_SIZE.pack(len(text)), text, rows))


def _unpack(payload: pa.Buffer) -> tuple[dict[str, Any], list[pa.RecordBatch]]:
    (size,) = _SIZE.unpack_from(payload)
    header = json.loads(payload.slice(_SIZE.size, size).to_pybytes())
    if header["problem"] is not None:
        return header, []
    rest = pa.BufferReader(payload.slice(_SIZE.size + size))
    found = []
    for _ in range(header["batches"]):
        with ipc.open_stream(rest) as stream:
            found.append(stream.read_next_batch())
            for _ in stream:
                pass  # up to the end mark, behind which the next one begins
    return header, found


def _arrival(answer: bytes) -> Arrival:
    value = json.loads(answer)
    part = None
    if value["ref"] is not None:
        part = Part(segment=value["segment"], ref=SegmentRef.from_json(value["ref"]))
    return Arrival(
        worker=value["worker"], part=part, wire_bytes=value["wire_bytes"], problem=value["problem"]
    )
