"""Where the process is, from the two files of /proc; and shares as quotas."""

from __future__ import annotations

from pathlib import Path

import pytest

from updraft.cluster.processes import ProcessId
from updraft.enforce import EnforceError, Kind, Place, Quota, places, quota_of
from updraft.enforce.names import group_name, owner_of

V1_JOINT = "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
V1_APART = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_v2_alone() -> None:
    here = Path("/sys/fs/cgroup/user.slice/app.scope")
    assert places(V2, "0::/user.slice/app.scope\n") == (Place(kind=Kind.CGROUP_V2, cpu=here, account=here),)


def test_hybrid_tries_v1_first_with_usage_in_its_own_hierarchy() -> None:
    found = places(V1_APART, "2:cpuacct:/x\n1:cpu:/job\n0::/\n")
    assert [place.kind for place in found] == [Kind.CGROUP_V1, Kind.CGROUP_V2]
    assert found[0].cpu == Path("/sys/fs/cgroup/cpu/job")
    assert found[0].account == Path("/sys/fs/cgroup/cpuacct/x")
    assert found[1].cpu == Path("/sys/fs/cgroup/unified")


def test_controllers_mounted_together() -> None:
    (place,) = places(V1_JOINT, "4:cpu,cpuacct:/job\n")
    assert place.cpu == place.account == Path("/sys/fs/cgroup/cpu,cpuacct/job")


def test_inside_a_container_only_a_part_is_mounted() -> None:
    mount = "33 32 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    (place,) = places(mount, "4:cpu,cpuacct:/docker/abc/child\n")
    assert place.cpu == Path("/sys/fs/cgroup/cpu/child")
    (outside,) = places(mount, "4:cpu,cpuacct:/elsewhere\n")
    assert outside.cpu == Path("/sys/fs/cgroup/cpu")


def test_a_mount_point_with_a_space() -> None:
    (place,) = places("30 23 0:26 / /my\\040cg rw - cgroup2 cgroup2 rw\n", "0::/\n")
    assert place.cpu == Path("/my cg")


def test_no_cgroups_at_all() -> None:
    assert places("21 1 0:1 / /proc rw - proc proc rw\n", "") == ()


def test_shares_become_quotas() -> None:
    assert quota_of(None) == Quota(us=None)
    assert quota_of(0.2) == Quota(us=20_000)
    assert quota_of(2.0) == Quota(us=200_000)
    assert quota_of(0.01) == Quota(us=1_000)
    assert quota_of(0.0).us == 1_000
    assert "below the kernel's minimum" in (quota_of(0.0).note or "")
    limited = quota_of(2.0, most_cores=1.5)
    assert limited.us == 150_000
    assert "more than this process may use" in (limited.note or "")
    with pytest.raises(EnforceError, match="nan cores is not possible"):
        quota_of(float("nan"))


def test_group_names_say_whose_they_are() -> None:
    owner = ProcessId(pid=12, started=345)
    name = group_name(owner, "a/b-c")
    assert name == "updraft-12-345-a%2Fb-c"
    assert owner_of(name) == owner
    for other in ("updraft-try", "updraft-x-1-a", "system.slice", "updraft-1-2"):
        assert owner_of(other) is None
