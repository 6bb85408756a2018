"""Manifests, commits and identity of a checkpoint directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from updraft.errors import CheckpointError, CheckpointInUse, StateError
from updraft.state import KeyedTable, LocalStore, Sealed, SegmentRef, TableSpec, inspect
from updraft.state.checkpoint import Checkpoint, open_checkpoint, read_checkpoint, segment_path
from updraft.state.files import LocalFiles
from updraft.state.identity import Identity, operator_identity
from updraft.state.manifest import Manifest, advance, levels_for, referenced, start, without
from updraft.state.objects import OBJECT_SPEC, ObjectState

SPEC = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]))
EMPTY = start("t", {("op", "state"): (4, SPEC)})


def identity(topology: str = "t", **operators: tuple[int, pa.DataType]) -> Identity:
    return Identity(
        topology=topology,
        id="",
        operators={
            name: operator_identity(
                tasks,
                {"state": TableSpec(key=pa.schema([("k", kind)]), values=SPEC.values)},
                pa.schema([("k", kind)]),
            )
            for name, (tasks, kind) in (operators or {"op": (4, pa.int64())}).items()
        },
    )


def ref(name: str, batch: int, tasks: tuple[int, ...] = (0, 1, 2, 3)) -> SegmentRef:
    return SegmentRef(name=name, batch=batch, rows=1, bytes=10, checksum="00", tasks=tasks)


def sealed(added: SegmentRef, *replaced: str) -> Sealed:
    return Sealed(added=added, replaced=replaced, rows_written=1, live_rows=1, state_bytes=10)


def levels(manifest: Manifest, *tasks: int) -> list[tuple[str, set[int] | None]]:
    return [
        (level.ref.name, None if level.live is None else set(level.live))
        for level in levels_for(manifest, "op", "state", tasks)
    ]


def committed(checkpoint: Checkpoint, work: Path, batches: int) -> Manifest:
    manifest = checkpoint.newest_commit() or EMPTY
    store = LocalStore(work)
    for batch in range(manifest.batch + 1, manifest.batch + 1 + batches):
        table = KeyedTable(
            spec=SPEC,
            tasks=4,
            mine=(0, 1, 2, 3),
            levels=levels_for(manifest, "op", "state", range(4)),
            store=store,
        )
        table.put(pa.table({"k": range(100 if batch == 0 else 3), "n": [batch] * (100 if batch == 0 else 3)}))
        result = table.seal(f"op/state-i0-b{batch}-a0", batch)
        assert result is not None
        checkpoint.publish(store.path(result.added.name), result.added.name)
        manifest = advance(manifest, batch, 0, {("op", "state"): [(range(4), result)]})
        checkpoint.write_commit(manifest)
    return manifest


def test_chains_follow_regrouped_tasks() -> None:
    one = advance(
        EMPTY,
        0,
        0,
        {("op", "state"): [((0, 1), sealed(ref("a0", 0, (0, 1)))), ((2, 3), sealed(ref("b0", 0, (2, 3))))]},
    )
    assert levels(one, 0, 1) == [("a0", None)]
    assert levels(one, 0, 2) == [("a0", {0}), ("b0", {2})]
    two = advance(
        one, 1, 0, {("op", "state"): [((0, 2), sealed(ref("c1", 1, (0, 2)), "a0", "b0")), ((1, 3), None)]}
    )
    assert levels(two, 0, 1) == [("a0", {1}), ("c1", {0})]
    assert levels(two, 0, 2) == [("c1", None)]
    three = advance(two, 2, 0, {("op", "state"): [((0, 1, 2, 3), sealed(ref("d2", 2)))]})
    assert levels(three, 0, 1, 2, 3) == [("a0", {1}), ("b0", {3}), ("c1", {0, 2}), ("d2", None)]
    four = advance(
        three, 3, 0, {("op", "state"): [((0, 1, 2, 3), sealed(ref("e3", 3), "a0", "b0", "c1", "d2"))]}
    )
    assert referenced(four) == {"e3"}


def test_files_that_hold_nothing_of_a_task_leave_its_chain() -> None:
    one = advance(EMPTY, 0, 0, {("op", "state"): [((0, 1, 2, 3), sealed(ref("a0", 0, (0,))))]})
    assert levels(one, 1) == []
    two = advance(one, 1, 0, {("op", "state"): [((0,), sealed(ref("b1", 1, (0,)), "a0")), ((1, 2, 3), None)]})
    three = advance(two, 2, 0, {("op", "state"): [((1, 2, 3), sealed(ref("c2", 2, (2,))))]})
    assert referenced(three) == {"b1", "c2"}


def test_manifests_round_trip_and_newer_ones_are_refused() -> None:
    manifest = advance(
        EMPTY, 5, 2, {("op", "state"): [((0, 1, 3), sealed(replace(ref("a", 5, (0, 3)), min_timer_us=7)))]}
    )
    document = json.loads(json.dumps(manifest.to_json()))
    assert Manifest.from_json(document) == manifest
    with pytest.raises(StateError, match=r"format 9, newer than format 1.*upgrade"):
        Manifest.from_json({**document, "format": 9})
    with pytest.raises(StateError, match="no format"):
        Manifest.from_json({})


def test_impossible_advances_are_refused() -> None:
    part = sealed(ref("a", 0))
    for batch, table, parts in (
        (-1, "state", []),
        (0, "other", []),
        (0, "state", [((0, 1), part), ((1,), None)]),
        (0, "state", [((4,), part)]),
        (1, "state", [((0,), part)]),
    ):
        with pytest.raises(StateError):
            advance(EMPTY, batch, 0, {("op", table): parts})
    with pytest.raises(StateError, match="no table 'x'"):
        levels_for(EMPTY, "op", "x", (0,))


def test_a_run_continues_from_its_commits(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(LocalFiles(tmp_path / "c"), identity())
    assert checkpoint.newest_commit() is None
    manifest = committed(checkpoint, tmp_path / "w", 3)
    checkpoint.close()
    again = open_checkpoint(LocalFiles(tmp_path / "c"), identity())
    assert again.identity.id == checkpoint.identity.id != ""
    assert again.newest_commit() == manifest
    assert again.commits() == [0, 1, 2]
    again.close()


def test_a_half_written_commit_is_ignored(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(LocalFiles(tmp_path / "c"), identity())
    manifest = committed(checkpoint, tmp_path / "w", 1)
    (tmp_path / "c/commits/.1.json.99.tmp").write_bytes(b'{"check')
    assert checkpoint.newest_commit() == manifest
    checkpoint.close()


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", None])
def test_a_damaged_commit_is_an_error_unless_going_back_is_accepted(
    tmp_path: Path, damage: bytes | None
) -> None:
    checkpoint = open_checkpoint(LocalFiles(tmp_path / "c"), identity())
    first = committed(checkpoint, tmp_path / "w", 1)
    committed(checkpoint, tmp_path / "w", 1)
    path = tmp_path / "c/commits/1.json"
    path.write_bytes(path.read_bytes().replace(b'"rows": 1', b'"rows": 7') if damage is None else damage)
    with pytest.raises(CheckpointError, match=r"commits/1\.json"):
        checkpoint.newest_commit()
    assert checkpoint.newest_commit(fall_back=True) == first
    (tmp_path / "c/commits/0.json").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"commits/0\.json"):
        checkpoint.newest_commit(fall_back=True)
    with pytest.raises(CheckpointError, match="no commit of batch 8"):
        checkpoint.read_commit(8)
    checkpoint.close()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (identity("other"), ["belongs to topology 't', not 'other'", "rename the topology back"]),
        (identity(op=(8, pa.int64())), ["'op' was re-partitioned", "tasks=8", "set tasks=4"]),
        (identity(op=(4, pa.string())), ["key of operator 'op' changed", "(k int64) to (k string)"]),
        (
            identity(new=(4, pa.int64())),
            ["'new' was added", "'op' was removed", "allow_dropped=('op',)", "use a new checkpoint"],
        ),
    ],
)
def test_a_changed_program_is_told_what_to_do(tmp_path: Path, program: Identity, expected: list[str]) -> None:
    open_checkpoint(LocalFiles(tmp_path), identity()).close()
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(LocalFiles(tmp_path), program)
    for part in expected:
        assert part in str(error.value)
    open_checkpoint(LocalFiles(tmp_path), identity()).close()


def test_changed_values_are_refused(tmp_path: Path) -> None:
    open_checkpoint(LocalFiles(tmp_path), identity()).close()
    spec = replace(SPEC, values=pa.schema([("n", pa.float64())]))
    changed = Identity(topology="t", id="", operators={"op": operator_identity(4, {"state": spec}, spec.key)})
    with pytest.raises(CheckpointError, match=r"state of operator 'op' changed.*n int64.*n double"):
        open_checkpoint(LocalFiles(tmp_path), changed)


def test_state_can_be_dropped_on_purpose(tmp_path: Path) -> None:
    both = identity(op=(4, pa.int64()), gone=(2, pa.string()))
    open_checkpoint(LocalFiles(tmp_path), both).close()
    open_checkpoint(LocalFiles(tmp_path), identity(), allow_dropped=("gone",)).close()
    assert set(read_checkpoint(LocalFiles(tmp_path)).identity.operators) == {"op"}
    assert without(EMPTY, ["op"]).tables == {}


def test_foreign_and_newer_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/precious.txt").write_text("x")
    with pytest.raises(CheckpointError, match="neither empty nor an Updraft checkpoint"):
        open_checkpoint(LocalFiles(tmp_path / "a"), identity())
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["precious.txt"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b/updraft.json").write_text('{"format": 7}')
    with pytest.raises(CheckpointError, match=r"format 7, newer than format 1.*upgrade"):
        open_checkpoint(LocalFiles(tmp_path / "b"), identity())
    (tmp_path / "b/updraft.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"updraft\.json is not readable"):
        open_checkpoint(LocalFiles(tmp_path / "b"), identity())
    with pytest.raises(CheckpointError, match="is not an Updraft checkpoint"):
        read_checkpoint(LocalFiles(tmp_path / "nowhere"))


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"cannot write .*file/c.*choose a checkpoint directory"):
        LocalFiles(tmp_path / "file/c").write("commits/0.json", b"x")
    with pytest.raises(CheckpointError, match="choose a checkpoint directory"):
        LocalFiles(tmp_path / "file/c").lock("lock")


def test_a_full_disk_is_named() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    from updraft.state.files import _unwritable

    with (
        pytest.raises(OSError, match="No space") as caught,
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert "no space left to write" in str(_unwritable(Path("c"), caught.value))


HOLDER = """
import sys
from pathlib import Path
from updraft.state.files import LocalFiles
LocalFiles(Path(sys.argv[1])).lock("lock")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_run_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointInUse, match=f"in use by process {holder.pid}"):
            open_checkpoint(files, identity())
    finally:
        holder.kill()
        holder.communicate()
    checkpoint = open_checkpoint(files, identity())
    with pytest.raises(CheckpointInUse, match=f"process {os.getpid()}"):
        open_checkpoint(files, identity())
    checkpoint.close()
    checkpoint.close()


