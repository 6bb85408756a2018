"""Metrics for Prometheus in its text format (version 0.0.4), made from the last batches, and a server for them.

Written by hand instead of with `prometheus-client`: its registries are process-wide state that every topology and test would
share, instances that a plan removed would have to be unregistered, and the format is forty lines. The server binds to
loopback unless told otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from updraft.monitor.model import BatchMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters of a topology since the run began: Prometheus wants sums that only grow."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    changes: int = 0
    by_operator: Mapping[str, tuple[int, int, float]] = field(
        default_factory=dict
    )  # rows in, rows out, CPU s

    def plus(self, batch: BatchMetrics) -> Totals:
        """The sums with one more batch."""
        operators = dict(self.by_operator)
        for work in batch.instances:
            rows_in, rows_out, cpu_s = operators.get(work.operator, (0, 0, 0.0))
            operators[work.operator] = (rows_in + work.rows_in, rows_out + work.rows_out, cpu_s + work.cpu_s)
        return Totals(
            batches=self.batches + 1,
            rows_in=self.rows_in + batch.rows_in,
            rows_out=self.rows_out + batch.rows_out,
            seconds=self.seconds + batch.seconds,
            changes=self.changes + (batch.change_delay_s is not None),
            by_operator=operators,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of a metric."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric with its samples."""

    name: str
    kind: str  # counter or gauge
    help: str
    samples: tuple[Sample, ...]


def render(last: Iterable[BatchMetrics], totals: Mapping[str, Totals]) -> str:
    """The page: the newest batch of each topology, and the sums by topology."""
    newest = {batch.topology: batch for batch in last}
    return "".join(_page(metric) for metric in (*_counters(totals), *_gauges(newest)) if metric.samples)


def render_copies(topology: str, copies: Mapping[str, int | None] | None) -> str:
    """Gauges of the copies that `replicas=` asks for, from the run's own status; nothing without replicas."""
    texts = {
        "wanted": ("copies_wanted", "Copies of tasks that replicas= asks for."),
        "missing": ("copies_missing", "Copies that have no node of their own."),
        "behind": ("copies_behind", "Copies that lack something of the committed version."),
        "behind_bytes": ("copies_behind_bytes", "Bytes that copies lack of the committed version."),
        "through_batch": ("copies_through_batch", "The last version that all copies have held."),
    }
    metrics = [
        Metric(
            name=f"updraft_{name}",
            kind="gauge",
            help=text,
            samples=(Sample(labels={"topology": topology}, value=value),),
        )
        for key, (name, text) in texts.items()
        if (value := (copies or {}).get(key)) is not None
    ]
    return "".join(_page(metric) for metric in metrics)


def _counters(totals: Mapping[str, Totals]) -> Iterator[Metric]:
    def of(name: str, help: str, value: Callable[[Totals], float]) -> Metric:
        found = tuple(Sample(labels={"topology": t}, value=value(s)) for t, s in sorted(totals.items()))
        return Metric(name=f"updraft_{name}_total", kind="counter", help=help, samples=found)

    yield of("batches", "Batches committed.", lambda s: s.batches)
    yield of("input_rows", "Rows taken from sources.", lambda s: s.rows_in)
    yield of("output_rows", "Rows handed to sinks.", lambda s: s.rows_out)
    yield of("batch_seconds", "Time from hand-over to commit.", lambda s: s.seconds)
    yield of("plan_changes", "Batches before which the plan changed.", lambda s: s.changes)
    for at, (name, text) in enumerate(
        (
            ("operator_input_rows", "Rows into an operator."),
            ("operator_output_rows", "Rows out of an operator."),
            ("operator_cpu_seconds", "CPU time of an operator."),
        )
    ):
        samples = tuple(
            Sample(labels={"topology": topology, "operator": operator}, value=values[at])
            for topology, sums in sorted(totals.items())
            for operator, values in sorted(sums.by_operator.items())
        )
        yield Metric(name=f"updraft_{name}_total", kind="counter", help=text, samples=samples)


def _gauges(newest: Mapping[str, BatchMetrics]) -> Iterator[Metric]:
    batches = [newest[name] for name in sorted(newest)]

    def of(name: str, help: str, value: Callable[[BatchMetrics], float | None]) -> Metric:
        found = [(b.topology, value(b)) for b in batches]
        samples = tuple(Sample(labels={"topology": t}, value=v) for t, v in found if v is not None)
        return Metric(name=f"updraft_{name}", kind="gauge", help=help, samples=samples)

    yield of("last_batch", "Id of the last committed batch.", lambda b: b.batch_id)
    yield of("last_batch_seconds", "Length of the last batch.", lambda b: b.seconds)
    yield of("backlog_rows", "Rows waiting at the sources.", lambda b: b.backlog_rows)
    yield of("latency_seconds", "Age of the oldest row of the last batch at commit.", lambda b: b.latency_s)
    yield of("plan_version", "Version of the plan in effect.", lambda b: b.plan_version)
    yield of("workers", "Live workers.", lambda b: len(b.workers))
    yield Metric(
        name="updraft_parallelism",
        kind="gauge",
        help="Instances of an operator.",
        samples=tuple(
            Sample(labels={"topology": b.topology, "operator": name}, value=count)
            for b in batches
            for name, count in sorted(_parallelism(b).items())
        ),
    )
    for name, text in (
        ("instance_cpu_seconds", "CPU time of an instance in the last batch."),
        ("instance_state_bytes", "Size of an instance's state."),
    ):
        yield Metric(
            name=f"updraft_{name}",
            kind="gauge",
            help=text,
            samples=tuple(
                Sample(
                    labels={
                        "topology": b.topology,
                        "operator": w.operator,
                        "instance": str(w.instance),
                        "worker": w.worker,
                    },
                    value=w.cpu_s if name == "instance_cpu_seconds" else w.state_bytes,
                )
                for b in batches
                for w in b.instances
            ),
        )


def _parallelism(batch: BatchMetrics) -> dict[str, int]:
    found: dict[str, set[int]] = {}
    for work in batch.instances:
        found.setdefault(work.operator, set()).add(work.instance)
    return {operator: len(instances) for operator, instances in found.items()}


def _page(metric: Metric) -> str:
    lines = [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
    for sample in metric.samples:
        labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in sample.labels.items())
        lines.append(f"{metric.name}{{{labels}}} {sample.value!r}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Endpoint:
    """Serves `page()` at /metrics from a thread of its own, between `start` and `stop`."""

    def __init__(self, page: Callable[[], str], *, host: str = "127.0.0.1", port: int = 0) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.split("?")[0] == "/metrics"
                body = page().encode() if found else b"metrics are at /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Scrapes are no news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="updraft-metrics", daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
