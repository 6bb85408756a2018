"""A curve through measured points: CPU as a function of rate (OCUP), or of the sum of instances (OP); paper 5 §3.2, §4.

Two candidates: the paper's network 1-3-1 and a straight line through non-negative parts. Which one is used is decided by
cross-validation on the points themselves, and the line wins a draw: it is easier to believe outside of what was measured.

Deviation: beyond the largest measured rate a network is continued by its own slope at the end (tanh would flatten out just
where a scale-out must be judged). CPU is in cores, not Hz: workers are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from updraft.predict.network import Network, train

NEURONS = 3
FOLDS = 10
LEAST = 4  # points per fit
DRAW = 0.95  # a network must beat the line by this factor
# Points: ten weights fit fewer by accident, and cross-validation then tells by accident, too.
LEAST_FOR_NETWORK = 60

Array = NDArray[np.float64]


class Kind(Enum):
    LINE = "line"
    NETWORK = "network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """y = f(x), never negative. `error`: mean relative error in cross-validation, None where there were too few points."""

    kind: Kind
    base: float = 0.0
    slope: float = 0.0
    network: Network | None = None
    highest: float = 0.0  # largest x that was measured
    points: int = 0
    error: float | None = None
    other_error: float | None = None  # of the candidate that was not chosen

    def __call__(self, x: float) -> float:
        return float(self.at(np.array([x], np.float64))[0])

    def at(self, x: Array) -> Array:
        """Vectorised."""
        if self.network is None:
            return np.maximum(0.0, self.base + self.slope * x)
        inside = self.network(np.minimum(x, self.highest)[:, None])[:, 0]
        return np.maximum(0.0, inside + self.slope * np.maximum(0.0, x - self.highest))

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind.value,
            "base": self.base,
            "slope": self.slope,
            "network": self.network.to_json() if self.network is not None else None,
            "highest": self.highest,
            "points": self.points,
            "error": self.error,
            "other_error": self.other_error,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Curve:
        network = value["network"]
        return Curve(
            kind=Kind(value["kind"]),
            base=float(value["base"]),
            slope=float(value["slope"]),
            network=Network.from_json(network) if network is not None else None,
            highest=float(value["highest"]),
            points=int(value["points"]),
            error=value["error"],
            other_error=value["other_error"],
        )


def fit_curve(x: Sequence[float], y: Sequence[float], *, seed: int, networks: bool = True) -> Curve:
    """The better of line and network, by cross-validation. Points without x give a constant of zero."""
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if not len(xs):
        return Curve(kind=Kind.LINE)
    line = _line(xs, ys)
    if len(xs) < 2 * LEAST:
        return line
    line_error = _validated(xs, ys, seed, _line)
    if not networks or len(xs) < LEAST_FOR_NETWORK:
        return _scored(line, line_error, None)
    network_error = _validated(xs, ys, seed, lambda a, b: _network(a, b, seed))
    if network_error < DRAW * line_error:
        return _scored(_network(xs, ys, seed), network_error, line_error)
    return _scored(line, line_error, network_error)


def relative_error(curve: Curve, x: Array, y: Array) -> float:
    """Mean |estimate − measured| / measured, over points large enough for a ratio to mean something."""
    known = y > 0.01 * max(float(y.max(initial=0.0)), 1e-12)
    if not known.any():
        return 0.0
    return float(np.mean(np.abs(curve.at(x[known]) - y[known]) / y[known]))


def _scored(curve: Curve, error: float, other: float | None) -> Curve:
    return replace(curve, error=error, other_error=other)


def _validated(x: Array, y: Array, seed: int, fit: Callable[[Array, Array], Curve]) -> float:
    """Mean relative error on points that were left out, over `FOLDS` folds."""
    order = np.random.default_rng(seed).permutation(len(x))
    folds = np.array_split(order, min(FOLDS, len(x) // LEAST))
    errors = []
    for fold in folds:
        rest = np.setdiff1d(order, fold)
        errors.append(relative_error(fit(x[rest], y[rest]), x[fold], y[fold]))
    return float(np.mean(errors))


def _line(x: Array, y: Array) -> Curve:
    """Least squares with slope and base at least zero: more rows never cost less, and idle is not below nothing."""
    span = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / span if span > 0 else 0.0
    base = float(y.mean() - slope * x.mean())
    if base < 0 or (span == 0 and x.mean() > 0):
        slope, base = float((x * y).sum() / max((x * x).sum(), 1e-12)), 0.0
    if slope < 0:
        slope, base = 0.0, float(y.mean())
    return Curve(kind=Kind.LINE, base=base, slope=slope, highest=float(x.max()), points=len(x))


def _network(x: Array, y: Array, seed: int) -> Curve:
    network = train(x[:, None], y[:, None], neurons=NEURONS, seed=seed, penalty=1e-5)
    high, low = float(x.max()), float(x.min())
    step = max((high - low) * 0.05, 1e-12)
    end, before = network(np.array([[high], [high - step]]))[:, 0]
    slope = max(0.0, float(end - before) / step)
    return Curve(kind=Kind.NETWORK, slope=slope, network=network, highest=high, points=len(x))
