"""What goes wrong next, drawn from a seed. Pure: a seed gives the same events in the same order, wherever it is played.

Events come after so many committed batches, not after so many seconds: on a busy machine everything is slower alike.
Workers are drawn as numbers between 0 and 1, because their names are not known beforehand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What happens."""

    KILL = "kill"  # SIGKILL of workers
    FREEZE = "freeze"  # SIGSTOP of a worker, SIGCONT later: perhaps before it counts as lost, perhaps after
    RESTART = "restart"  # SIGKILL of the driver, which is started again
    RESCALE = "rescale"
    MOVE = "move"
    DRAIN = "drain"


CHANGES = (Kind.RESCALE, Kind.MOVE, Kind.DRAIN)
_WEIGHTS = {Kind.KILL: 6, Kind.FREEZE: 2, Kind.RESTART: 2, Kind.RESCALE: 3, Kind.MOVE: 2, Kind.DRAIN: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happens when so many batches more are committed."""

    after_batches: int
    kind: Kind
    picks: tuple[float, ...]  # which workers, tasks and numbers, each a share of how many there are
    frozen_s: float = 0.0

    def pick(self, number: int, among: list[str]) -> str:
        """One of these."""
        return among[int(self.picks[number] * len(among))]


def draw(seed: int, *, replicas: int, hang_timeout_s: float) -> Iterator[Event]:
    """Events without end. Mostly as many workers die at once as copies can bear, at times one more."""
    chance = random.Random(seed)
    kinds = list(_WEIGHTS)
    first = True
    while True:
        # The first event is always a kill, so that even the shortest run has one.
        kind = Kind.KILL if first else chance.choices(kinds, [_WEIGHTS[one] for one in kinds])[0]
        first = False
        victims = chance.randint(1, max(1, replicas - 1)) + (chance.random() < 0.15)
        yield Event(
            after_batches=chance.randint(1, 6),
            kind=kind,
            picks=tuple(chance.random() for _ in range(victims if kind is Kind.KILL else 4)),
            frozen_s=chance.uniform(0.2, 2.0) * hang_timeout_s,
        )
