"""How much CPU the cgroup of this process leaves it: read only, for those who must know how large a worker is."""

from __future__ import annotations

from pathlib import Path

from updraft.enforce.hierarchy import Place, places
from updraft.enforce.model import Kind


def own_limit_cores() -> float | None:
    """The tightest quota of this process's group and those above it, in cores; None: no limit, or nobody says."""
    try:
        found = places(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    except OSError:
        return None
    limits = [limit for place in found for limit in _above(place)]
    return min(limits, default=None)


def _above(place: Place) -> list[float]:
    limits: list[float] = []
    group = place.cpu
    while (group / _file(place)).is_file():
        limit = limit_cores(group, place.kind)
        if limit is not None:
            limits.append(limit)
        group = group.parent
    return limits


def limit_cores(group: Path, kind: Kind) -> float | None:
    """The quota of one group."""
    try:
        if kind is Kind.CGROUP_V1:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        else:
            quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period) if quota.strip() not in ("max", "-1") else None
    except (OSError, ValueError):
        return None


def _file(place: Place) -> str:
    return "cpu.cfs_quota_us" if place.kind is Kind.CGROUP_V1 else "cpu.max"
