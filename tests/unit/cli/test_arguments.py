"""Words after a command: APP may be left out, and what is wrong is named with an example."""

from __future__ import annotations

import pytest

from updraft.cli.arguments import parse_drain, parse_move, parse_rescale
from updraft.errors import UpdraftError


def test_rescale() -> None:
    assert parse_rescale(["orders", "count=4", "top = 2"]) == ("orders", {"count": 4, "top": 2})
    assert parse_rescale(["count=4"]) == (None, {"count": 4})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no operator is given"),
        (["orders"], "no operator is given"),
        (["orders", "count=x", "=3", "top"], "'count=x' is not OP=N; '=3' is not OP=N; 'top' is not OP=N"),
        (["a=1", "a=2"], "operator 'a' is given twice"),
        (["a=-1"], "'a=-1' is not OP=N"),
        (["a=" + "1" * 5000], "is not OP=N"),
    ],
)
def test_no_rescale(words: list[str], told: str) -> None:
    with pytest.raises(UpdraftError, match="updraft rescale APP count=4") as caught:
        parse_rescale(words)
    assert told in str(caught.value)


def test_move() -> None:
    assert parse_move(["orders", "count:7,3-5"]) == ("orders", "count", (3, 4, 5, 7))
    assert parse_move(["count:7"]) == (None, "count", (7,))


@pytest.mark.parametrize("words", [["count"], ["count:"], [":7"], ["a", "b:1", "c:2"], ["a:9-1"], ["a:x"]])
def test_no_move(words: list[str]) -> None:
    with pytest.raises(UpdraftError, match="updraft move APP count:7,8 --to 2"):
        parse_move(words)


def test_drain() -> None:
    assert parse_drain(["orders", "2"]) == ("orders", "2")
    assert parse_drain(["2"]) == (None, "2")
    with pytest.raises(UpdraftError, match="updraft drain APP 2"):
        parse_drain(["a", "b", "c"])
