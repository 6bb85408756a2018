from __future__ import annotations

from pathlib import Path

from updraft.enforce import Kind
from updraft.enforce.limits import limit_cores, own_limit_cores


def test_quotas_of_both_versions(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text("40000\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert limit_cores(tmp_path, Kind.CGROUP_V1) == 0.4
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    assert limit_cores(tmp_path, Kind.CGROUP_V1) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert limit_cores(tmp_path, Kind.CGROUP_V2) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert limit_cores(tmp_path, Kind.CGROUP_V2) is None


def test_no_file_and_nonsense_are_no_limit(tmp_path: Path) -> None:
    assert limit_cores(tmp_path, Kind.CGROUP_V1) is None
    (tmp_path / "cpu.max").write_text("plenty\n")
    assert limit_cores(tmp_path, Kind.CGROUP_V2) is None
    found = own_limit_cores()
    assert found is None or found > 0
