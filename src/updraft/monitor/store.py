"""The metrics store: batches in SQLite (WAL), bounded by retention, readable by others while it is written.

Metrics are not worth stopping a run for. A file that is locked, damaged or of a newer version is left alone: the store goes
on in memory, and says so once. Writes happen one transaction per batch, without waiting for the disk (synchronous=OFF):
a power cut may cost the file, a killed process costs nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from updraft.errors import UpdraftError
from updraft.monitor.model import BatchMetrics
from updraft.monitor.rows import details, read
from updraft.monitor.schema import TABLES, VERSION

PRUNE_EVERY = 100  # batches
WAIT_FOR_LOCK_S = 0.5


class MetricsUnreadable(UpdraftError):
    """A metrics file that cannot be read; the message says why."""


class MetricsStore:
    """Used by one thread at a time. `say` is called with one sentence when history has to be given up."""

    def __init__(
        self,
        path: Path | None,
        *,
        say: Callable[[str], None],
        keep_s: float = 7 * 24 * 3600.0,
        keep_batches: int = 200_000,
    ) -> None:
        self._say = say
        self._keep_s = keep_s
        self._keep_batches = keep_batches
        self._since_prune = 0
        self._path = path
        self._db = self._open(path)

    @property
    def persistent(self) -> bool:
        """Whether history will survive this process."""
        return self._path is not None

    def add(self, batch: BatchMetrics) -> None:
        """Store one batch; one that was stored before is replaced (a repeated batch is the same batch)."""
        try:
            self._write(batch)
        except sqlite3.Error as error:
            if self._path is None:
                raise
            self._give_up(f"{type(error).__name__}: {error}")
            self._write(batch)

    def recent(
        self, topology: str, *, since_s: float | None = None, last: int = 1000
    ) -> tuple[BatchMetrics, ...]:
        """The newest batches of a topology, oldest first."""
        try:
            return read(self._db, topology, since_s, last)
        except sqlite3.Error as error:
            if self._path is None:
                raise
            self._give_up(f"{type(error).__name__}: {error}")
            return ()

    def close(self) -> None:
        self._db.close()

    def _open(self, path: Path | None) -> sqlite3.Connection:
        if path is None:
            return _fresh(":memory:")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return _fresh(str(path))
        except (sqlite3.Error, OSError, MetricsUnreadable) as error:
            reason = (
                str(error) if isinstance(error, MetricsUnreadable) else f"{type(error).__name__}: {error}"
            )
            self._path = None
            self._tell(path, reason)
            return _fresh(":memory:")

    def _give_up(self, reason: str) -> None:
        path, self._path = self._path, None
        self._db.close()
        self._db = _fresh(":memory:")
        self._tell(path, reason)

    def _tell(self, path: Path | None, reason: str) -> None:
        self._say(
            f"metrics file {path} cannot be used ({reason}); going on without history. Move it away, or end the process "
            "that holds it, to keep history again"
        )

    def _write(self, batch: BatchMetrics) -> None:
        with self._db:
            self._db.execute(
                "DELETE FROM batches WHERE topology = ? AND batch = ?", (batch.topology, batch.batch_id)
            )
            row = self._db.execute(
                "INSERT INTO batches (topology, batch, started_s, ended_s, rows_in, rows_out, backlog_rows, latency_s, "
                "plan_version, change_delay_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(
                        batch.topology,
                        batch.batch_id,
                        batch.started_s,
                        batch.ended_s,
                        batch.rows_in,
                        batch.rows_out,
                    ),
                    *(batch.backlog_rows, batch.latency_s, batch.plan_version, batch.change_delay_s),
                ),
            ).lastrowid
            for table, rows in details(batch):
                if rows:
                    marks = ", ".join("?" * (len(rows[0]) + 1))
                    self._db.executemany(
                        f"INSERT INTO {table} VALUES ({marks})", [(row, *values) for values in rows]
                    )
            self._since_prune += 1
            if self._since_prune >= PRUNE_EVERY:
                self._since_prune = 0
                self._prune(batch.ended_s)

    def _prune(self, now_s: float) -> None:
        self._db.execute("DELETE FROM batches WHERE ended_s < ?", (now_s - self._keep_s,))
        self._db.execute(
            "DELETE FROM batches WHERE id <= (SELECT max(id) FROM batches) - ?", (self._keep_batches,)
        )


def read_metrics(
    path: Path, topology: str, *, since_s: float | None = None, last: int = 1000
) -> tuple[BatchMetrics, ...]:
    """What a store has written so far, from another process, without disturbing it."""
    if not path.exists():
        raise MetricsUnreadable(f"there is no metrics file {path}")
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=WAIT_FOR_LOCK_S)
        ) as db:
            _check_version(db)
            return read(db, topology, since_s, last)
    except sqlite3.Error as error:
        raise MetricsUnreadable(f"metrics file {path} cannot be read: {error}") from error


def _fresh(target: str) -> sqlite3.Connection:
    # The loop that writes is not the thread that opened it; `MetricsStore` is used by one at a time.
    db = sqlite3.connect(target, timeout=WAIT_FOR_LOCK_S, check_same_thread=False)
    try:
        _check_version(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA foreign_keys = ON")
        db.executescript(TABLES)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.commit()
    except BaseException:
        db.close()
        raise
    return db


def _check_version(db: sqlite3.Connection) -> None:
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > VERSION:
        raise MetricsUnreadable(f"it has version {found}, newer than {VERSION} of this Updraft")
