"""Policies side by side over loads, on the virtual cluster: rows as `bench elastic` has them, and a table for people.

`python -m updraft.simulate` prints the tables of docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from updraft.policy.model import Configuration
from updraft.policy.registry import policy
from updraft.simulate.applications import SENTIMENT, TOP_K
from updraft.simulate.cluster import Application, Hardware
from updraft.simulate.loads import load
from updraft.simulate.run import Trial, simulate

OVER, UNDER = "over-provisioned", "under-provisioned"
SIDES = (OVER, UNDER, "threshold", "joint", "symbiotic", "symbiotic-proactive", "adaptive", "updraft")
LOADS = ("stair", "step", "square", "sine", "season")


def compare(
    applications: Sequence[Application] = (TOP_K, SENTIMENT),
    loads: Sequence[str] = LOADS,
    sides: Sequence[str] = SIDES,
    *,
    hardware: Hardware | None = None,
    noise: float = 0.05,
    seed: int = 1,
) -> Iterator[dict[str, Any]]:
    """One row per application, load and side; a static side has its own name."""
    using = hardware if hardware is not None else Hardware()
    for application in applications:
        most = Configuration(
            parallelism={o.name: o.highest for o in application.operators}, workers=using.max_workers
        )
        for name in loads:
            for side in sides:
                trial = Trial(
                    application=application,
                    load=load(name, noise=noise),
                    policy=policy("static" if side in (OVER, UNDER) else side),
                    hardware=using,
                    start=most if side == OVER else None,
                    seed=seed,
                )
                yield {**simulate(trial).row(trial), "policy": side}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: one table per application."""
    lines: list[str] = []
    for application in dict.fromkeys(row["app"] for row in rows):
        mine = [row for row in rows if row["app"] == application]
        sides = list(dict.fromkeys(row["policy"] for row in mine))
        lines += [
            f"`{application}`:",
            "",
            f"| load | {' | '.join(sides)} |",
            "| --- " * (len(sides) + 1) + "|",
        ]
        for name in dict.fromkeys(row["load"] for row in mine):
            cells = " | ".join(_cell(row) for row in mine if row["load"] == name)
            lines.append(f"| {name} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    latency_s = row["latency_p99_ms"] / 1000
    return f"{row['degradation']:.3f}, {row['nodes_saved']:.0%} ({latency_s:.1f}; {row['changes']})"
