"""CPU quotas per instance by cgroup, and what each instance used. The only package that writes cgroup files."""

from updraft.enforce.accounting import Accounting
from updraft.enforce.cgroups import CgroupV1, CgroupV2
from updraft.enforce.choose import Chosen, Guarded, choose_among, choose_enforcer, own_places
from updraft.enforce.ends import executor_process, remove_groups
from updraft.enforce.hierarchy import Place, places
from updraft.enforce.model import EnforceError, Enforcer, Kind, Quota, Usage, inside, quota_of
from updraft.enforce.shares import SOURCE, Shares, check_shares, group_of

__all__ = [
    "SOURCE",
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
    "Shares",
    "Usage",
    "check_shares",
    "choose_among",
    "choose_enforcer",
    "executor_process",
    "group_of",
    "inside",
    "own_places",
    "places",
    "quota_of",
    "remove_groups",
]
