"""Several topologies of one application on the same workers: decided on together, at most one changed a round (paper 1 §IV-A).

Workers are shared, so nobody gives one back that another one wants: there are as many as whoever wants most. A worker that
is given up is left by one topology after the other, and the last to leave gives it back to the cluster.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from updraft.control.loop import ControlLoop
from updraft.control.steering import Round
from updraft.policy.model import Configuration
from updraft.policy.rounds import one_per_round

log = logging.getLogger("updraft.control")


class Together:
    """Ticks the loops of all topologies from one thread. `ask` and `release` are the cluster's."""

    def __init__(self, *, ask: Callable[[int], None], release: Callable[[str], None]) -> None:
        self._ask = ask
        self._release = release
        self._loops: dict[str, ControlLoop] = {}
        self._wants: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._unwanted: set[str] = set()
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def join(self, name: str, loop: ControlLoop) -> None:
        """One more topology; the first one starts the thread."""
        with self._lock:
            self._loops[name] = loop
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="updraft-together", daemon=True)
                self._thread.start()

    def leave(self, name: str) -> None:
        """A topology has ended."""
        with self._lock:
            self._loops.pop(name, None)
            self._wants.pop(name, None)
            self._asked.pop(name, None)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def ask_workers(self, name: str, total: int) -> None:
        """A topology needs so many: whoever needs most counts."""
        self._asked[name] = total
        self._ask(max(self._asked.values()))

    def release(self, worker: str) -> None:
        """A topology has left a worker; the cluster gets it when all have."""
        with self._lock:
            self._unwanted.add(worker)
            users = [name for name, loop in self._loops.items() if worker in loop.planned_workers()]
        if not users:
            self._release(worker)

    def unwanted(self) -> frozenset[str]:
        """Workers that are being left."""
        return frozenset(self._unwanted)

    def tick(self) -> None:
        """One look at all topologies; a round for all of them when it is time for one of them."""
        with self._lock:
            loops = dict(sorted(self._loops.items()))
        for loop in loops.values():
            loop.look()
        if any(loop.due() for loop in loops.values()):
            rounds = {
                name: found for name, loop in loops.items() if (found := loop.decide(now=True)) is not None
            }
            for name, found in self.judged(rounds).items():
                loops[name].carry_out(found)
        for loop in loops.values():
            loop.pursue()

    def judged(self, rounds: Mapping[str, Round]) -> dict[str, Round]:
        """The rounds of all topologies with at most one that changes, and no worker taken from one that wants it."""
        self._wants.update({name: found.decision.workers for name, found in rounds.items()})
        kept = {name: self._not_fewer(name, found) for name, found in rounds.items()}
        decisions = one_per_round(
            {name: found.decision for name, found in kept.items()},
            {name: found.snapshot for name, found in kept.items()},
            {name: found.before.memory for name, found in kept.items()},
        )
        return {
            name: replace(
                found,
                decision=decisions[name],
                after=replace(found.after, memory=decisions[name].memory)
                if found.error is None
                else found.after,
            )
            for name, found in kept.items()
        }

    def _not_fewer(self, name: str, found: Round) -> Round:
        decision, here = found.decision, len(found.snapshot.workers)
        most = max((count for other, count in self._wants.items() if other != name), default=0)
        workers = max(decision.workers, min(most, here))
        if workers == decision.workers:
            return found
        kept = decision.of(Configuration(parallelism=decision.parallelism, workers=workers))
        blocked = f"{decision.workers} workers would do, another topology wants {most}"
        return replace(found, decision=replace(kept, blocked=(*decision.blocked, blocked)))

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            try:
                self.tick()
            except Exception:
                log.exception("the topologies are not steered in this round")
