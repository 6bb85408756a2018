"""A topology that runs only in the imagination: two operators on two workers, changes that advance when looked at."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from updraft.control import (
    ChangeRecord,
    ChangeRefused,
    ChangeTicket,
    Drain,
    Journal,
    Move,
    Outcome,
    Preview,
    Request,
    Rescale,
    UnknownChange,
    step_lines,
)
from updraft.plan import Instance, Plan, PlanError, diff

WORKERS = ({"id": "1", "host": "alpha", "cores": 1}, {"id": "2", "host": "beta", "cores": 1})
MOST = 8


def plan_of(version: int, *, worker_of_second: str = "2", parallelism: int = 2) -> Plan:
    counts = (
        Instance(operator="count", index=0, tasks=(0, 1, 2, 3), worker="1"),
        Instance(operator="count", index=1, tasks=(4, 5, 7), worker=worker_of_second),
        *(Instance(operator="count", index=i, tasks=(6 + i * 2,), worker="1") for i in range(2, parallelism)),
    )
    return Plan(
        version=version,
        effective_from=3,
        instances={"count": counts, "clean": (Instance(operator="clean", index=0),)},
    )


class FakeControls:
    """Implements `Controls`. `ends` is how changes end; `looks` how often one is asked before that."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.journal = journal
        self.ends = Outcome.DONE
        self.looks = 3
        self.asked: list[tuple[Request, str]] = []
        self.gate = threading.Event()  # clear it and `status` waits
        self.gate.set()
        self.breaks: Exception | None = None
        self._records: dict[int, ChangeRecord] = {}
        self._looks: dict[int, int] = {}
        self._lock = threading.Lock()

    def status(self) -> Mapping[str, Any]:
        self.gate.wait(20)
        if self.breaks is not None:
            raise self.breaks
        current = self._current()
        return {
            "topology": "orders",
            "pid": 4711,
            "started_at": 1_700_000_000.0,
            "checkpoint": "checkpoints/orders",
            "batch": 41,
            "rows_per_s": 12_345.6,
            "median_batch_ms": 210.4,
            "plan_version": 1,
            "parallelism": {"count": 2, "clean": 1},
            "workers": list(WORKERS),
            "state_rows": 1_000_000,
            "state_bytes": 40_000_000,
            "change": None if current is None else self._told(current),
            "last_change": None,
        }

    def plan(self) -> Mapping[str, Any]:
        state = {"count": {str(task): {"rows": 10, "bytes": 1000} for task in range(8)}}
        return {**plan_of(1).to_json(), "workers": list(WORKERS), "state": state}

    def preview(self, request: Request) -> Preview:
        match request:
            case Rescale(parallelism=wanted):
                high = [name for name, count in sorted(wanted.items()) if count > MOST]
                if high:
                    raise ChangeRefused([f"operator '{name}': more than {MOST} tasks" for name in high])
            case Move(to_worker=worker) | Drain(worker=worker) if worker not in ("1", "2"):
                raise PlanError(f"worker '{worker}' does not exist")
            case _:
                pass
        target = plan_of(2, worker_of_second="1")
        return Preview(
            target=target,
            steps=diff(plan_of(1), target),
            strategy=request.strategy,
            tasks_moved=3,
            bytes_to_move=3_000,
            expected_delay_ms=12.0,
        )

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket:
        preview = self.preview(request)
        with self._lock:
            self.asked.append((request, who))
            number = self.journal.next_id() if self.journal else len(self._records) + 1
            self._looks[number] = 0
            self._keep(
                ChangeRecord(
                    id=number,
                    who=who,
                    request=request.to_json(),
                    started_at=1_700_000_100.0,
                    steps=step_lines(preview.steps),
                    tasks_moved=3,
                    bytes_to_move=3_000,
                )
            )
        return ChangeTicket(change_id=number, preview=preview)

    def cancel(self, *, who: str) -> Mapping[str, Any]:
        with self._lock:
            current = self._current()
            if current is None:
                raise ChangeRefused(["no change is in progress"])
            self._keep(replace(current, outcome=Outcome.CANCELLED, reason=f"cancelled by {who}"))
            return self._told(self._records[current.id])

    def change(self, change_id: int) -> Mapping[str, Any]:
        with self._lock:
            if change_id not in self._records:
                raise UnknownChange(f"no change {change_id}")
            record = self._records[change_id]
            self._looks[change_id] += 1
            if record.outcome is Outcome.RUNNING and self._looks[change_id] > self.looks:
                reason = "" if self.ends is Outcome.DONE else "worker 2 was lost"
                self._keep(
                    replace(
                        record,
                        outcome=self.ends,
                        reason=reason,
                        duration_ms=1234.0,
                        bytes_copied=3_000,
                        added_delay_ms=17.5,
                        plan_to=2,
                    )
                )
            return self._told(self._records[change_id])

    def _told(self, record: ChangeRecord) -> dict[str, Any]:
        arrived = min(3, self._looks[record.id])
        progress = {
            "phase": "copying",
            "copies": 3,
            "copies_arrived": arrived,
            "bytes_copied": arrived * 1000,
        }
        return {**record.to_json(), "progress": {**progress, "bytes_missing": 3000 - arrived * 1000}}

    def _current(self) -> ChangeRecord | None:
        return next((one for one in self._records.values() if one.outcome is Outcome.RUNNING), None)

    def _keep(self, record: ChangeRecord) -> None:
        self._records[record.id] = record
        if self.journal is not None:
            self.journal.append(record)
