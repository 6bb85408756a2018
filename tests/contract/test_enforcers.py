"""Every enforcer keeps the same promises.

`v1` and `v2-threads` are the kernel's, skipped where they are not mounted or not writable. `v2-threads` needs no cpu
controller in v2 and so has no quotas. `v1-tree` and `v2-tree` are directories with the same files (see cgroup_tree.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.contract.cgroup_tree import Tree

from updraft.cluster.processes import ProcessId, identify
from updraft.enforce import (
    Accounting,
    CgroupV1,
    CgroupV2,
    EnforceError,
    Enforcer,
    Kind,
    Place,
    choose_among,
    inside,
    places,
)
from updraft.enforce.files import Files, KernelFiles
from updraft.enforce.names import group_name, sweep

REAL = places(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
QUOTA_FILES = {Kind.CGROUP_V1: "cpu.cfs_quota_us", Kind.CGROUP_V2: "cpu.max"}
WEIGHT_FILES = {Kind.CGROUP_V1: "cpu.shares", Kind.CGROUP_V2: "cpu.weight"}


def me() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An enforcer and what is known about its surroundings."""

    enforcer: Enforcer
    files: Files | None = None
    place: Place | None = None

    def left_over(self) -> list[str]:
        """Groups of this process that exist."""
        if self.files is None or self.place is None:
            return []
        mine = f"updraft-{os.getpid()}-"
        parents = {self.place.cpu, self.place.account}
        return sorted(
            g.name for parent in parents for g in self.files.groups(parent) if g.name.startswith(mine)
        )


def setting(name: str, tmp_path: Path) -> Setting:
    version = CgroupV1 if name.startswith("v1") else CgroupV2
    kind = Kind.CGROUP_V1 if version is CgroupV1 else Kind.CGROUP_V2
    if name == "accounting":
        return Setting(enforcer=Accounting())
    if name.endswith("tree"):
        place = Place(kind=kind, cpu=tmp_path, account=tmp_path)
        tree = Tree(tmp_path, kind)
        return Setting(enforcer=version(place, tree, me()), files=tree, place=place)
    found = [place for place in REAL if place.kind is kind]
    if not found:
        pytest.skip(f"no {kind.value} hierarchy is mounted here")
    enforcer = version(found[0], KernelFiles(), me())
    try:
        enforcer.open("try", None)
        enforcer.close("try")
    except OSError as error:
        pytest.skip(f"{kind.value} is not writable here: {error}")
    return Setting(enforcer=enforcer, files=KernelFiles(), place=found[0])


@pytest.fixture(params=["accounting", "v1", "v1-tree", "v2-threads", "v2-tree"])
def any_kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    found = setting(request.param, tmp_path)
    yield found
    found.enforcer.close_all()
    assert found.left_over() == []


