"""Load of every operator in the next slot: paper 2 §III-A, equation 1 and the maximum with the operator's own line.

(a) A least-squares line over the operator's own last φ slots. (b) For operators with parents, what those will emit:
Σ (predicted load + mean queue change) · mean output ratio ρ. The larger of both. Operators in topological order, so a parent's
prediction is there when its children need it. A parent that is a source gives the topology's predicted input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from updraft.policy.model import OperatorLoad, Slot, Snapshot
from updraft.predict.methods import line
from updraft.predict.series import Series


def operator_rates(snapshot: Snapshot, phi: int, input_rows_per_s: float | None = None) -> dict[str, float]:
    """Rows per second into each operator in the next slot; operators nobody measured are left out."""
    known = {operator.name: operator for operator in snapshot.operators}
    found: dict[str, float] = {}
    for operator in snapshot.operators:
        own = _line(operator.slots, phi, snapshot.slot_s)
        parents = _from_parents(operator.name, snapshot, known, found, phi, input_rows_per_s)
        both = [rate for rate in (own, parents) if rate is not None]
        if both:
            found[operator.name] = max(both)
    return found


def _line(slots: Sequence[Slot], phi: int, slot_s: float) -> float | None:
    series = Series(start_s=0.0, slot_s=slot_s, values=tuple(slot.rows_in / slot_s for slot in slots))
    ahead = line(phi)(series, 1)
    return series.last if ahead is None else ahead[0]


def _from_parents(
    name: str,
    snapshot: Snapshot,
    known: Mapping[str, OperatorLoad],
    found: Mapping[str, float],
    phi: int,
    input_rows_per_s: float | None,
) -> float | None:
    total = 0.0
    for stream in (stream for stream in snapshot.streams if stream.consumer == name):
        parent = known.get(stream.producer)
        if parent is None:
            if input_rows_per_s is None:
                return None
            total += input_rows_per_s * stream.selectivity
            continue
        if parent.name not in found:
            return None
        slots = parent.slots[-phi:]
        ratios = [slot.rows_out / slot.rows_in for slot in slots if slot.rows_in > 0]
        ratio = sum(ratios) / len(ratios) if ratios else stream.selectivity
        change = sum(slot.queue_change_rows for slot in slots) / len(slots) if slots else 0.0
        total += max(0.0, found[parent.name] + change / snapshot.slot_s) * ratio
    return total or None
