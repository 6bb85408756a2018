"""Thresholds by Q-learning (paper 5 §5.1): which value of a threshold pays best, found by trying.

State: the threshold in use, on a grid. Action: one step down, stay, one step up. Reward after an episode with a threshold: the
paper's R(threshold) = threshold − throughput degradation: as much use of the hardware as costs no throughput. ε-greedy, with
ε and the learning rate falling. Pure: what an episode gives is asked of `trial`, the rest is a seed.

Deviation: an episode is whatever `trial` does (a run of the virtual cluster, or minutes of a real one); a threshold that was
tried before is not run again, its degradation is remembered, because episodes are dear and the trial is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from updraft.errors import UpdraftError

GRID = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))  # 0.50 … 0.95
ACTIONS = (-1, 0, 1)


class TuningError(UpdraftError):
    """A tuning that cannot work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What was found. `degradation` and `reward` by threshold that was tried."""

    best: float
    degradation: Mapping[float, float]
    reward: Mapping[float, float]
    values: Mapping[tuple[float, int], float]  # Q by (threshold, action)


def tune(
    trial: Callable[[float], float],
    *,
    seed: int,
    grid: Sequence[float] = GRID,
    episodes: int = 60,
    discount: float = 0.5,
    exploring: float = 0.9,
) -> Tuning:
    """Learn the threshold with the largest reward. `trial(threshold)` gives the throughput degradation of an episode."""
    if len(grid) < 2 or sorted(set(grid)) != list(grid):
        raise TuningError("a grid needs at least two thresholds, in ascending order and different")
    if not 0 <= discount < 1:
        raise TuningError(f"discount = {discount} must be at least 0 and less than 1")
    if episodes < 1:
        raise TuningError(f"{episodes} episodes learn nothing; at least 1 is needed")
    random = Random(seed)
    known: dict[float, float] = {}
    # Hopeful at first: what was never tried looks best, so that no threshold is passed over.
    hope = grid[-1] / (1 - discount)
    values = {(state, action): hope for state in range(len(grid)) for action in _allowed(state, len(grid))}
    state = random.randrange(len(grid))
    for episode in range(episodes):
        left = 1 - episode / episodes
        action = _action(values, state, len(grid), random, exploring * left)
        after = state + action
        if grid[after] not in known:
            known[grid[after]] = trial(grid[after])
        gain = grid[after] - known[grid[after]]
        future = max(values[after, a] for a in _allowed(after, len(grid)))
        rate = max(0.1, left)
        values[state, action] += rate * (gain + discount * future - values[state, action])
        state = after
    reward = {threshold: threshold - lost for threshold, lost in sorted(known.items())}
    return Tuning(
        best=max(reward, key=lambda threshold: (reward[threshold], -threshold)),
        degradation=dict(sorted(known.items())),
        reward=reward,
        values={(grid[at], action): value for (at, action), value in sorted(values.items())},
    )


def _allowed(state: int, states: int) -> tuple[int, ...]:
    return tuple(action for action in ACTIONS if 0 <= state + action < states)


def _action(
    values: Mapping[tuple[int, int], float], state: int, states: int, random: Random, exploring: float
) -> int:
    allowed = _allowed(state, states)
    if random.random() < exploring:
        return random.choice(allowed)
    return max(allowed, key=lambda action: (values[state, action], -abs(action), action))
