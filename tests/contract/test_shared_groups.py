"""Groups that several processes of one executor use: whoever comes first makes them, one of them ends them all."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.contract.cgroup_tree import Tree
from tests.contract.test_enforcers import QUOTA_FILES, REAL, _import_path, burn, me, setting

from updraft.enforce import CgroupV1, CgroupV2, Kind, Place, choose_among, remove_groups
from updraft.enforce.files import Files, KernelFiles
from updraft.enforce.names import LONGEST, group_name, owner_of

OTHER = """
import os, sys, threading
from pathlib import Path
from tests.contract.test_enforcers import REAL, burn
from updraft.cluster.processes import ProcessId
from updraft.enforce import choose_among
from updraft.enforce.files import KernelFiles
owner = ProcessId(pid=int(sys.argv[1]), started=int(sys.argv[2]))
found = tuple(place for place in REAL if place.kind.value == "cgroup v1")
enforcer = choose_among(found, KernelFiles(), owner, print, shared=True).enforcer
enforcer.open("run1-count-0", 0.5)
enforcer.enter("run1-count-0", threading.get_native_id())
burn(0.2)
enforcer.empty("run1-count-0")
print(Path("/proc/thread-self/cgroup").read_text() == Path(f"/proc/{owner.pid}/cgroup").read_text())
"""


@pytest.fixture(params=["v1", "v1-tree", "v2-tree"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Files]:
    found = setting(request.param, tmp_path)
    assert found.place is not None
    assert found.files is not None
    return found.place, found.files


def enforcers(place: Place, files: Files) -> tuple[CgroupV1 | CgroupV2, CgroupV1 | CgroupV2]:
    version = CgroupV1 if place.kind is Kind.CGROUP_V1 else CgroupV2
    return version(place, files, me(), shared=True), version(place, files, me(), shared=True)


def test_the_second_one_finds_the_group_and_both_count_into_it(shared: tuple[Place, Files]) -> None:
    one, two = enforcers(*shared)
    one.open("run1-count-0", 0.8)
    two.open("run1-count-0", 0.5)
    assert quota(shared, "run1-count-0") == "50000"  # who comes last knows best
    for enforcer in (one, two):
        enforcer.enter("run1-count-0", threading.get_native_id())
        burn(0.1)
        enforcer.empty("run1-count-0")
    assert 0.19 <= one.usage("run1-count-0").cpu_s <= 0.35
    assert one.usage("run1-count-0").cpu_s == two.usage("run1-count-0").cpu_s
    assert remove_groups((shared[0],), shared[1], me(), "run1-")[1] == ()


def test_a_group_that_had_a_quota_loses_it_when_opened_without(shared: tuple[Place, Files]) -> None:
    one, two = enforcers(*shared)
    one.open("run1-count-0", 0.5)
    two.open("run1-count-0", None)
    assert quota(shared, "run1-count-0") in ("-1", "max")
    one.close("run1-count-0")


def test_emptying_sends_home_what_was_started_inside(shared: tuple[Place, Files]) -> None:
    one, _ = enforcers(*shared)
    before = Path("/proc/thread-self/cgroup").read_text()
    one.open("run1-count-0", None)
    end = threading.Event()
    child = threading.Thread(target=end.wait)
    one.enter("run1-count-0", threading.get_native_id())
    child.start()
    try:
        one.empty("run1-count-0")
        assert Path("/proc/thread-self/cgroup").read_text() == before
        assert Path(f"/proc/self/task/{child.native_id}/cgroup").read_text() == before
    finally:
        end.set()
        child.join()
        one.close("run1-count-0")


def test_one_run_ends_and_the_other_keeps_its_groups(shared: tuple[Place, Files]) -> None:
    one, two = enforcers(*shared)
    for name in ("run1-count-0", "run1-source-1", "run2-count-0"):
        one.open(name, 0.5)
    one.enter("run1-count-0", threading.get_native_id())  # a task that was abandoned, still inside
    removed, left = remove_groups((shared[0],), shared[1], me(), "run1-")
    assert (set(removed), left) == (
        {group_name(me(), "run1-count-0"), group_name(me(), "run1-source-1")},
        (),
    )
    two.open("run2-count-0", 0.5)
    assert two.usage("run2-count-0").cpu_s < 0.05
    two.close("run2-count-0")


def test_a_group_of_another_process_is_the_same_group() -> None:
    """The kernel's own, two real processes: usage adds up, the quota is the one set last, nothing is left."""
    places = tuple(place for place in REAL if place.kind is Kind.CGROUP_V1)
    warnings: list[str] = []
    mine = choose_among(places, KernelFiles(), me(), warnings.append, shared=True).enforcer
    if mine.kind is Kind.ACCOUNTING:
        pytest.skip(f"cgroup v1 is not writable here: {warnings}")
    mine.open("run1-count-0", 1.0)
    owner = me()
    other = subprocess.run(
        [sys.executable, "-c", OTHER, str(owner.pid), str(owner.started)],
        env=_import_path(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert other.stdout == "True\n", other.stderr
    assert mine.usage("run1-count-0").cpu_s >= 0.19
    assert quota((places[0], KernelFiles()), "run1-count-0") == "50000"
    removed, left = remove_groups(places, KernelFiles(), owner, "run1-")
    assert (removed, left) == ((group_name(owner, "run1-count-0"),), ())


def test_long_names_fit_and_stay_apart(tmp_path: Path) -> None:
    tree = Tree(tmp_path, Kind.CGROUP_V1)
    place = Place(kind=Kind.CGROUP_V1, cpu=tmp_path, account=tmp_path)
    one, _ = enforcers(place, tree)
    names = [f"run1-{'ü' * 100}-{index}" for index in range(3)]
    for name in names:
        one.open(name, None)
    made = tree.groups(tmp_path)
    assert len(made) == len(names)
    assert all(len(group.name) < 255 and owner_of(group.name) == me() for group in made)
    assert all(group.name.startswith(group_name(me(), "run1-")) for group in made)
    assert len(group_name(me(), names[0]).split("-", 3)[3]) <= LONGEST
    one.close_all()


def quota(shared: tuple[Place, Files], name: str) -> str:
    place, files = shared
    return files.read(place.cpu / group_name(me(), name) / QUOTA_FILES[place.kind]).split()[0]
