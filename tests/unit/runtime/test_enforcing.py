"""An instance in its group: what the report says, and what happens where groups cannot be made."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from tests.contract.cgroup_tree import Tree
from tests.contract.test_enforcers import burn, me

from updraft.enforce import EnforceError, Enforcer, Kind, Place, Shares, choose_among, choose_enforcer
from updraft.enforce.names import group_name
from updraft.runtime.enforcing import Enclosure, enforced
from updraft.runtime.outbox import _thread
from updraft.runtime.reports import Report
from updraft.runtime.shares import ShareTable


def report(operator: str | None = "count", worker: str = "2") -> Report:
    index = None if operator is None else 0
    return Report(level=1, slot=0, operator=operator, instance=index, worker=worker, pid=1)


class World:
    """An enclosure over a directory tree, and a way to read its quotas."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Tree(root, Kind.CGROUP_V1)
        self.enclosure = Enclosure(self._choose)

    def _choose(self, warn: object) -> Enforcer:
        place = Place(kind=Kind.CGROUP_V1, cpu=self.root, account=self.root)
        return choose_among((place,), self.tree, me(), warn, shared=True).enforcer  # type: ignore[arg-type]

    def work(self, shares: Shares, cpu_s: float = 0.0) -> Report:
        found = report()
        self.enclosure.work(found, "r-count-0", shares, lambda: burn(cpu_s))
        return found

    def quota(self) -> str:
        return (self.root / group_name(me(), "r-count-0") / "cpu.cfs_quota_us").read_text()

    def members(self) -> str:
        return (self.root / group_name(me(), "r-count-0") / "tasks").read_text()