def test_pruning_keeps_what_kept_commits_need(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(LocalFiles(tmp_path / "c"), identity())
    manifest = committed(checkpoint, tmp_path / "w", 6)
    (tmp_path / "c/segments/op/orphan.arrow").write_bytes(b"x")
    kept = {name for batch in (4, 5) for name in referenced(checkpoint.read_commit(batch))}
    pruned = checkpoint.prune(keep=2)
    assert pruned.commits == (0, 1, 2, 3)
    assert "op/orphan" in pruned.segments
    assert kept.isdisjoint(pruned.segments)
    assert checkpoint.commits() == [4, 5]
    left = {f"op/{path.stem}" for path in (tmp_path / "c/segments/op").iterdir()}
    assert left == kept
    assert checkpoint.newest_commit() == manifest
    assert inspect.scan(tmp_path / "c", "op", batch=4).num_rows == 100
    with pytest.raises(CheckpointError, match="cannot keep 0"):
        checkpoint.prune(keep=0)
    checkpoint.close()


def test_publishing_links_and_falls_back_to_copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "w.arrow"
    source.write_bytes(b"data")
    files = LocalFiles(tmp_path / "c")
    files.publish(source, segment_path("op/a"))
    files.publish(source, segment_path("op/a"))
    assert (tmp_path / "c/segments/op/a.arrow").samefile(source)

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    files.publish(source, segment_path("op/b"))
    assert (tmp_path / "c/segments/op/b.arrow").read_bytes() == b"data"
    assert not (tmp_path / "c/segments/op/b.arrow").samefile(source)
    files.fetch(segment_path("op/b"), tmp_path / "x/b.arrow")
    assert (tmp_path / "x/b.arrow").read_bytes() == b"data"
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(".tmp")]
    with pytest.raises(FileNotFoundError):
        files.publish(tmp_path / "none", segment_path("op/c"))


