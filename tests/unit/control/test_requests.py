"""Requests are read from JSON with all problems at once, and written back."""

from __future__ import annotations

from typing import Any

import pytest

from updraft.control import BadRequest, Drain, Move, PlaceAgain, Request, Rescale
from updraft.control.requests import parse_request, request_text


@pytest.mark.parametrize(
    ("kind", "request_", "text"),
    [
        ("rescale", Rescale(parallelism={"b": 2, "a": 4}, strategy="batched:3"), "rescale a=4 b=2"),
        ("move", Move(operator="a", tasks=(3, 7, 8), to_worker="2"), "move a:3,7-8 --to 2"),
        ("drain", Drain(worker="1", release=False), "drain 1 --no-release"),
        ("place", PlaceAgain(placement="traffic:2", strategy="one_by_one"), "place --strategy traffic:2"),
    ],
)
def test_what_is_written_is_read_back(kind: str, request_: Request, text: str) -> None:
    assert parse_request(kind, request_.to_json()) == request_
    assert request_text(request_.to_json()) == text


def test_what_may_be_left_out() -> None:
    assert parse_request("drain", {"worker": "1"}) == Drain(worker="1", strategy="all_at_once", release=True)
    moved = parse_request("move", {"operator": "a", "tasks": [8, 7, 8], "to_worker": "2"})
    assert moved == Move(operator="a", tasks=(7, 8), to_worker="2")


def problems(kind: str, body: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(BadRequest) as caught:
        parse_request(kind, body)
    return caught.value.problems


def test_all_problems_are_told_at_once() -> None:
    found = problems("rescale", {"parallelism": {"a": 0, "b": True, "": 1}, "strategy": "fast", "speed": 9})
    assert len(found) == 5
    assert "names no operator: ''" in found[0]
    assert found[1].startswith("operator 'a': parallelism must be a whole number of at least 1, not 0")
    assert found[2].startswith("operator 'b'")
    assert "batched:K" in found[3]
    assert found[4] == "unknown field 'speed'; there are kind, parallelism, strategy"


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("rescale", {}, 1),
        ("rescale", {"parallelism": {}}, 1),
        ("rescale", {"parallelism": [1]}, 1),
        ("rescale", {"parallelism": {"a": 1}, "strategy": None}, 1),
        ("rescale", {"parallelism": {"a": 1}, "strategy": "batched:0"}, 1),
        ("rescale", {"parallelism": {"a": 1}, "strategy": "batched:" + "9" * 5000}, 1),
        ("rescale", {"parallelism": {"a": 1}, "kind": "move"}, 1),
        ("move", {}, 3),
        ("move", {"operator": 1, "tasks": [-1], "to_worker": 2}, 3),
        ("move", {"operator": "a", "tasks": [], "to_worker": "2"}, 1),
        ("move", {"operator": "a", "tasks": ["1"], "to_worker": "2\n"}, 2),
        ("drain", {"worker": "1", "release": 1}, 1),
        ("explode", {}, 1),
    ],
)
def test_what_is_no_request(kind: str, body: dict[str, Any], count: int) -> None:
    assert len(problems(kind, body)) == count


def test_an_unknown_placement_lists_the_known_ones() -> None:
    (found,) = problems("place", {"placement": "trafic"})
    assert "choose one of: even, replica_aware, resource, separated, sticky, traffic" in found
    assert problems("place", {}) == ("'placement' is missing; it must be a placement's name such as traffic",)
