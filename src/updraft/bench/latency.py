"""`updraft bench latency`: latency of events at 1,000 rows a second, 4 instances against 4 native partitions.

**The event's moment.** Row i of the load is due at `t0 + i ms`; that planned time is its timestamp. A server
in the benchmark's own process sends the rows over a loopback socket when they are due, so a sender that falls
behind makes latency worse, never better. Both sides read Spark's `socket` source. The `rate` source is no
good for this: it hands rows out in whole seconds, so every row would wait half a second on average for the
*source* and the two sides would look alike.

**The output's moment.** The end of the trigger whose batch holds the row, as Spark reports it (start of the
trigger plus its whole duration, output and commit included). Which rows those are follows from the source
offsets of the same report. Nothing is added to either query to measure it.

Keyed count over 1,000 keys, `local[2]`, trigger as fast as possible. The first `WARM_BATCHES` batches are
left out on both sides; the final state of both is compared with a recount of the rows they read.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from rich.table import Table

from updraft.bench.framework import Bench, Outcome, ratio

ROWS_PER_S = 1_000
KEYS = 1_000
INSTANCES = 4
WARM_BATCHES = 40
_TICK_S = 0.002


class PacedServer:
    """Serves numbered lines, row i due at `t0 + i / rows_per_s`, to the first client that connects."""

    def __init__(self, rows_per_s: int = ROWS_PER_S) -> None:
        self._rows_per_s = rows_per_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="updraft-paced-server", daemon=True)
        self.t0_s = 0.0

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> PacedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # closed before anybody came
            return
        with client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.t0_s = time.time()
            sent = 0
            while not self._stopped.is_set():
                due = int((time.time() - self.t0_s) * self._rows_per_s) + 1
                if due > sent:
                    try:
                        client.sendall("".join(f"{row}\n" for row in range(sent, due)).encode())
                    except OSError:  # the side ended
                        return
                    sent = due
                self._stopped.wait(_TICK_S)


def latencies_ms(
    batches: Sequence[Sequence[float]], *, t0_s: float, rows_per_s: int, warm: int
) -> npt.NDArray[np.float64]:
    """Latency of every row after the first `warm` batches; a batch is (first row, last row, ended_s)."""
    parts = [
        1000 * (ended_s - t0_s - np.arange(int(first), int(last) + 1) / rows_per_s)
        for first, last, ended_s in batches[warm:]
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def run(bench: Bench) -> Outcome:
    """The latency benchmark."""
    measured: dict[str, npt.NDArray[np.float64]] = {}
    batch_ms: dict[str, float] = {}
    verified = True
    for side in ("native", "updraft"):
        module = "native" if side == "native" else "updraft_side"
        with PacedServer() as server:
            request = {
                "port": server.port,
                "instances": INSTANCES,
                "keys": KEYS,
                "warm_batches": WARM_BATCHES,
                "measure_s": 12 if bench.quick else 60,
            }
            result = bench.side(f"updraft.bench.{module}:latency", request)
            measured[side] = latencies_ms(
                result["batches"], t0_s=server.t0_s, rows_per_s=ROWS_PER_S, warm=WARM_BATCHES
            )
        batch_ms[side] = float(np.median(result["batch_ms"][WARM_BATCHES:]))
        verified = verified and recount_matches(result["state"], rows=int(result["batches"][-1][1]) + 1)
    return _outcome(measured, batch_ms, verified)


def recount_matches(state: str, *, rows: int) -> bool:
    """Whether the state holds exactly the counts of rows 0..rows-1 by `row % KEYS`."""
    table = pq.read_table(state)
    found = np.zeros(KEYS, np.int64)
    found[table.column("key").to_numpy()] = table.column("count").to_numpy()
    return bool(np.array_equal(found, np.bincount(np.arange(rows) % KEYS, minlength=KEYS)))


def _outcome(
    measured: dict[str, npt.NDArray[np.float64]], batch_ms: dict[str, float], verified: bool
) -> Outcome:
    figures: dict[str, Any] = {}
    for side in ("updraft", "native"):
        for share in (50, 99):
            figures[f"{side}_p{share}_ms"] = round(float(np.percentile(measured[side], share)), 1)
    for share in (50, 99):
        figures[f"ratio_p{share}"] = ratio(figures[f"updraft_p{share}_ms"], figures[f"native_p{share}_ms"])
    table = Table(title=f"latency at {ROWS_PER_S:,} rows/s, event to commit", title_justify="left")
    for header in ("", "updraft", "native", "updraft / native"):
        table.add_column(header, justify="left" if not header else "right")
    for share in (50, 99):
        ours, theirs = figures[f"updraft_p{share}_ms"], figures[f"native_p{share}_ms"]
        table.add_row(
            f"p{share}", f"{ours:,.0f} ms", f"{theirs:,.0f} ms", f"{figures[f'ratio_p{share}']:.2f}"
        )
    table.add_row("median batch", f"{batch_ms['updraft']:,.0f} ms", f"{batch_ms['native']:,.0f} ms", "")
    table.add_row("verified", "yes" if verified else "NO", "", "")
    notes = (
        f"{INSTANCES} instances against {INSTANCES} native partitions; first {WARM_BATCHES} batches excluded",
    )
    return Outcome(json=figures, table=table, notes=notes, verified=verified)