def test_a_checkpoint_can_be_inspected(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(LocalFiles(tmp_path / "c"), identity())
    committed(checkpoint, tmp_path / "w", 3)
    checkpoint.close()
    shown = inspect.summary(tmp_path / "c")
    assert (shown.topology, shown.commits, shown.batch) == ("t", (0, 1, 2), 2)
    table = shown.tables[0]
    assert (table.operator, table.table, table.tasks, table.tasks_with_rows) == ("op", "state", 4, 4)
    assert (table.rows, table.versions) == (103, (0, 2))
    assert json.loads(json.dumps(shown.to_json()))["tables"][0]["bytes"] == table.bytes > 0
    assert inspect.lookup(tmp_path / "c", "op", ["2"]) == {"k": 2, "n": 2}
    assert inspect.lookup(tmp_path / "c", "op", {"k": 2}, batch=1) == {"k": 2, "n": 1}
    assert inspect.lookup(tmp_path / "c", "op", [555]) is None
    scanned = inspect.scan(tmp_path / "c", "op")
    assert sorted(scanned["k"].to_pylist()) == list(range(100))
    assert inspect.scan(tmp_path / "c", "op", tasks=[0]).num_rows < 100
    for wrong in (["a"], [1, 2], {"x": 1}):
        with pytest.raises(StateError, match="key"):
            inspect.lookup(tmp_path / "c", "op", wrong)
    with pytest.raises(StateError, match="it has op/state"):
        inspect.scan(tmp_path / "c", "nobody")


def test_object_state_can_be_inspected(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(LocalFiles(tmp_path / "c"), Identity(topology="t", id="", operators={}))
    with pytest.raises(StateError, match="no commit yet"):
        inspect.summary(tmp_path / "c")
    manifest = start("t", {("op", "object"): (2, OBJECT_SPEC)})
    store = LocalStore(tmp_path / "c/segments")
    state = ObjectState(tasks=2, mine=(0, 1), levels=(), store=store)
    state.set(1, b"x")
    manifest = advance(manifest, 0, 0, {("op", "object"): [((0, 1), state.seal("op/object-0", 0))]})
    checkpoint.write_commit(manifest)
    checkpoint.close()
    assert inspect.objects(tmp_path / "c", "op") == {1: b"x"}
    assert inspect.scan(tmp_path / "c", "op", "object")["task"].to_pylist() == [1]
    with pytest.raises(StateError, match="no object state"):
        inspect.objects(tmp_path / "c", "other")
