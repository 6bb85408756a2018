"""Names: safe ones, automatic ones, and that edits elsewhere leave a stateful operator's name alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.topology import Topology, compile_topology
from updraft.topology.names import automatic_names, duplicates, name_problem, safe_label

WORDS = pa.schema([("word", pa.string())])


def count(rows: pa.Table) -> pa.Table:
    return rows


@pytest.mark.parametrize("name", ["a", "A9", "top-k_2", "x" * 64])
def test_safe(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "9a", "-a", "_a", "a.b", "a/b", "..", "a b", "ä", "a\n", "x" * 65, "LOCK", None, 3]
)
def test_unsafe(name: object) -> None:
    assert name_problem(name)


def test_a_lambda_has_no_label() -> None:
    assert safe_label((lambda: None).__name__, "map") == "map"
    assert safe_label("split", "map") == "split"


def test_duplicates_ignore_case() -> None:
    assert duplicates(["a", "b", "A", "a"]) == ("A",)


@given(
    st.lists(st.sampled_from(["count", "Count", "sum", "x" * 64])),
    st.sets(st.sampled_from(["count", "sum-2"])),
)
def test_automatic_names_are_safe_and_unique(labels: list[str], taken: set[str]) -> None:
    names = list(automatic_names(enumerate(labels), taken).values())
    assert len(names) == len(labels)
    assert all(name_problem(name) is None for name in names)
    assert duplicates([*names, *taken]) == ()


def test_operators_of_one_label_are_numbered() -> None:
    app = Topology("numbers")
    words = app.source("words", object(), WORDS)
    for sink in ("a", "b", "c"):
        words.key_by("word").count().sink(sink, print)
    assert [node.name for node in compile_topology(app).stateful] == ["count", "count-2", "count-3"]


def test_a_stateless_operator_never_renames_a_stateful_one() -> None:
    app = Topology("stable")
    words = app.source("words", object(), WORDS)
    words.map(count).key_by("word").count().sink("out", print)
    assert [node.name for node in compile_topology(app).nodes] == ["words", "count-2", "count"]
