"""A small neural network with one hidden layer: trained by scikit-learn, kept and evaluated as plain numbers.

The papers' networks (13-24-5 for input load, 1-3-1 for CPU curves) are tiny, so a forward pass is two matrix products and
needs no library; weights are JSON, never a pickle, so a profile can be read by people and cannot run code.

Deviations from paper 5 §5.1: linear output instead of tanh (a load above the training maximum must not be cut off), L-BFGS
instead of resilient backpropagation (scikit-learn has no Rprop; on a few hundred samples L-BFGS converges better than SGD).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Min-max normalisation to [0, 1], column by column."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def into(self, values: Array) -> Array:
        low, span = self._span()
        return np.asarray((values - low) / span, dtype=np.float64)

    def back(self, values: Array) -> Array:
        low, span = self._span()
        return np.asarray(values * span + low, dtype=np.float64)

    def _span(self) -> tuple[Array, Array]:
        low, high = np.array(self.low), np.array(self.high)
        return low, np.where(high > low, high - low, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Weights of a trained network, as nested tuples so that it is a frozen value."""

    inputs: Scale
    outputs: Scale
    hidden: tuple[tuple[float, ...], ...]  # inputs × neurons
    hidden_bias: tuple[float, ...]
    output: tuple[tuple[float, ...], ...]  # neurons × outputs
    output_bias: tuple[float, ...]

    def __call__(self, rows: Array) -> Array:
        """One row of outputs per row of inputs."""
        hidden = np.tanh(self.inputs.into(rows) @ np.array(self.hidden) + np.array(self.hidden_bias))
        return self.outputs.back(hidden @ np.array(self.output) + np.array(self.output_bias))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "inputs": [self.inputs.low, self.inputs.high],
            "outputs": [self.outputs.low, self.outputs.high],
            "hidden": self.hidden,
            "hidden_bias": self.hidden_bias,
            "output": self.output,
            "output_bias": self.output_bias,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Network:
        """Inverse of `to_json`."""
        return Network(
            inputs=Scale(low=_row(value["inputs"][0]), high=_row(value["inputs"][1])),
            outputs=Scale(low=_row(value["outputs"][0]), high=_row(value["outputs"][1])),
            hidden=tuple(_row(row) for row in value["hidden"]),
            hidden_bias=_row(value["hidden_bias"]),
            output=tuple(_row(row) for row in value["output"]),
            output_bias=_row(value["output_bias"]),
        )


def train(
    x: Array, y: Array, *, neurons: int, seed: int, penalty: float = 1e-4, rounds: int = 500
) -> Network:
    """Fit a network of inputs-neurons-outputs; the same data and seed give the same weights."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor
    from threadpoolctl import threadpool_limits

    inputs, outputs = _scale(x), _scale(y)
    model = MLPRegressor(
        hidden_layer_sizes=(neurons,),
        activation="tanh",
        solver="lbfgs",
        alpha=penalty,
        max_iter=rounds,
        random_state=seed,
    )
    targets = outputs.into(y)
    # Threads only get in each other's way on matrices this small: one is ten times quicker than two.
    with warnings.catch_warnings(), threadpool_limits(1):
        # A fit that is still improving after `rounds` is good enough; cross-validation judges it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(inputs.into(x), targets if targets.shape[1] > 1 else targets[:, 0])
    return Network(
        inputs=inputs,
        outputs=outputs,
        hidden=tuple(_row(row) for row in model.coefs_[0]),
        hidden_bias=_row(model.intercepts_[0]),
        output=tuple(_row(row) for row in model.coefs_[1]),
        output_bias=_row(model.intercepts_[1]),
    )


def _scale(values: Array) -> Scale:
    return Scale(low=_row(values.min(axis=0)), high=_row(values.max(axis=0)))


def _row(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
