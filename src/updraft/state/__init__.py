"""Keyed and object state: hashing, immutable segments, tables, manifests and checkpoints (no pyspark)."""

from updraft.state.compaction import levels_to_merge
from updraft.state.keys import hash_keys, is_key_type, task_of, task_start
from updraft.state.run import NO_TIMER
from updraft.state.spec import Level, Sealed, SegmentRef, TableSpec, segment_name
from updraft.state.store import LocalStore, SegmentStore
from updraft.state.table import Found, KeyedTable

__all__ = [
    "NO_TIMER",
    "Found",
    "KeyedTable",
    "Level",
    "LocalStore",
    "Sealed",
    "SegmentRef",
    "SegmentStore",
    "TableSpec",
    "hash_keys",
    "is_key_type",
    "levels_to_merge",
    "segment_name",
    "task_of",
    "task_start",
]
