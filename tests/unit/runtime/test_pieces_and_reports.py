"""What travels between stages survives packing; what a partition tells the driver survives JSON."""

from __future__ import annotations

import os

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from updraft.runtime.pieces import Kind, Piece, pack, unpack
from updraft.runtime.reports import Failure, OperatorWork, Report
from updraft.runtime.storage import Storage, unpack_segment
from updraft.state import Sealed, SegmentRef
from updraft.state.store import LocalStore

pieces = st.builds(
    Piece,
    kind=st.sampled_from(Kind),
    level=st.integers(0, 255),
    slot=st.integers(0, 2**32 - 1),
    edge=st.integers(0, 2**16 - 1),
    sender=st.integers(0, 2**32 - 1),
    instance=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=40),
)


def plain(piece: Piece) -> tuple[object, ...]:
    return (
        piece.kind,
        piece.level,
        piece.slot,
        piece.edge,
        piece.sender,
        piece.instance,
        bytes(piece.payload),
    )


@given(st.lists(pieces, max_size=6))
def test_bundles_keep_pieces_and_align_payloads(sent: list[Piece]) -> None:
    bundle = pack(sent)
    found = list(unpack(bundle))
    assert [plain(piece) for piece in found] == [plain(piece) for piece in sent]
    start = pa.py_buffer(bundle).address
    assert all(
        (piece.payload.address - start) % 8 == 0 for piece in found if isinstance(piece.payload, pa.Buffer)
    )


def test_a_report_survives_json() -> None:
    ref = SegmentRef(
        name="op/state-0-1-1", batch=1, rows=3, bytes=99, checksum="ab", tasks=(0, 1, 5), min_timer_us=-7
    )
    report = Report(
        level=2,
        slot=1,
        operator="op",
        instance=1,
        worker="7",
        pid=os.getpid(),
        started_ms=1.5,
        wall_s=0.25,
        bytes_in=10,
        work={"op": OperatorWork(rows_in=3, rows_out=2, wall_s=0.1, cpu_s=0.2)},
        bytes_to={"next": {0: 5, 3: 7}},
        rows_to_sinks={0: 2},
        sealed={"state": Sealed(added=ref, replaced=("x",), rows_written=3, live_rows=9, state_bytes=99)},
        tasks=(0, 1, 5),
        failure=Failure(operator="op", tasks="0..1", reason="ä", trace="t", state=True),
    )
    assert Report.from_json(report.to_json()) == report
    report.failure = None
    assert Report.from_json(report.to_json()) == report


def test_a_segment_travels_where_only_the_driver_writes(tmp_path: os.PathLike[str]) -> None:
    storage = Storage(run_id="r", shared=None, own_directory=True, local_root=str(tmp_path))
    store = storage.store()
    name = "op/state-0-1-1"
    store.write(name, pa.record_batch({"__hash": pa.array([1], pa.uint64())}))
    payload = storage.publish(store, name)
    assert payload is not None
    assert unpack_segment(payload) == (name, store.path(name).read_bytes())
    storage.retire(store, [name, "op/never-there"])
    assert not store.path(name).exists()


def test_a_worker_links_what_it_sealed_into_a_shared_checkpoint(tmp_path: os.PathLike[str]) -> None:
    root = os.fspath(tmp_path)
    storage = Storage(run_id="r", shared=f"{root}/shared", own_directory=True, local_root=f"{root}/own")
    store, name = storage.store(), "op/state-0-1-1"
    store.write(name, pa.record_batch({"__hash": pa.array([1], pa.uint64())}))
    for _ in range(2):  # a retried task publishes again
        assert storage.publish(store, name) is None
    shared = LocalStore(store.fallback or store.root)
    assert shared.path(name).read_bytes() == store.path(name).read_bytes()
    storage.retire(store, [name])
    assert shared.path(name).exists()
