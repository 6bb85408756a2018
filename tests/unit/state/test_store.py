"""Segment files: verified, fetched from the fallback, cached, and refused with a clear message."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from updraft.errors import SegmentCorrupt, SegmentMissing, StateError
from updraft.state import KeyedTable, Level, LocalStore, SegmentRef, TableSpec
from updraft.state.segment import FORMAT_KEY
from updraft.state.store import SegmentCache

SPEC = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]))


def seal(root: Path, rows: int = 100) -> SegmentRef:
    table = KeyedTable(
        spec=SPEC, tasks=2, mine=(0, 1), levels=(), store=LocalStore(root), operator="op", table="state"
    )
    table.put(pa.table({"k": range(rows), "n": range(rows)}))
    sealed = table.seal("op/state-i0-b4-a0", 4)
    assert sealed is not None
    return sealed.added


def count(root: Path, ref: SegmentRef, fallback: Path | None = None) -> int:
    store = LocalStore(root, fallback, cache=SegmentCache())
    table = KeyedTable(spec=SPEC, tasks=2, mine=(0, 1), levels=(Level(ref=ref),), store=store)
    return table.scan().num_rows


def file(root: Path) -> Path:
    return root / "op" / "state-i0-b4-a0.arrow"


def test_a_segment_says_what_it_is(tmp_path: Path) -> None:
    seal(tmp_path)
    with pa.ipc.open_file(file(tmp_path)) as reader:
        metadata = reader.schema.metadata
    assert (metadata[b"operator"], metadata[b"table"], metadata[b"batch"]) == (b"op", b"state", b"4")
    assert [path.name for path in (tmp_path / "op").iterdir()] == ["state-i0-b4-a0.arrow"]


def test_reading_is_zero_copy(tmp_path: Path) -> None:
    ref = seal(tmp_path)
    before = pa.total_allocated_bytes()
    segment = LocalStore(tmp_path, cache=SegmentCache()).open(ref)
    run = segment.run(SPEC, SPEC.fingerprint())
    assert pa.total_allocated_bytes() - before < 1000
    assert not run.hashes.flags.owndata


@pytest.mark.parametrize("position", [0, 0.3, 0.6, 0.999])
def test_a_flipped_bit_is_found(tmp_path: Path, position: float) -> None:
    ref = seal(tmp_path)
    data = bytearray(file(tmp_path).read_bytes())
    data[int(len(data) * position)] ^= 4
    file(tmp_path).write_bytes(data)
    with pytest.raises(
        SegmentCorrupt, match=r"op/state-i0-b4-a0.*state-i0-b4-a0\.arrow has checksum.*Restore"
    ):
        count(tmp_path, ref)


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_a_truncated_file_is_found(tmp_path: Path, size: int) -> None:
    ref = seal(tmp_path)
    os.truncate(file(tmp_path), size)
    with pytest.raises(SegmentCorrupt, match=f"has {size} bytes instead of {ref.bytes}"):
        count(tmp_path, ref)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ref = seal(tmp_path)
    file(tmp_path).unlink()
    with pytest.raises(SegmentMissing, match=r"op/state-i0-b4-a0.*batch 4.*nor under .*Restore"):
        count(tmp_path, ref, tmp_path / "checkpoint")


def test_missing_and_damaged_files_come_from_the_fallback(tmp_path: Path) -> None:
    ref = seal(tmp_path / "checkpoint")
    assert count(tmp_path / "local", ref, tmp_path / "checkpoint") == 100
    assert file(tmp_path / "local").exists()
    good = file(tmp_path / "checkpoint").read_bytes()
    file(tmp_path / "local").unlink()
    file(tmp_path / "local").write_bytes(b"x" * len(good))
    assert count(tmp_path / "local", ref, tmp_path / "checkpoint") == 100
    assert file(tmp_path / "local").read_bytes() == good


def test_only_a_replaced_damaged_file_counts_as_repaired(tmp_path: Path) -> None:
    ref = seal(tmp_path / "checkpoint")
    store = LocalStore(tmp_path / "local", tmp_path / "checkpoint", cache=SegmentCache())
    store.open(ref)
    assert store.repaired == []  # it was only missing, as everything is after a start
    file(tmp_path / "local").unlink()
    file(tmp_path / "local").write_bytes(b"x" * ref.bytes)
    again = LocalStore(tmp_path / "local", tmp_path / "checkpoint", cache=SegmentCache())
    again.open(ref)
    again.open(ref)
    assert again.repaired == [ref.name]
    for root in ("local", "checkpoint"):
        file(tmp_path / root).unlink()
        file(tmp_path / root).write_bytes(b"x" * ref.bytes)
    last = LocalStore(tmp_path / "local", tmp_path / "checkpoint", cache=SegmentCache())
    with pytest.raises(
        SegmentCorrupt, match=r"batch 4 is damaged.*With it 100 rows of task 0\.\.1.* are lost"
    ):
        last.open(ref)
    assert last.repaired == []


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    ref = seal(tmp_path)
    with pa.ipc.open_file(file(tmp_path)) as reader:
        batch = reader.get_batch(0)
    batch = batch.replace_schema_metadata({**batch.schema.metadata, FORMAT_KEY.encode(): b"99"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    file(tmp_path).write_bytes(data)
    newer = replace(ref, bytes=len(data), checksum=xxhash.xxh3_64_hexdigest(data))
    with pytest.raises(StateError, match=r"has format 99, newer than format 1.*upgrade Updraft"):
        count(tmp_path, newer)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\\b"])
def test_names_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(StateError, match="not allowed"):
        LocalStore(tmp_path).path(name)


def test_the_cache_is_bounded_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    ref = seal(tmp_path)
    store = LocalStore(tmp_path, cache=SegmentCache())
    segment = store.open(ref)
    assert store.open(ref) is segment
    cache = SegmentCache(limit=2)
    for name in "abc":
        cache.add((name, "x"), segment)
        cache.get(("a", "x"))
    assert cache.get(("a", "x")) is segment
    assert cache.get(("b", "x")) is None
    assert cache.get(("c", "x")) is segment
    small = SegmentCache(limit_bytes=1)
    small.add(("a", "x"), segment)
    small.add(("b", "x"), segment)
    assert small.get(("a", "x")) is None


def test_sealing_with_fsync(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": [1]})
    assert LocalStore(tmp_path, fsync=True).write("op/x", batch)[0] > 0


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateError, match=r"cannot write segment 'op/x' to .*free some space"):
        LocalStore(tmp_path / "file").write("op/x", pa.record_batch({"a": [1]}))


def test_the_process_that_wrote_a_segment_verifies_it_too(tmp_path: Path) -> None:
    cache = SegmentCache()
    store = LocalStore(tmp_path, cache=cache)
    table = KeyedTable(spec=SPEC, tasks=2, mine=(0, 1), levels=(), store=store)
    table.put(pa.table({"k": range(100), "n": range(100)}))
    sealed = table.seal("op/state-i0-b4-a0", 4)
    assert sealed is not None
    content = bytearray(file(tmp_path).read_bytes())
    content[len(content) // 2] ^= 1
    file(tmp_path).write_bytes(content)
    cache.clear()
    with pytest.raises(SegmentCorrupt, match="op/state-i0-b4-a0"):
        store.open(sealed.added)
