"""CPU quotas per instance by cgroup, and what each instance used. The only package that writes cgroup files."""

from updraft.enforce.accounting import Accounting
from updraft.enforce.cgroups import CgroupV1, CgroupV2
from updraft.enforce.choose import Chosen, Guarded, choose_among, choose_enforcer
from updraft.enforce.hierarchy import Place, places
from updraft.enforce.model import EnforceError, Enforcer, Kind, Quota, Usage, inside, quota_of

__all__ = [
    "Accounting",
    "CgroupV1",
    "CgroupV2",
    "Chosen",
    "EnforceError",
    "Enforcer",
    "Guarded",
    "Kind",
    "Place",
    "Quota",
    "Usage",
    "choose_among",
    "choose_enforcer",
    "inside",
    "places",
    "quota_of",
]
