"""What a partition sends to other instances, in order; made beside the work on the next rows where that helps.

A source partition gets its rows in several groups while the JVM still reads. Hashing, combining and serialising a group
happen in numpy and Arrow, which release the interpreter lock, so a second thread does them while the first one unpacks and
maps the next group. The user's own functions stay in one thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from updraft.runtime.pieces import Piece
from updraft.runtime.program import Route
from updraft.runtime.reports import Report
from updraft.runtime.routing import route_rows

_of_this_thread = threading.local()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    consumer: str
    pieces: tuple[Piece, ...]
    bytes_to: Mapping[int, int]  # by instance, what goes to its shadows included
    cpu_s: float = 0.0  # of the other thread


@dataclass(slots=True, kw_only=True)
class Outbox:
    """Pieces for instances of later levels, from one sender."""

    sender: int
    beside: bool  # on a thread of its own
    _shrinks: dict[int, bool] = field(default_factory=dict)
    _sent: list[_Sent | Future[_Sent]] = field(default_factory=list)

    def send(self, route: Route, rows: pa.Table) -> None:
        """Divide rows among the instances of a consumer."""
        if self.beside:
            self._sent.append(_thread().submit(self._timed, route, rows))
        else:
            self._sent.append(self._route(route, rows))

    def close(self, report: Report) -> list[Piece]:
        """All pieces in the order they were sent; their bytes go into the report."""
        pieces: list[Piece] = []
        for sent in (one if isinstance(one, _Sent) else one.result() for one in self._sent):
            report.cpu_s += sent.cpu_s
            sizes = report.bytes_to.setdefault(sent.consumer, {})
            for instance, size in sent.bytes_to.items():
                sizes[instance] = sizes.get(instance, 0) + size
            pieces += sent.pieces
        self._sent.clear()
        return pieces

    def discard(self) -> None:
        """The partition failed: nothing of it is sent."""
        for one in self._sent:
            if isinstance(one, Future):
                one.cancel()
        self._sent.clear()

    def _timed(self, route: Route, rows: pa.Table) -> _Sent:
        started = time.thread_time()
        sent = self._route(route, rows)
        return replace(sent, cpu_s=time.thread_time() - started)

    def _route(self, route: Route, rows: pa.Table) -> _Sent:
        pieces: list[Piece] = []
        bytes_to: dict[int, int] = {}
        for instance, kind, batch in route_rows(route, rows, self.sender, self._shrinks):
            payload = batch.serialize()
            for to in (instance, *route.shadows.get(instance, ())):
                bytes_to[instance] = bytes_to.get(instance, 0) + len(payload)
                pieces.append(
                    Piece(
                        kind=kind,
                        level=route.level,
                        slot=route.slots[to],
                        edge=route.edge,
                        sender=self.sender,
                        instance=to,
                        payload=payload,
                    )
                )
        return _Sent(consumer=route.consumer, pieces=tuple(pieces), bytes_to=bytes_to)


def _thread() -> ThreadPoolExecutor:
    """One per thread that sends, made at first use: a thread does not survive the fork from Spark's daemon, and one that
    was started by an instance's thread counts to the instance's CPU share."""
    found: ThreadPoolExecutor | None = getattr(_of_this_thread, "pool", None)
    if found is None:
        found = _of_this_thread.pool = ThreadPoolExecutor(1, thread_name_prefix="updraft-outbox")
    return found
