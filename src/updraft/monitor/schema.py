"""Tables of the metrics store. One row per batch, and per batch one per instance, source partition, worker and talking pair."""

from __future__ import annotations

VERSION = 1

TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY, topology TEXT NOT NULL, batch INTEGER NOT NULL, started_s REAL NOT NULL, ended_s REAL NOT NULL,
    rows_in INTEGER NOT NULL, rows_out INTEGER NOT NULL, backlog_rows INTEGER, latency_s REAL, plan_version INTEGER,
    change_delay_s REAL, UNIQUE (topology, batch)
);
CREATE INDEX IF NOT EXISTS batches_by_time ON batches (topology, ended_s);
CREATE TABLE IF NOT EXISTS instances (
    batch_row INTEGER NOT NULL REFERENCES batches (id) ON DELETE CASCADE, operator TEXT NOT NULL, instance INTEGER NOT NULL,
    worker TEXT NOT NULL, level INTEGER NOT NULL, slot INTEGER NOT NULL, rows_in INTEGER NOT NULL, rows_out INTEGER NOT NULL,
    bytes_in INTEGER NOT NULL, cpu_s REAL NOT NULL, wall_s REAL NOT NULL, queued_s REAL NOT NULL, tasks TEXT NOT NULL,
    state_rows INTEGER NOT NULL, state_bytes INTEGER NOT NULL, task_rows TEXT NOT NULL, hot_keys TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS instances_by_batch ON instances (batch_row);
CREATE TABLE IF NOT EXISTS sources (
    batch_row INTEGER NOT NULL REFERENCES batches (id) ON DELETE CASCADE, slot INTEGER NOT NULL, worker TEXT NOT NULL,
    rows INTEGER NOT NULL, cpu_s REAL NOT NULL, wall_s REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS sources_by_batch ON sources (batch_row);
CREATE TABLE IF NOT EXISTS workers (
    batch_row INTEGER NOT NULL REFERENCES batches (id) ON DELETE CASCADE, worker TEXT NOT NULL, node TEXT NOT NULL,
    cores INTEGER NOT NULL, cpu_s REAL, memory_bytes INTEGER, limit_cores REAL
);
CREATE INDEX IF NOT EXISTS workers_by_batch ON workers (batch_row);
CREATE TABLE IF NOT EXISTS traffic (
    batch_row INTEGER NOT NULL REFERENCES batches (id) ON DELETE CASCADE, producer TEXT NOT NULL, producer_instance INTEGER,
    consumer TEXT NOT NULL, consumer_instance INTEGER NOT NULL, bytes INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS traffic_by_batch ON traffic (batch_row);
"""
