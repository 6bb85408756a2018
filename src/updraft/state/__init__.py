"""Keyed and object state: hashing, immutable segments, tables, manifests and checkpoints (no pyspark)."""

from updraft.state.checkpoint import Checkpoint, open_checkpoint, read_checkpoint
from updraft.state.compaction import levels_to_merge
from updraft.state.files import Files, LocalFiles
from updraft.state.identity import Identity, OperatorIdentity, operator_identity
from updraft.state.keys import hash_keys, is_key_type, task_of, task_start
from updraft.state.manifest import Manifest, TableChains, advance, levels_for, referenced, start, without
from updraft.state.objects import OBJECT_SPEC, OBJECT_TABLE, ObjectState
from updraft.state.run import NO_TIMER
from updraft.state.spec import Level, Sealed, SegmentRef, TableSpec, segment_name
from updraft.state.store import LocalStore, SegmentStore
from updraft.state.table import Found, KeyedTable, Members

__all__ = [
    "NO_TIMER",
    "OBJECT_SPEC",
    "OBJECT_TABLE",
    "Checkpoint",
    "Files",
    "Found",
    "Identity",
    "KeyedTable",
    "Level",
    "LocalFiles",
    "LocalStore",
    "Manifest",
    "Members",
    "ObjectState",
    "OperatorIdentity",
    "Sealed",
    "SegmentRef",
    "SegmentStore",
    "TableChains",
    "TableSpec",
    "advance",
    "hash_keys",
    "is_key_type",
    "levels_for",
    "levels_to_merge",
    "open_checkpoint",
    "operator_identity",
    "read_checkpoint",
    "referenced",
    "segment_name",
    "start",
    "task_of",
    "task_start",
    "without",
]
