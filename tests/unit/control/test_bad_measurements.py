"""Measurements that cannot be right change nothing, whatever the policy, and are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.policy.world import operator, snapshot

from updraft.control.steering import Steering, decide_round
from updraft.policy import POLICIES, Settings, Slot, Snapshot, policy
from updraft.predict.outlook import Outlook

NAN = float("nan")


def bad(value: float) -> dict[str, Snapshot]:
    """A snapshot for each place where a wrong value may come from."""
    hot = operator("count", 2, used=[0.95, 0.9])
    good = replace(snapshot(hot, count=2), pressure=0.95)
    first, *others = hot.instances
    slots = (Slot(rows_in=10, rows_out=10, cpu_s=value, queue_change_rows=0.0),)
    return {
        "input_rows_per_s": replace(good, input_rows_per_s=value),
        "pressure": replace(good, pressure=value),
        "usual_pressure": replace(good, usual_pressure=value),
        "usual_batch_rows": replace(good, usual_batch_rows=value),
        "usual_rows_per_s": replace(good, usual_rows_per_s=value),
        "overhead_cores": replace(
            good, workers=(replace(good.workers[0], overhead_cores=value), *good.workers[1:])
        ),
        "cpu": replace(good, workers=(replace(good.workers[0], cpu=value), *good.workers[1:])),
        "cpu_s_per_row": replace(good, operators=(replace(hot, cpu_s_per_row=value),)),
        "utilisation": replace(
            good, operators=(replace(hot, instances=(replace(first, utilisation=value), *others)),)
        ),
        "cpu_s": replace(good, operators=(replace(hot, slots=slots),)),
        "traffic": replace(good, traffic={(("count", 0), ("count", 1)): value}),
    }


@pytest.mark.parametrize("value", [NAN, float("inf"), -1.0])
@pytest.mark.parametrize("where", sorted(bad(0.0)))
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_nothing_is_decided_by_them(name: str, where: str, value: float) -> None:
    steering, chosen = Steering(outlook=Outlook(slot_s=10.0, use="auto")), policy(name)
    settings = chosen.settings(Settings(max_workers=4))
    found = decide_round(chosen, settings, steering, bad(value)[where])
    assert not found.decision.changed
    assert found.error is not None
    assert where in found.error
    assert str(value) in found.error
    assert found.after == steering  # nor is anything remembered or learnt from them
    assert decide_round(chosen, settings, steering, bad(0.5)[where]).error is None