@pytest.fixture(params=["v1", "v1-tree", "v2-tree"])
def with_quota(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    found = setting(request.param, tmp_path)
    yield found
    found.enforcer.close_all()
    assert found.left_over() == []


def burn(cpu_s: float) -> None:
    """Use that much CPU in this thread, however long it takes."""
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass


def test_usage_counts_what_the_thread_did_inside_and_nothing_else(any_kind: Setting) -> None:
    enforcer = any_kind.enforcer
    enforcer.open("count-0", None)
    enforcer.open("count-1", None)
    burn(0.2)
    with inside(enforcer, "count-0"):
        burn(0.3)
    burn(0.2)
    used = enforcer.usage("count-0").cpu_s
    assert 0.28 <= used <= 0.45
    assert enforcer.usage("count-1").cpu_s < 0.05
    with inside(enforcer, "count-0"):
        burn(0.1)
    assert enforcer.close("count-0").cpu_s >= used + 0.08


def test_two_threads_of_two_groups_at_once(any_kind: Setting) -> None:
    enforcer = any_kind.enforcer
    work = {"a": 0.1, "b": 0.3}
    for name in work:
        enforcer.open(name, None)
    ready, go, done = threading.Barrier(3), threading.Event(), threading.Barrier(3)
    ids: dict[str, int] = {}

    def run(name: str) -> None:
        ids[name] = threading.get_native_id()
        ready.wait()
        go.wait()
        burn(work[name])
        done.wait()  # counted while it still runs: a thread's clock ends with it
        done.wait()

    threads = [threading.Thread(target=run, args=(name,)) for name in work]
    for thread in threads:
        thread.start()
    ready.wait()
    for name, thread_id in ids.items():
        enforcer.enter(name, thread_id)
    go.set()
    done.wait()
    used = {name: enforcer.usage(name).cpu_s for name in work}
    for name, thread_id in ids.items():
        enforcer.leave(name, thread_id)
    done.wait()
    for thread in threads:
        thread.join()
    assert 0.09 <= used["a"] <= 0.2
    assert 0.28 <= used["b"] <= 0.4


def test_the_thread_is_back_even_if_the_work_fails(any_kind: Setting) -> None:
    enforcer = any_kind.enforcer
    enforcer.open("op", None)
    before = Path("/proc/thread-self/cgroup").read_text()

    def work() -> None:
        raise RuntimeError("operator failed")

    with pytest.raises(RuntimeError), inside(enforcer, "op"):
        work()
    assert Path("/proc/thread-self/cgroup").read_text() == before
    used = enforcer.usage("op").cpu_s
    burn(0.1)
    assert enforcer.usage("op").cpu_s - used < 0.05


def test_closing_with_threads_inside_puts_them_back(any_kind: Setting) -> None:
    any_kind.enforcer.open("op", None)
    before = Path("/proc/thread-self/cgroup").read_text()
    any_kind.enforcer.enter("op", threading.get_native_id())
    any_kind.enforcer.close("op")
    assert Path("/proc/thread-self/cgroup").read_text() == before
    assert any_kind.left_over() == []


def test_a_thread_started_inside_does_not_keep_the_group_alive(any_kind: Setting) -> None:
    """Children of a thread are born into its group; Arrow starts such threads and never ends them."""
    enforcer = any_kind.enforcer
    enforcer.open("op", None)
    end = threading.Event()
    child = threading.Thread(target=end.wait)
    with inside(enforcer, "op"):
        child.start()
    try:
        enforcer.close("op")
        assert any_kind.left_over() == []
        where = Path(f"/proc/self/task/{child.native_id}/cgroup").read_text()
        assert where == Path("/proc/thread-self/cgroup").read_text()
    finally:
        end.set()
        child.join()


def test_a_thread_that_has_ended(any_kind: Setting) -> None:
    enforcer = any_kind.enforcer
    enforcer.open("op", None)
    ids: list[int] = []
    ended = threading.Thread(target=lambda: ids.append(threading.get_native_id()))
    ended.start()
    ended.join()
    time.sleep(0.05)
    with pytest.raises(EnforceError, match=f"no thread {ids[0]}"):
        enforcer.enter("op", ids[0])
    enforcer.leave("op", ids[0])
    assert enforcer.close("op").cpu_s < 0.05


def test_names_may_be_anything_and_are_told_apart(any_kind: Setting) -> None:
    enforcer = any_kind.enforcer
    for name in ("a/b", "a b", "../up", "wörter-0"):
        enforcer.open(name, None)
    with pytest.raises(EnforceError, match="'a b' is open already"):
        enforcer.open("a b", None)
    with pytest.raises(EnforceError, match=r"'other' is not open; open are: \.\./up, a b, a/b"):
        enforcer.usage("other")


@pytest.mark.parametrize("cores", [-1.0, float("nan"), float("inf")])
def test_an_impossible_quota_is_refused_and_leaves_nothing(any_kind: Setting, cores: float) -> None:
    with pytest.raises(EnforceError, match="is not possible"):
        any_kind.enforcer.open("op", cores)
    assert any_kind.left_over() == []


def test_below_the_kernels_minimum_is_clamped_with_a_note(any_kind: Setting) -> None:
    if (
        any_kind.place is not None
        and any_kind.place.kind is Kind.CGROUP_V2
        and isinstance(any_kind.files, KernelFiles)
    ):
        pytest.skip("no cpu controller in this machine's v2")
    note = any_kind.enforcer.open("op", 0.0001)
    assert note == "0.0001 cores is below the kernel's minimum; 0.01 cores set"
    assert any_kind.enforcer.set_quota("op", 0.5) is None


def test_the_quota_is_what_the_kernel_has(with_quota: Setting) -> None:
    enforcer, place, files = with_quota.enforcer, with_quota.place, with_quota.files
    assert place is not None
    assert files is not None

    def stored() -> str:
        return files.read(place.cpu / group_name(me(), "op") / QUOTA_FILES[place.kind]).split()[0]

    enforcer.open("op", 0.2)
    assert stored() == "20000"
    enforcer.set_quota("op", 1.5)
    assert stored() == "150000"
    enforcer.set_quota("op", None)
    assert stored() in ("-1", "max")


def test_who_may_use_little_waits_for_others(with_quota: Setting) -> None:
    enforcer, place, files = with_quota.enforcer, with_quota.place, with_quota.files
    assert place is not None
    assert files is not None
    usual = {Kind.CGROUP_V1: 1024, Kind.CGROUP_V2: 100}[place.kind]

    def weight() -> int:
        return int(files.read(place.cpu / group_name(me(), "op") / WEIGHT_FILES[place.kind]))

    enforcer.open("op", 0.25)
    assert weight() == usual // 4
    enforcer.set_quota("op", 0.0001)
    assert weight() == max(1, usual // 100)
    for cores in (1.5, None):  # more than the usual would be at the cost of those who are not limited
        enforcer.set_quota("op", cores)
        assert weight() == usual


def test_threads_that_are_kept_stay_and_others_go(any_kind: Setting) -> None:
    enforcer = any_kind.enforcer
    enforcer.open("op", None)
    end = threading.Event()
    kept, stranger = (threading.Thread(target=end.wait) for _ in range(2))
    for thread in (kept, stranger):
        thread.start()
        enforcer.enter("op", thread.native_id or 0)
    try:
        enforcer.empty("op", frozenset([kept.native_id or 0]))
        if any_kind.files is not None and any_kind.place is not None:
            members = "tasks" if any_kind.place.kind is Kind.CGROUP_V1 else "cgroup.threads"
            group = any_kind.place.cpu / group_name(me(), "op")
            assert any_kind.files.read(group / members).split() == [str(kept.native_id)]
        enforcer.close("op")
    finally:
        end.set()
        for thread in (kept, stranger):
            thread.join()


def test_v1_gives_no_more_than_the_parent_has(tmp_path: Path) -> None:
    found = setting("v1-tree", tmp_path)
    (tmp_path / "cpu.cfs_quota_us").write_text("50000")
    assert found.enforcer.open("op", 2.0) == "2 cores is more than this process may use; 0.5 cores set"
    assert (tmp_path / group_name(me(), "op") / "cpu.cfs_quota_us").read_text() == "50000"
    assert found.enforcer.set_quota("op", 0.25) is None


def test_groups_of_dead_processes_are_swept_and_others_kept(with_quota: Setting) -> None:
    place, files = with_quota.place, with_quota.files
    assert place is not None
    assert files is not None
    dead = ProcessId(pid=me().pid, started=1)  # this pid, but of a process that is no more
    left = [parent / group_name(dead, "op") for parent in dict.fromkeys((place.cpu, place.account))]
    for group in left:
        files.make(group)
    with_quota.enforcer.open("mine", None)
    assert group_name(dead, "op") in sweep(files, place.cpu)
    sweep(files, place.account)
    assert not any(group.exists() for group in left)
    assert len(with_quota.left_over()) == len(left)  # mine


def test_the_kernel_holds_a_thread_to_its_quota(tmp_path: Path) -> None:
    """Real throttling: 20 % of a core for a second of work is far less than a second of CPU."""
    found = setting("v1", tmp_path)
    enforcer = found.enforcer
    enforcer.open("op", 0.2)
    try:
        with inside(enforcer, "op"):
            began_cpu_s, until_s = time.thread_time(), time.monotonic() + 1.0
            while time.monotonic() < until_s:
                pass
            used_s = time.thread_time() - began_cpu_s
        assert used_s <= 0.45
        assert (enforcer.usage("op").throttled_s or 0.0) > 0
    finally:
        enforcer.close_all()


def test_an_adopted_process_takes_its_children_along(tmp_path: Path) -> None:
    found = setting("v1", tmp_path)
    assert found.place is not None
    found.enforcer.open("node", 0.5)
    child = subprocess.Popen(
        ["sh", "-c", "read go; sleep 60 & echo $!; wait"], stdin=PIPE, stdout=PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        found.enforcer.adopt("node", child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        grandchild = int(child.stdout.readline())
        inside = (found.place.cpu / group_name(me(), "node") / "tasks").read_text().split()
        assert {str(child.pid), str(grandchild)} <= set(inside)
        os.kill(grandchild, signal.SIGKILL)
    finally:
        child.kill()
        child.communicate()
    with pytest.raises(EnforceError, match="no process"):
        found.enforcer.adopt("node", child.pid)
    found.enforcer.close("node")
    assert found.left_over() == []


class TestChoice:
    def test_the_first_place_that_works_is_taken_without_a_warning(self, tmp_path: Path) -> None:
        warnings: list[str] = []
        tree = Tree(tmp_path, Kind.CGROUP_V2)
        place = Place(kind=Kind.CGROUP_V2, cpu=tmp_path, account=tmp_path)
        dead = tmp_path / group_name(ProcessId(pid=me().pid, started=1), "op")
        tree.make(dead)
        chosen = choose_among((place,), tree, me(), warnings.append)
        assert chosen.enforcer.kind is Kind.CGROUP_V2
        assert chosen.swept == (dead.name,)
        assert warnings == []
        assert tree.groups(tmp_path) == []

    def test_read_only_from_the_start_is_one_warning_and_accounting(self, tmp_path: Path) -> None:
        warnings: list[str] = []
        tree = Tree(tmp_path, Kind.CGROUP_V1)
        tree.read_only = True
        place = Place(kind=Kind.CGROUP_V1, cpu=tmp_path, account=tmp_path)
        chosen = choose_among((place,), tree, me(), warnings.append)
        assert chosen.enforcer.kind is Kind.ACCOUNTING
        assert len(warnings) == 1
        assert "CPU shares are not enforced, only measured" in warnings[0]
        assert "Read-only file system" in warnings[0]

    def test_v2_without_the_cpu_controller_says_so(self, tmp_path: Path) -> None:
        warnings: list[str] = []
        tree = Tree(tmp_path, Kind.CGROUP_V2)
        (tmp_path / "cgroup.controllers").write_text("memory\n")
        place = Place(kind=Kind.CGROUP_V2, cpu=tmp_path, account=tmp_path)
        assert choose_among((place,), tree, me(), warnings.append).enforcer.kind is Kind.ACCOUNTING
        assert "the cpu controller is not in this hierarchy" in warnings[0]

    def test_turning_read_only_is_one_warning_and_work_goes_on(self, tmp_path: Path) -> None:
        warnings: list[str] = []
        tree = Tree(tmp_path, Kind.CGROUP_V1)
        place = Place(kind=Kind.CGROUP_V1, cpu=tmp_path, account=tmp_path)
        enforcer = choose_among((place,), tree, me(), warnings.append).enforcer
        enforcer.open("a", 0.5)
        enforcer.open("b", 0.5)
        with inside(enforcer, "a"):
            burn(0.1)
            tree.read_only = True
            enforcer.set_quota("a", 0.7)
            burn(0.1)
        with inside(enforcer, "b"):
            burn(0.1)
        assert len(warnings) == 1
        assert "cgroup v1 failed: Read-only file system" in warnings[0]
        assert enforcer.kind is Kind.ACCOUNTING
        assert 0.19 <= enforcer.usage("a").cpu_s <= 0.3
        assert 0.09 <= enforcer.close("b").cpu_s <= 0.2
        enforcer.close_all()
        assert len(warnings) == 1


CRASH = """
import os, signal, sys, threading
from tests.contract.test_enforcers import setting
from pathlib import Path
from subprocess import PIPE
enforcer = setting("v1", Path("unused")).enforcer
enforcer.open("op", 0.5)
enforcer.enter("op", threading.get_native_id())
print("in", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_gone_at_the_next_start(tmp_path: Path) -> None:
    """Real groups, a real SIGKILL while a thread is inside."""
    found = setting("v1", tmp_path)
    place, files = found.place, found.files
    assert place is not None
    assert files is not None
    child = subprocess.Popen(
        [sys.executable, "-c", CRASH], stdout=subprocess.PIPE, text=True, env=_import_path()
    )
    assert child.communicate(timeout=60)[0] == "in\n"
    mine = f"updraft-{child.pid}-"
    parents = dict.fromkeys((place.cpu, place.account))
    left = [group for parent in parents for group in files.groups(parent) if group.name.startswith(mine)]
    assert len(left) == len(parents)
    warnings: list[str] = []
    chosen = choose_among((place,), files, me(), warnings.append)
    assert [name for name in chosen.swept if name.startswith(mine)] == [left[0].name]
    assert not any(group.exists() for group in left)
    assert warnings == []


def _import_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