def test_the_report_says_the_share_and_what_the_group_used(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.work(Shares(version=1, cores={"count": 0.4}), cpu_s=0.1)
    second = world.work(Shares(version=1, cores={"count": 0.4}))
    assert world.quota() == "40000"
    assert first.share_cores == 0.4
    assert first.group_cpu_s is not None
    assert 0.09 <= first.group_cpu_s <= 0.2
    assert second.group_cpu_s is not None
    assert second.group_cpu_s < 0.05  # of this batch, not of all
    assert first.throttled_s == 0.0
    assert first.unenforced is None


def test_an_instance_has_a_thread_that_stays_in_its_group(tmp_path: Path) -> None:
    world = World(tmp_path)
    shares = Shares(version=1, cores={})
    ids = [
        world.enclosure.work(report(), group, shares, threading.get_native_id)
        for group in ("r-count-0", "r-count-1", "r-count-0")
    ]
    assert ids[0] == ids[2] != ids[1]
    assert threading.get_native_id() not in ids
    assert world.members() == str(ids[0])


def test_a_sender_has_a_thread_beside_it_that_counts_to_its_instance(tmp_path: Path) -> None:
    """A thread is born into the group of the one that starts it; that is the kernel's doing, as is counting it."""
    found = choose_enforcer(pytest.fail)
    if found.enforcer.kind is Kind.ACCOUNTING:
        pytest.skip("no cgroup is writable here")
    enclosure, shares = Enclosure(lambda warn: found.enforcer), Shares(version=1, cores={})

    def beside() -> str:
        return _thread().submit(lambda: Path("/proc/thread-self/cgroup").read_text()).result()

    def here() -> str:
        return Path("/proc/thread-self/cgroup").read_text()

    try:
        inside = enclosure.work(report(), "r-source-0", shares, beside)
        assert inside == enclosure.work(report(), "r-source-0", shares, here)
        assert inside != beside() == here()
        used = report()
        enclosure.work(used, "r-source-0", shares, lambda: _thread().submit(burn, 0.1).result())
        assert used.group_cpu_s is not None
        assert used.group_cpu_s >= 0.09
    finally:
        found.enforcer.close_all()


def test_threads_of_groups_that_nobody_used_for_long_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.runtime.enforcing.MOST_THREADS", 2)
    world, shares = World(tmp_path), Shares(version=1, cores={})

    def run(group: str) -> int:
        return world.enclosure.work(report(), group, shares, threading.get_native_id)

    first, second = run("r-a-0"), run("r-b-0")
    assert run("r-a-0") == first
    run("r-c-0")
    alive = {thread.native_id for thread in threading.enumerate()}
    assert first in alive
    assert second not in alive
    assert run("r-b-0") not in (first, second)


def test_another_version_sets_the_quota_anew_and_the_same_does_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.work(Shares(version=1, cores={"count": 0.4}))
    quota = tmp_path / group_name(me(), "r-count-0") / "cpu.cfs_quota_us"
    quota.write_text("12345")  # as another process of the executor would
    world.work(Shares(version=1, cores={"count": 0.4}))
    assert world.quota() == "12345"
    world.work(Shares(version=2, cores={"count": 0.4}))
    assert world.quota() == "40000"
    world.work(Shares(version=3, cores={}))
    assert world.quota() == "-1"


def test_too_small_a_share_is_noted_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    tiny = Shares(version=1, cores={"count": 0.001})
    assert world.work(tiny).notes == ("0.001 cores is below the kernel's minimum; 0.01 cores set",)
    assert world.work(tiny).notes == ()


def test_a_failing_operator_fails_for_the_caller_and_the_next_works(tmp_path: Path) -> None:
    world, found = World(tmp_path), report()
    shares = Shares(version=1, cores={"count": 0.4})

    def fail() -> None:
        burn(0.02)
        raise RuntimeError("an operator's")

    with pytest.raises(RuntimeError, match="an operator's"):
        world.enclosure.work(found, "r-count-0", shares, fail)
    assert found.group_cpu_s is not None
    assert found.group_cpu_s >= 0.02
    assert world.work(shares).unenforced is None


def test_a_hierarchy_that_turns_read_only_is_told_and_work_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.work(Shares(version=1, cores={"count": 0.4}))
    world.tree.read_only = True
    held = world.work(Shares(version=1, cores={"count": 0.4}), cpu_s=0.02)
    assert held.unenforced is None  # the thread is inside and the quota holds: nothing had to be written
    assert held.group_cpu_s is not None
    shares = Shares(version=2, cores={"count": 0.2})
    found = world.work(shares, cpu_s=0.02)
    assert found.unenforced is not None
    assert "Read-only file system" in found.unenforced
    assert found.group_cpu_s is None  # the threads' clocks count
    assert world.work(shares).unenforced == found.unenforced


def test_without_shares_nothing_is_opened() -> None:
    found = report()
    assert enforced(found, "r", None, threading.get_native_id) == threading.get_native_id()
    assert (found.share_cores, found.group_cpu_s, found.unenforced) == (None, None, None)


def test_reports_travel_with_what_was_enforced() -> None:
    found = report()
    found.share_cores, found.group_cpu_s, found.throttled_s = 0.4, 0.0, 0.25
    found.notes, found.unenforced = ("raised",), "read-only"
    assert Report.from_json(found.to_json()) == found
    assert Report.from_json(report().to_json()) == report()


class TestShareTable:
    def test_off_unless_asked_for(self) -> None:
        table = ShareTable(["count"])
        assert table.now is None
        assert table.to_json() is None
        assert not table.change({"count": 0.4})
        assert table.now is None

    def test_another_table_is_another_version_the_same_is_not(self) -> None:
        table = ShareTable(["count"], {})
        assert table.now == Shares(version=1)
        assert table.change({"count": 0.4})
        assert table.now == Shares(version=2, cores={"count": 0.4})
        assert not table.change({"count": 0.4})
        assert table.to_json() == {"cores": {"count": 0.4}, "enforced": True}

    def test_a_share_for_nobody_is_refused_at_the_start_and_later(self) -> None:
        with pytest.raises(EnforceError, match="no operator 'cuont'"):
            ShareTable(["count"], {"cuont": 0.4})
        table = ShareTable(["count"], {})
        with pytest.raises(EnforceError, match="not possible"):
            table.change({"count": -1.0})
        assert table.now == Shares(version=1)

    def test_one_warning_however_many_workers_cannot(self, caplog: pytest.LogCaptureFixture) -> None:
        table = ShareTable(["count"], {"count": 0.001})
        reports = [report(worker=str(number)) for number in range(3)]
        for one in reports:
            one.unenforced, one.notes = "CPU shares are not enforced", ("0.01 cores set",)
        with caplog.at_level(logging.WARNING, "updraft.enforce"):
            table.heard(reports)
            table.heard(reports)
        assert [record.getMessage() for record in caplog.records] == [
            "worker 0: CPU shares are not enforced",
            "share of operator 'count': 0.01 cores set",
        ]
        assert table.to_json() == {"cores": {"count": 0.001}, "enforced": False}


def test_a_run_that_enforces_nothing_warns_about_nothing(caplog: pytest.LogCaptureFixture) -> None:
    mute = report()
    mute.unenforced = "not asked for"
    ShareTable(["count"]).heard([mute])
    assert not caplog.records
