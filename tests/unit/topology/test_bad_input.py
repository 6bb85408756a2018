"""Every bad input there is a rule for: the problem names who is to blame and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from updraft.errors import InvalidTopology
from updraft.operators import KeyedOperator, ObjectOperator
from updraft.topology import Stream, Topology, aggregates, compile_records, compile_topology
from updraft.topology.records import Input, MapRecord, Options, SinkRecord, SourceRecord

COLUMNS = pa.schema(
    [
        ("word", pa.string()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32())])),
        ("attributes", pa.map_(pa.string(), pa.string())),
        ("day", pa.date32()),
        ("code", pa.dictionary(pa.int32(), pa.string())),
    ]
)


class Seen(KeyedOperator):
    state = pa.schema({"n": pa.int64()})
    output = pa.schema({"word": pa.string(), "n": pa.int64()})

    def process(self, rows: pa.Table, ctx: Any) -> pa.Table:
        return rows


class Total(ObjectOperator):
    output = pa.schema({"total": pa.int64()})

    def process(self, rows: pa.Table, ctx: Any) -> pa.Table:
        return rows


class NeedsArgument(Seen):
    def __init__(self, limit: int) -> None:
        self.limit = limit


class VagueOutput(Seen):
    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return None


class BrokenOutput(Seen):
    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        raise ValueError("no idea")


class WithoutState(KeyedOperator):
    output = pa.schema({"word": pa.string()})

    def process(self, rows: pa.Table, ctx: Any) -> pa.Table:
        return rows


def same(rows: pa.Table) -> pa.Table:
    return rows


def fails(rows: pa.Table) -> pa.Table:
    raise ValueError("needs rows")


def renamed(*names: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.select([0, 1]).rename_columns(list(names))


def picked(*names: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.select(list(names))


def problems(write: Callable[[Stream, Topology], object], topology: str = "shop") -> tuple[str, ...]:
    app = Topology(topology)
    write(app.source("lines", object(), COLUMNS), app)
    with pytest.raises(InvalidTopology) as caught:
        app.validate()
    return caught.value.problems


def ended(stream: Stream) -> None:
    stream.sink("out", print)


BAD: dict[str, tuple[Callable[[Stream, Topology], object], tuple[str, ...]]] = {
    "unsafe operator name": (
        lambda s, a: ended(s.key_by("word").count(name="a/b")),
        ("operator 'a/b'", "unsafe name", "use a letter"),
    ),
    "name with a line break": (lambda s, a: ended(s.map(same, name="a\n")), ("unsafe name",)),
    "name that is no text": (lambda s, a: ended(s.map(same, name=7)), ("operator 7", "must be a string")),
    "reserved name": (lambda s, a: ended(s.map(same, name="Spark")), ("reserved",)),
    "unsafe sink name": (lambda s, a: s.sink("..", print), ("sink '..'", "unsafe name")),
    "unsafe source name": (
        lambda s, a: ended(s.merge(a.source("1st", object(), COLUMNS))),
        ("source '1st'", "unsafe name"),
    ),
    "duplicate operator names": (
        lambda s, a: ended(s.map(same, name="copy").map(same, name="Copy")),
        ("'Copy' is used by several", "rename"),
    ),
    "operator called like its source": (
        lambda s, a: ended(s.map(same, name="lines")),
        ("'lines' is used by several", "rename"),
    ),
    "duplicate sink names": (lambda s, a: [ended(s), ended(s)], ("'out' is used by several sinks", "rename")),
    "unknown key column": (
        lambda s, a: ended(s.key_by("wrod").count()),
        ("operator 'count'", "unknown column 'wrod'", "Did you mean 'word'?", "word, price"),
    ),
    "no key column": (lambda s, a: ended(s.key_by().count()), ("key_by() without columns",)),
    "key column twice": (lambda s, a: ended(s.key_by("word", "word").count()), ("repeats a column",)),
    "key that is no text": (lambda s, a: ended(s.key_by(3).count()), ("key_by(3)", "string")),  # type: ignore[arg-type]
    "list as key": (lambda s, a: ended(s.key_by("tags").count()), ("'tags' of type list", "cannot be a key")),
    "struct as key": (lambda s, a: ended(s.key_by("place").count()), ("'place'", "cannot be a key")),
    "map as key": (lambda s, a: ended(s.key_by("attributes").count()), ("'attributes'", "cannot be a key")),
    "dictionary as key": (lambda s, a: ended(s.key_by("code").count()), ("'code'", "cannot be a key")),
    "key of a custom operator": (
        lambda s, a: ended(s.key_by("word", "prise").process(Seen)),
        ("operator 'Seen'", "Did you mean 'price'?"),
    ),
    "unknown aggregate column": (
        lambda s, a: ended(s.key_by("word").sum("prize")),
        ("operator 'sum'", "unknown column 'prize' in sum(prize)", "Did you mean 'price'?"),
    ),
    "sum of text": (lambda s, a: ended(s.key_by("day").sum("word")), ("sum(word) needs a numeric", "cast")),
    "mean of a date": (
        lambda s, a: ended(s.key_by("word").mean("day")),
        ("mean(day) needs a numeric", "cast"),
    ),
    "least of structs": (lambda s, a: ended(s.key_by("word").min("place")), ("operator 'min'", "no order")),
    "aggregate without column": (
        lambda s, a: ended(s.key_by("word").aggregate(n=aggregates.Agg(aggregates.AggFn.SUM))),
        ("sum() needs a column",),
    ),
    "aggregate of a number": (
        lambda s, a: ended(s.key_by("word").aggregate(n=aggregates.sum(4))),  # type: ignore[arg-type]
        ("sum(4) must name a column",),
    ),
    "aggregate of nothing": (lambda s, a: ended(s.key_by("word").aggregate()), ("nothing to aggregate",)),
    "no aggregate": (
        lambda s, a: ended(s.key_by("word").aggregate(paralelism=3)),  # type: ignore[arg-type]
        ("paralelism=3 is no aggregate",),
    ),
    "output column is a key": (
        lambda s, a: ended(s.key_by("word").count("word")),
        ("output column 'word' is also a key column", "another name"),
    ),
    "reserved output column": (lambda s, a: ended(s.key_by("word").count("__n")), ("'__n'", "reserved")),
    "more instances than tasks": (
        lambda s, a: ended(s.key_by("word").count(tasks=4, parallelism=5)),
        ("operator 'count'", "parallelism=5 is more than its 4 tasks", "raise tasks"),
    ),
    "more instances than default tasks": (
        lambda s, a: ended(s.key_by("word").count(parallelism=33)),
        ("parallelism=33 is more than its 32 tasks",),
    ),
    "highest above tasks": (
        lambda s, a: ended(s.key_by("word").count(tasks=4, max_parallelism=5)),
        ("max_parallelism=5 is more than its 4 tasks",),
    ),
    "lowest above highest": (
        lambda s, a: ended(s.map(same, min_parallelism=3, max_parallelism=2)),
        ("operator 'same'", "min_parallelism=3 is more than max_parallelism=2"),
    ),
    "below the lowest": (
        lambda s, a: ended(s.map(same, parallelism=1, min_parallelism=2)),
        ("parallelism=1 must be at least 2",),
    ),
    "above the highest": (
        lambda s, a: ended(s.key_by("word").count(parallelism=4, max_parallelism=3)),
        ("parallelism=4 must be between 1 and 3",),
    ),
    "negative number": (lambda s, a: ended(s.key_by("word").count(tasks=-1)), ("tasks=-1", "at least 1")),
    "zero": (lambda s, a: ended(s.key_by("word").count(replicas=0)), ("replicas=0", "at least 1")),
    "fraction": (
        lambda s, a: ended(s.map(same, parallelism=2.0)),  # type: ignore[arg-type]
        ("parallelism=2.0", "whole number"),
    ),
    "truth for a number": (lambda s, a: ended(s.map(same, parallelism=True)), ("parallelism=True", "whole")),
    "unknown option": (
        lambda s, a: ended(s.key_by("word").count(paralelism=2)),  # type: ignore[call-arg]
        ("operator 'count'", "unknown option 'paralelism'", "Did you mean 'parallelism'?"),
    ),
    "tasks of a map": (
        lambda s, a: ended(s.map(same, tasks=2)),  # type: ignore[call-arg]
        ("operator 'same'", "tasks is for stateful operators only"),
    ),
    "several instances behind to_one": (
        lambda s, a: ended(s.to_one().process(Total, parallelism=2)),
        ("operator 'Total'", "parallelism=2", "to_one()"),
    ),
    "state behind broadcast": (
        lambda s, a: ended(s.broadcast().process(Total)),
        ("operator 'Total'", "broadcast()", "use to_one()"),
    ),
    "keyed operator without key": (
        lambda s, a: ended(s.process(Seen)),
        ("operator 'Seen'", "call key_by(...)"),
    ),
    "operator that leads nowhere": (
        lambda s, a: [ended(s), s.map(same)],
        ("operator 'same' leads nowhere", "sink()"),
    ),
    "source that leads nowhere": (
        lambda s, a: [ended(s), a.source("idle", object())],
        ("source 'idle' leads nowhere",),
    ),
    "transform that leads nowhere": (
        lambda s, a: [ended(s), s.transform(lambda df: df)],
        ("transform 1 of source 'lines' leads nowhere",),
    ),
    "no sink": (lambda s, a: s, ("no sink", ".sink(")),
    "merge of different columns": (
        lambda s, a: ended(s.merge(a.source("b", object(), pa.schema([("word", pa.int64())])))),
        (
            "sink 'out'",
            "source 'lines'",
            "source 'b'",
            "'price' only in the first",
            "'word' is string in the",
        ),
    ),
    "merge of another order": (
        lambda s, a: ended(s.map(picked("word", "day")).merge(s.map(picked("day", "word"), name="m"))),
        ("operator 'map' and operator 'm'", "order of columns: word, day against day, word"),
    ),
    "merge with itself": (lambda s, a: ended(s.merge(s)), ("sink 'out'", "source 'lines' twice")),
    "merge with another topology": (
        lambda s, a: ended(s.merge(Topology("other").source("x", object()))),
        ("topology 'other'", "one topology"),
    ),
    "merge with a keyed stream": (
        lambda s, a: ended(s.merge(s.key_by("word"))),
        ("merge first, then key_by",),
    ),
    "transform after an operator": (
        lambda s, a: ended(s.map(same).transform(lambda df: df)),
        ("transform behind operator 'same'", "use map()", "move the transform before"),
    ),
    "grouping before a sink": (lambda s, a: ended(s.shuffle()), ("sink 'out'", "shuffle grouping", "remove")),
    "reserved column of a map": (
        lambda s, a: ended(s.map(renamed("a", "__hash"))),
        ("operator 'map'", "'__hash'", "reserved"),
    ),
    "duplicate columns": (
        lambda s, a: ended(s.map(renamed("a", "a"), name="twin").key_by("b").count()),
        ("operator 'twin'", "duplicate column names a", "rename"),
    ),
    "map that needs rows": (
        lambda s, a: ended(s.map(fails)),
        ("operator 'fails'", "ValueError: needs rows", "declare schema="),
    ),
    "map that returns nothing": (
        lambda s, a: ended(s.map(lambda rows: None)),
        ("operator 'map'", "returned NoneType", "declare schema="),
    ),
    "map that returns rows": (
        lambda s, a: ended(s.map(lambda rows: rows.to_pylist())),
        ("returned list, not a pyarrow.Table", "declare schema="),
    ),
    "map that is no function": (lambda s, a: ended(s.map("upper")), ("'upper' is not callable",)),  # type: ignore[arg-type]
    "filter that is no function": (lambda s, a: ended(s.filter(3)), ("3 is not callable",)),  # type: ignore[arg-type]
    "filter of an unknown column": (
        lambda s, a: ended(s.filter(lambda rows: pc.equal(rows["wrod"], "a"))),
        ("operator 'filter'", "wrod"),
    ),
    "schema that is none": (
        lambda s, a: ended(s.map(same, schema={"a": pa.int64()})),
        ("operator 'same'", "schema= must be a pyarrow.Schema"),
    ),
    "no operator": (
        lambda s, a: ended(s.key_by("word").process(object())),
        ("operator 'object'", "subclass"),
    ),
    "class that is no operator": (lambda s, a: ended(s.key_by("word").process(dict)), ("'dict'", "subclass")),
    "operator class with arguments": (
        lambda s, a: ended(s.key_by("word").process(NeedsArgument)),
        ("operator 'NeedsArgument'", "pass an instance"),
    ),
    "operator without output columns": (
        lambda s, a: ended(s.key_by("word").process(VagueOutput)),
        ("operator 'VagueOutput'", "returned NoneType", "set the operator's `output`"),
    ),
    "operator whose output columns fail": (
        lambda s, a: ended(s.key_by("word").process(BrokenOutput)),
        ("operator 'BrokenOutput'", "ValueError: no idea"),
    ),
    "keyed operator without state": (
        lambda s, a: ended(s.key_by("word").process(WithoutState)),
        ("operator 'WithoutState'", "declares no state"),
    ),
    "unknown kind of sink": (
        lambda s, a: s.sink("out", "console"),
        ("sink 'out'", "unknown kind of sink str"),
    ),
    "sink class instead of sink": (lambda s, a: s.sink("out", dict), ("sink 'out'", "unknown kind of sink")),
    "source of text": (
        lambda s, a: ended(s.merge(a.source("path", "/tmp/x", COLUMNS))),
        ("no source", "DataFrame"),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_one_problem_names_who_and_the_remedy(case: str) -> None:
    write, words = BAD[case]
    found = problems(write)
    matching = [problem for problem in found if all(word in problem for word in words)]
    assert len(matching) == 1, found


@pytest.mark.parametrize("case", [case for case in BAD if case != "no sink"])
def test_one_mistake_is_one_problem(case: str) -> None:
    assert len(problems(BAD[case][0])) == 1


def test_topology_without_source() -> None:
    with pytest.raises(InvalidTopology, match="no source"):
        Topology("empty").validate()


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "none"])
def test_unsafe_topology_name(name: str) -> None:
    assert any(f"topology {name!r}" in problem for problem in problems(lambda s, a: ended(s), name))


def test_cycle_in_records_is_named_and_refused() -> None:
    records = (
        SourceRecord(id=0, name="lines", frame=object(), schema=COLUMNS),
        MapRecord(
            id=1, inputs=(Input(producer=0), Input(producer=2)), fn=same, label="m", options=Options(name="a")
        ),
        MapRecord(id=2, inputs=(Input(producer=1),), fn=same, label="m", options=Options(name="b")),
        SinkRecord(id=3, inputs=(Input(producer=2),), name="out", target=print),
    )
    with pytest.raises(InvalidTopology, match="cycle: operator 'a' -> operator 'b' -> operator 'a'"):
        compile_records("loop", records, {})


def test_record_that_reads_from_nowhere_is_refused() -> None:
    records = (
        SourceRecord(id=0, name="lines", frame=object(), schema=COLUMNS),
        SinkRecord(id=1, inputs=(Input(producer=9), Input(producer=0)), name="out", target=print),
    )
    with pytest.raises(InvalidTopology, match="sink 'out' reads from record 9"):
        compile_records("hole", records, {})


def test_declared_schema_that_spark_contradicts() -> None:
    app = Topology("shop")
    ended(app.source("lines", object(), pa.schema([("word", pa.string())])))
    with pytest.raises(
        InvalidTopology, match=r"not what Spark delivers.*'word' is string in the first and int64"
    ):
        app.validate({"lines": pa.schema([("word", pa.int64())])})


def test_schema_of_a_source_that_is_not_there() -> None:
    app = Topology("shop")
    ended(app.source("lines", object(), COLUMNS))
    with pytest.raises(InvalidTopology, match=r"no source 'line'\. Did you mean 'lines'"):
        app.validate({"line": COLUMNS})


def test_unknown_source_schema_skips_column_checks_but_not_compilation() -> None:
    app = Topology("shop")
    lines = app.source("lines", object())
    ended(lines.transform(lambda df: df).map(fails).key_by("anything").sum("at_all"))
    app.validate()
    with pytest.raises(InvalidTopology, match=r"transform\(\) of source 'lines'.*'lines.1'") as caught:
        compile_topology(app)
    assert len(caught.value.problems) == 1


def test_all_problems_of_one_program_at_once() -> None:
    app = Topology("my shop")
    lines = app.source("lines", object(), COLUMNS)
    app.source("idle", object())
    lines.key_by("wrod").count(name="by word").sink("out", print)
    lines.key_by("tags").sum("word", tasks=4, parallelism=8).sink("out", print)
    lines.map(fails, min_parallelism=4, max_parallelism=2).sink("failing", "console")
    lines.map(same, parallelism=-2)
    with pytest.raises(InvalidTopology) as caught:
        app.validate()
    expected = (
        "topology 'my shop': unsafe name",
        "source 'idle' leads nowhere",
        "operator 'by word': unsafe name",
        "unknown column 'wrod'",
        "'out' is used by several sinks",
        "'tags' of type list",
        "sum(word) needs a numeric column",
        "parallelism=8 is more than its 4 tasks",
        "min_parallelism=4 is more than max_parallelism=2",
        "declare schema=",
        "unknown kind of sink",
        "parallelism=-2",
        "operator 'same' leads nowhere",
    )
    text = str(caught.value)
    assert [word for word in expected if word not in text] == []
    assert len(caught.value.problems) == len(expected)
