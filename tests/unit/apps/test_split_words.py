from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from updraft.apps.wordcount import WORDS, split_words

_LINES = st.lists(st.none() | st.text(alphabet=st.sampled_from("ab  é漢🎈"), max_size=12), max_size=12)


def plain(lines: list[str | None]) -> list[str]:
    return [word for line in lines if line is not None for word in line.split(" ") if word]


def split(values: pa.Array | pa.ChunkedArray) -> list[str]:
    words = split_words(pa.table({"value": values}))
    assert words.schema == WORDS
    words.validate(full=True)
    return words.column("word").to_pylist()


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        [None],
        ["", None, ""],
        [" "],
        ["   ", "  "],
        ["one"],
        ["one two"],
        ["one", "two"],
        [" leading", "trailing ", "dou  ble"],
        ["", "after an empty line", "", ""],
        ["naïve café 漢字 🎈🎈", "日本語"],
        ["a", None, "b c", None],
    ],
)
def test_words_are_what_python_finds(lines: list[str | None]) -> None:
    assert split(pa.array(lines, pa.string())) == plain(lines)


@given(_LINES)
def test_any_text(lines: list[str | None]) -> None:
    assert split(pa.array(lines, pa.string())) == plain(lines)


@given(_LINES, st.integers(0, 12), st.integers(0, 12))
def test_slices_see_only_their_own_lines(lines: list[str | None], start: int, length: int) -> None:
    sliced = pa.array(lines, pa.string()).slice(min(start, len(lines)), length)
    assert split(sliced) == plain(sliced.to_pylist())


@pytest.mark.parametrize(
    "type_", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_other_string_types(type_: pa.DataType) -> None:
    lines = ["a b", None, "", "c"]
    assert split(pa.array(lines, pa.string()).cast(type_)) == plain(lines)


def test_several_chunks() -> None:
    chunks = pa.chunked_array([["a b"], [], ["c", None], ["d "]], pa.string())
    assert split(chunks) == ["a", "b", "c", "d"]


def test_no_chunk_at_all() -> None:
    assert split(pa.chunked_array([], pa.string())) == []
