"""Copying tasks between workers: the two functions Spark calls, with real stores, and what the driver makes of it."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from updraft.plan.protocol import Copied, CopyFailed, CopySegments
from updraft.runtime.storage import Storage
from updraft.runtime.transfer import (
    ReceiveCall,
    SendCall,
    Transfer,
    TransferPlan,
    _arrival,
    _outcomes,
    pause_s,
)
from updraft.state import KeyedTable, LocalStore, SegmentRef, TableSpec
from updraft.state.copies import Copies

TASKS = 4
SPEC = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]))


@dataclass(frozen=True, slots=True, kw_only=True)
class At(Storage):
    """The storage of a worker by name: in a real run each worker is a process of its own."""

    name: str = ""

    def worker_id(self) -> str:
        return self.name


def at(root: Path, worker: str) -> At:
    return At(
        run_id="r", shared=str(root / "checkpoint"), own_directory=True, local_root=str(root), name=worker
    )


def sealed(store: LocalStore, batch: int) -> SegmentRef:
    table = KeyedTable(
        spec=SPEC, tasks=TASKS, mine=(0, 1, 2, 3), levels=(), store=store, operator="op", table="state"
    )
    table.put(pa.table({"k": range(200), "n": range(200)}))
    found = table.seal(f"op/state-b{batch}", batch)
    assert found is not None
    return found.added


def order(task: int, to: str, *segments: str, source: str | None = "1") -> CopySegments:
    return CopySegments(
        operator="op",
        task=task,
        from_worker=source,
        to_worker=to,
        segments=segments,
        bytes=1,
        through_batch=3,
    )


def planned(orders: list[CopySegments], refs: list[SegmentRef], copies: Copies) -> TransferPlan:
    transfer = Transfer(None, None)  # type: ignore[arg-type]  # only its planning is used
    return transfer.plan(
        orders, refs={ref.name: ref for ref in refs}, totals={"op": TASKS}, find=copies.local_levels
    )


def carried_out(root: Path, plan: TransferPlan, arrives_at: dict[str, str] | None = None) -> list[bytes]:
    """Both stages, one call per partition, as Spark would make them."""
    bundles: list[list[bytes]] = [[] for _ in plan.receivers]
    for split, worker in enumerate(plan.senders):
        send = SendCall(storage=at(root, worker), shipments=plan.shipments, receivers=len(plan.receivers))
        out = list(send(split, [b"\0"]))
        for slot, bundle in enumerate(out[1::2]):
            bundles[slot] += [bundle, b"\0"]
    answers: list[bytes] = []
    for split, worker in enumerate(plan.receivers):
        here = (arrives_at or {}).get(worker, worker)
        making = {
            one.part: (one.making, one.total)
            for some in plan.shipments
            for one in some
            if one.making is not None
        }
        receive = ReceiveCall(storage=at(root, here), workers=plan.receivers, making=making)
        answers += receive(split, bundles[split])
    return answers


def test_rows_arrive_and_are_read_in_place_of_the_segment(tmp_path: Path) -> None:
    refs = [sealed(at(tmp_path, "1").store(), batch) for batch in (1, 2)]
    copies = Copies()
    for ref in refs:
        copies.add_whole("1", ref.name)
    orders = [order(task, "2", *(ref.name for ref in refs)) for task in (0, 2)] + [
        order(3, "3", refs[0].name)
    ]
    plan = planned(orders, refs, copies)
    assert plan.senders == ("1",)
    assert plan.receivers == ("2", "3")
    assert len(plan.shipments[0]) == 3  # one part per segment and receiver, whatever the number of tasks

    arrivals = [_arrival(answer) for answer in carried_out(tmp_path, plan)]
    assert all(arrival.problem is None for arrival in arrivals)
    for arrival in arrivals:
        assert arrival.part is not None
        copies.add_part(arrival.worker, arrival.part)
    events = _outcomes(orders, arrivals)
    assert all(isinstance(event, Copied) and event.bytes > 0 for event in events)
    total = sum(event.bytes for event in events if isinstance(event, Copied))
    assert total == pytest.approx(sum(arrival.wire_bytes for arrival in arrivals), abs=3)

    from updraft.state import Level

    levels = copies.local_levels("2", [Level(ref=ref) for ref in refs], (0, 2))
    assert all("~" in level.ref.name for level in levels)
    alone = LocalStore(at(tmp_path, "2").store().root)
    mine = KeyedTable(spec=SPEC, tasks=TASKS, mine=(0, 2), levels=levels, store=alone)
    whole = KeyedTable(
        spec=SPEC,
        tasks=TASKS,
        mine=(0, 2),
        levels=tuple(Level(ref=ref) for ref in refs),
        store=at(tmp_path, "1").store(),
    )
    assert mine.scan().sort_by("k").equals(whole.scan().sort_by("k"))


def test_a_copy_that_spark_ran_elsewhere_fails(tmp_path: Path) -> None:
    ref = sealed(at(tmp_path, "1").store(), 1)
    copies = Copies()
    copies.add_whole("1", ref.name)
    orders = [order(0, "2", ref.name)]
    answers = carried_out(tmp_path, planned(orders, [ref], copies), arrives_at={"2": "9"})
    (event,) = _outcomes(orders, [_arrival(answer) for answer in answers])
    assert isinstance(event, CopyFailed)
    assert "'9'" in event.reason


def test_a_segment_the_sender_lacks_fails_and_says_so(tmp_path: Path) -> None:
    ref = replace(sealed(at(tmp_path, "1").store(), 1), name="op/gone")
    orders = [order(0, "2", ref.name), order(1, "2", ref.name)]
    answers = carried_out(tmp_path, planned(orders, [ref], Copies()))
    events = _outcomes(orders, [_arrival(answer) for answer in answers])
    assert all(isinstance(event, CopyFailed) and "op/gone" in event.reason for event in events)


def test_what_nobody_holds_is_not_sent(tmp_path: Path) -> None:
    ref = sealed(at(tmp_path, "1").store(), 1)
    orders = [order(0, "2", ref.name, source=None)]
    plan = planned(orders, [ref], Copies())
    assert plan.senders == ()
    (event,) = _outcomes(orders, [])
    assert isinstance(event, Copied)
    assert event.bytes == 0


class Waiting:
    """Stands for Spark: a job that ends only when its group is cancelled, as one that waits for a dead executor."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.groups: list[str] = []

    @contextmanager
    def job_group(self, what: str) -> Iterator[str]:
        yield "copies"

    def cancel(self, group: str) -> None:
        self.groups.append(group)
        self.cancelled.set()

    def collect(self, _rdd: object) -> list[bytes]:
        assert self.cancelled.wait(30)
        raise RuntimeError("Job 7 cancelled\nand a stack")

    def placed(self, *_: object) -> Waiting:
        return self

    python_stage = shuffle = partitioner = zip = placed


