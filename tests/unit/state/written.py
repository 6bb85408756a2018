"""A checkpoint as a run leaves it: a large first batch, small ones after it, and Spark's log."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from updraft.state import KeyedTable, LocalStore, TableSpec
from updraft.state.checkpoint import SEGMENTS, open_checkpoint, read_checkpoint
from updraft.state.files import LocalFiles
from updraft.state.identity import Identity, operator_identity
from updraft.state.manifest import advance, levels_for, start

TASKS = (0, 1, 2, 3)
SPEC = TableSpec(key=pa.schema({"word": pa.string()}), values=pa.schema({"count": pa.int64()}))


def write_checkpoint(root: Path, batches: int = 5) -> Path:
    """Batch 0 has 1,000 words, each later one counts two of them once more."""
    operators = {"count": operator_identity(len(TASKS), {"state": SPEC}, SPEC.key)}
    opened = open_checkpoint(LocalFiles(root), Identity(topology="wordcount", id="", operators=operators))
    manifest = start("wordcount", {("count", "state"): (len(TASKS), SPEC)})
    for batch in range(batches):
        table = KeyedTable(
            spec=SPEC,
            tasks=len(TASKS),
            mine=TASKS,
            levels=levels_for(manifest, "count", "state", TASKS),
            store=LocalStore(root / SEGMENTS),
            operator="count",
            table="state",
        )
        words = [f"w{n}" for n in range(1000 if batch == 0 else 2)]
        table.put(pa.table({"word": words, "count": [batch + 1] * len(words)}))
        sealed = table.seal(f"count/state-{batch}", batch)
        manifest = advance(manifest, batch, 0, {("count", "state"): [(TASKS, sealed)]})
        plan_batch(root, batch)
        opened.write_commit(manifest)
        (root / "spark/commits").mkdir(exist_ok=True)
        (root / f"spark/commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (root / "sources.json").write_text("{}")
    opened.close()
    return root


def plan_batch(root: Path, batch: int) -> None:
    """What Spark writes before it hands a batch out."""
    (root / "spark/offsets").mkdir(parents=True, exist_ok=True)
    times = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1000 * batch})
    (root / f"spark/offsets/{batch}").write_text(f'v1\n{times}\n{{"logOffset":{batch}}}')
    (root / f"spark/offsets/.{batch}.crc").write_bytes(b"crc")


def flip(path: Path, at: float = 0.5) -> None:
    """One bit of a file changes, in a file of its own as a bad copy would have it."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    path.unlink()
    path.write_bytes(bytes(data))


def segments_of(root: Path, batch: int) -> set[str]:
    """Names of the segments a commit needs."""
    manifest = read_checkpoint(LocalFiles(root)).read_commit(batch)
    return set(manifest.tables["count", "state"].refs)
