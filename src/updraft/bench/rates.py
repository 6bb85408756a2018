"""A workload's rates as one row: the fields of the JSON object, and the table for people. A side may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from updraft.bench.framework import ratio

_HEADERS = ("workload", "updraft", "native", "× native", "python state", "× python state", "verified")


def rate_row(name: str, rates: Mapping[str, float], *, verified: bool) -> dict[str, Any]:
    """Rates in rows per second by side: `updraft`, and `native` or `python_state` or both."""
    ours = rates["updraft"]
    found: dict[str, Any] = {"name": name, "updraft_rows_per_s": round(ours)}
    for side in ("native", "python_state"):
        found[f"{side}_rows_per_s"] = round(rates[side]) if side in rates else None
    for side, field in (("native", "ratio"), ("python_state", "ratio_python_state")):
        found[field] = ratio(ours, rates[side]) if side in rates else None
    return {**found, "verified": verified}


def rate_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of one or several benchmarks."""
    table = Table(title=title, title_justify="left")
    for header in _HEADERS:
        table.add_column(header, justify="left" if header == "workload" else "right")
    for row in rows:
        table.add_row(
            row["name"],
            _shown(row["updraft_rows_per_s"], ",d"),
            _shown(row["native_rows_per_s"], ",d"),
            _shown(row["ratio"], ".2f"),
            _shown(row["python_state_rows_per_s"], ",d"),
            _shown(row["ratio_python_state"], ".0f"),
            "yes" if row["verified"] else "NO",
        )
    return table


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