def test_a_copy_whose_worker_dies_is_broken_off(tmp_path: Path) -> None:
    ref = sealed(at(tmp_path, "1").store(), 1)
    spark = Waiting()
    transfer = Transfer(spark, at(tmp_path, "1"))  # type: ignore[arg-type]
    orders = [order(0, "2", ref.name), order(1, "2", ref.name)]
    copies = Copies()
    copies.add_whole("1", ref.name)
    plan = transfer.plan(orders, refs={ref.name: ref}, totals={"op": TASKS}, find=copies.local_levels)
    told: list[object] = []
    copying = threading.Thread(target=lambda: told.extend(transfer.run(orders, plan, [])))
    copying.start()
    while not transfer.is_busy:
        copying.join(0.01)
    transfer.abandon(frozenset({"1", "2", "3"}))  # all there: nothing happens
    assert not spark.groups
    transfer.abandon(frozenset({"1", "3"}))
    copying.join(30)
    assert spark.groups == ["copies"]
    assert not transfer.is_busy
    arrivals, events = told
    assert arrivals == []
    assert isinstance(events, list)
    assert [(event.task, event.reason) for event in events] == [
        (task, "the copy was broken off: Job 7 cancelled") for task in (0, 1)
    ]


def test_a_full_disk_of_the_receiver_fails_the_copy_alone(tmp_path: Path) -> None:
    ref = sealed(at(tmp_path, "1").store(), 1)
    copies = Copies()
    copies.add_whole("1", ref.name)
    orders = [order(task, "2", ref.name) for task in range(TASKS)]
    plan = planned(orders, [ref], copies)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))  # no file may grow beyond this
        answers = carried_out(tmp_path, plan)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    events = _outcomes(orders, [_arrival(answer) for answer in answers])
    assert all(isinstance(event, CopyFailed) and "cannot write" in event.reason for event in events)
    again = _outcomes(orders, [_arrival(answer) for answer in carried_out(tmp_path, plan)])
    assert all(isinstance(event, Copied) for event in again)  # with space again it works


def test_receivers_delete_what_nobody_needs(tmp_path: Path) -> None:
    ref = sealed(at(tmp_path, "1").store(), 1)
    old = at(tmp_path, "2").store().path("op/old~1")
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    receive = ReceiveCall(storage=at(tmp_path, "2"), workers=("2",), drops=(("op/old~1",),))
    assert list(receive(0, [])) == []
    assert not old.exists()
    assert at(tmp_path, "1").store().path(ref.name).exists()


def test_the_budget_is_an_average() -> None:
    assert pause_s(0, 0.1, 1000) == 0
    assert pause_s(500, 0.1, 1000) == pytest.approx(0.4)
    assert pause_s(50, 0.1, 1000) == 0
