"""Several topologies on the same workers: one change a round, no worker taken from who wants it."""

from __future__ import annotations

from typing import Any

from tests.unit.control.steered import Scene, scene, worker

from updraft.control import Replan
from updraft.control.together import Together


class World:
    """Two scenes on one clock and the same workers."""

    def __init__(self, one: list[Any], other: list[Any], *, workers: int = 2) -> None:
        self.asked: list[int] = []
        self.released: list[str] = []
        self.together = Together(ask=self.asked.append, release=self.released.append)
        self.scenes: dict[str, Scene] = {}
        for name, wants in (("a", one), ("b", other)):
            found = scene(wants, workers=workers, parallelism=workers)
            found.loop.pursuit.ask_workers = lambda total, name=name: self.together.ask_workers(name, total)  # type: ignore[misc]
            self.scenes[name] = found
            self.together._loops[name] = found.loop

    def round(self) -> None:
        for found in self.scenes.values():
            found.clock.advance(10)
        for _ in range(2):
            self.together.tick()


def test_at_most_one_is_changed_in_a_round() -> None:
    world = World([{"parallelism": {"count": 3}}], [{"parallelism": {"count": 4}}])
    world.round()
    assert [len(found.run.asked) for found in world.scenes.values()] == [1, 0]
    waiting = world.scenes["b"].loop.decisions.newest(1)[0]
    assert "topology 'a' is changed in this round" in waiting.blocked[-1]


def test_nobody_gives_back_a_worker_that_another_one_wants() -> None:
    world = World([{"parallelism": {"count": 1}, "workers": 1}], [{"workers": 2}])
    world.round()
    (request,) = world.scenes["a"].run.asked
    assert request == Replan(parallelism={"count": 1})
    assert world.released == []


def test_the_largest_wish_is_asked_for() -> None:
    world = World([{"workers": 3}, None], [None, {"workers": 4}])
    world.round()
    world.round()
    assert world.asked == [3, 4]


def test_the_last_one_to_leave_a_worker_gives_it_back() -> None:
    world = World([{"parallelism": {"count": 1}, "workers": 1}], [{"workers": 1}])
    one, other = world.scenes["a"].run, world.scenes["b"].run
    world.round()
    assert one.asked == [Replan(parallelism={"count": 1}, release=("2",))]
    world.together.release("2")  # what the runtime does when the change is done
    assert world.released == []  # the other one still uses it
    assert world.together.unwanted() == {"2"}
    other.workers, other.leaving = (worker(1),), ("2",)
    world.round()
    assert other.asked == [Replan(parallelism={}, release=("2",))]
    world.together.release("2")
    assert world.released == ["2"]
