"""Aggregation equals a plain recomputation after every batch, however rows are split, combined and mixed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.fakes import DictTable, context, dict_tables, plain
from tests.unit.operators.oracle import recompute, same

from updraft.operators import Aggregate, Combiner, SumOverflow, problems
from updraft.operators.context import StateTable
from updraft.state import KeyedTable, Level, LocalStore
from updraft.state.keys import hash_keys
from updraft.topology import aggregates as ud

NAN, INF = float("nan"), float("inf")
INT64 = st.integers(-(2**40), 2**40)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i64": (pa.int64(), INT64),
    "u32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "u64": (pa.uint64(), st.integers(0, 2**53)),
    "f32": (pa.float32(), st.sampled_from([0.5, -1.25, NAN, INF])),
    "f64": (pa.float64(), st.sampled_from([0.1, -7.5, 1e9, NAN, INF, -INF]) | st.floats(-1e6, 1e6)),
    "dec": (pa.decimal128(20, 3), st.decimals(-(10**12), 10**12, places=3)),
    "dec9": (pa.decimal128(9, 0), st.integers(-(10**8), 10**8).map(Decimal)),
}
ORDERED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "s": (pa.string(), st.text(max_size=3)),
    "ls": (pa.large_string(), st.text("ab", max_size=3)),
    "sv": (pa.string_view(), st.text("ab", max_size=20)),
    "b": (pa.binary(), st.binary(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "ts": (pa.timestamp("us"), st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))),
    "dur": (pa.duration("us"), st.integers(-5, 5).map(lambda us: timedelta(microseconds=us))),
}
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "k_int": (pa.int64(), st.sampled_from([0, 1, 2, -(2**63)])),
    "k_text": (pa.string(), st.sampled_from(["", "a", "b"])),
    "k_float": (pa.float64(), st.sampled_from([0.0, -0.0, NAN, 1.0])),
}


class Store:
    """Real keyed tables, sealed after every batch, in a directory of their own."""

    def __init__(self, root: Path, operator: Aggregate, input: pa.Schema, keys: tuple[str, ...]) -> None:
        self.spec = operator.tables(input, keys)["state"]
        self.store = LocalStore(root)
        self.levels: tuple[Level, ...] = ()
        self.batch = 0

    def open(self) -> KeyedTable:
        return KeyedTable(
            spec=self.spec, tasks=4, mine=(0, 1, 2, 3), levels=self.levels, store=self.store, now_ms=0
        )

    def seal(self, table: KeyedTable) -> None:
        sealed = table.seal(f"op/state-{self.batch}.arrow", self.batch)
        self.batch += 1
        if sealed is None:
            return
        kept = tuple(level for level in self.levels if level.ref.name not in sealed.replaced)
        self.levels = (*kept, Level(ref=sealed.added, live=None))


def run_batch(
    operator: Aggregate, senders: list[tuple[pa.Table, bool]], keys: tuple[str, ...], state: StateTable
) -> pa.Table:
    """One batch of an instance: what each sender has, raw or combined."""
    raw = [rows for rows, combining in senders if not combining]
    combined = [operator.combine(rows, keys) for rows, combining in senders if combining]
    ctx = context(operator, senders[0][0], keys, {"state": state})
    raw_rows = pa.concat_tables(raw) if raw else None
    return operator.process_mixed(
        raw_rows,
        hash_keys([raw_rows.column(key) for key in keys]) if raw_rows is not None else None,
        pa.concat_tables([rows for rows, _ in combined]) if combined else None,
        np.concatenate([hashes for _, hashes in combined]) if combined else None,
        ctx,
    )


def check(output: pa.Table, wanted: dict[tuple[Any, ...], dict[str, Any]], keys: tuple[str, ...]) -> None:
    got = {tuple(plain(row[key]) for key in keys): row for row in output.to_pylist()}
    assert output.num_rows == len(got), "a key came twice"
    assert got.keys() == wanted.keys()
    for key, values in wanted.items():
        for name, value in values.items():
            assert same(got[key][name], value), (key, name, got[key][name], value)


@st.composite
def scenarios(
    draw: st.DrawFn,
) -> tuple[dict[str, ud.Agg], tuple[str, ...], list[list[tuple[pa.Table, bool]]]]:
    keys = tuple(draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True)))
    columns = {**VALUES, **ORDERED}
    names = draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=3, unique=True))
    functions = {"count": ud.count, "min": ud.min, "max": ud.max, "sum": ud.sum, "mean": ud.mean}
    possible = [
        (fn, name) for name in names for fn in functions if fn not in ("sum", "mean") or name in VALUES
    ]
    chosen = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=5, unique=True))
    aggs = {f"{fn}_{name}": functions[fn](name) for fn, name in chosen}
    if draw(st.booleans()):
        aggs["n"] = ud.count()
    fields = {name: KEYS.get(name) or columns[name] for name in (*keys, *names)}
    null_share = draw(st.sampled_from([0, 0, 1]))

    def sender() -> tuple[pa.Table, bool]:
        rows = draw(st.integers(1, 12))
        data = {
            name: pa.array(
                draw(st.lists((st.none() | values) if null_share else values, min_size=rows, max_size=rows)),
                type=dtype,
                from_pandas=False,
            )
            for name, (dtype, values) in fields.items()
        }
        return pa.table(data), draw(st.booleans())

    batches = [[sender() for _ in range(draw(st.integers(1, 3)))] for _ in range(draw(st.integers(1, 3)))]
    return aggs, keys, batches


@settings(max_examples=400, deadline=None)
@given(scenarios())
def test_every_batch_equals_a_recomputation(
    scenario: tuple[dict[str, ud.Agg], tuple[str, ...], list[list[tuple[pa.Table, bool]]]],
) -> None:
    aggs, keys, batches = scenario
    operator = Aggregate(aggs)
    schema = batches[0][0][0].schema
    assert operator.input_problems(schema, keys) == []
    state: DictTable = dict_tables(operator, schema, keys)["state"]
    history: list[dict[str, Any]] = []
    for senders in batches:
        output = run_batch(operator, senders, keys, state)
        fresh = [row for rows, _ in senders for row in rows.to_pylist()]
        history += fresh
        touched = {tuple(plain(row[key]) for key in keys) for row in fresh}
        wanted = recompute(history, keys, aggs)
        assert output.schema.equals(operator.output_schema(schema, keys))
        check(output, {key: wanted[key] for key in touched}, keys)


def random_batches(seed: int, key: pa.DataType) -> Iterator[list[tuple[pa.Table, bool]]]:
    random = np.random.default_rng(seed)
    for _ in range(6):
        senders = []
        for combining in (True, False, True):
            rows = int(random.integers(1, 3_000))
            numbers = pa.array(random.integers(0, 2_000, rows), mask=random.random(rows) < 0.01)
            x = pa.array(random.integers(-(2**50), 2**50, rows), mask=random.random(rows) < 0.1)
            y = pa.array(random.normal(size=rows))
            senders.append((pa.table({"k": numbers.cast(key), "x": x, "y": y}), combining))
        yield senders


@pytest.mark.parametrize("key", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_with_real_state(tmp_path: Path, key: pa.DataType, seed: int) -> None:
    aggs = {"n": ud.count(), "m": ud.count("x"), "t": ud.sum("x"), "a": ud.mean("y"), "lo": ud.min("y")}
    operator, keys = Aggregate(aggs), ("k",)
    history: list[dict[str, Any]] = []
    store: Store | None = None
    for senders in random_batches(seed, key):
        store = store or Store(tmp_path, operator, senders[0][0].schema, keys)
        table = store.open()
        output = run_batch(operator, senders, keys, table)
        store.seal(table)
        fresh = [row for rows, _ in senders for row in rows.to_pylist()]
        history += fresh
        wanted = recompute(history, keys, aggs)
        check(output, {(row["k"],): wanted[(row["k"],)] for row in fresh}, keys)
    assert store is not None
    assert store.open().scan().num_rows == len(wanted)


@pytest.mark.parametrize("dtype", [pa.int64(), pa.uint64()], ids=str)
@pytest.mark.parametrize("key", ["a", 1])
def test_a_sum_beyond_int64_is_an_error_and_just_within_is_exact(dtype: pa.DataType, key: Any) -> None:
    operator, keys = Aggregate({"t": ud.sum("x")}), ("k",)

    def total(*batches: list[int]) -> int:
        state = None
        for values in batches:
            rows = pa.table({"k": pa.array([key] * len(values)), "x": pa.array(values, dtype)})
            state = state or dict_tables(operator, rows.schema, keys)["state"]
            output = run_batch(operator, [(rows, True), (rows.slice(0, 0), False)], keys, state)
        return int(output["t"][0].as_py())

    top = 2**63 - 1
    assert total([2**62, 2**62 - 1]) == top
    assert total([2**62], [2**62 - 1]) == top
    assert total([2**61] * 3 + [2**61 - 1]) == top
    for batches in ([[2**62, 2**62]], [[2**62], [2**62]], [[top], [1]], [[2**61] * 4], [[top] * 5]):
        with pytest.raises(SumOverflow, match=rf"sum of 'x' does not fit into int64 for key k={key!r}"):
            total(*batches)


def test_a_sum_below_int64_is_an_error_and_just_within_is_exact() -> None:
    operator, keys = Aggregate({"t": ud.sum("x")}), ("k",)
    for values, fits in (([-(2**62), -(2**62)], True), ([-(2**62), -(2**62), -1], False)):
        rows = pa.table({"k": [1] * len(values), "x": values})
        ctx = context(operator, rows, keys, dict_tables(operator, rows.schema, keys))
        if fits:
            assert operator.process(rows, ctx)["t"].to_pylist() == [-(2**63)]
            continue
        with pytest.raises(SumOverflow):
            operator.process(rows, ctx)


def test_a_mean_of_huge_integers_does_not_overflow() -> None:
    operator, keys = Aggregate({"a": ud.mean("x")}), ("k",)
    rows = pa.table({"k": [1, 1, 1], "x": [2**62, 2**62, 2**62]})
    ctx = context(operator, rows, keys, dict_tables(operator, rows.schema, keys))
    assert operator.process(rows, ctx)["a"].to_pylist() == [float(2**62)]


@pytest.mark.parametrize("sign", ["", "-"])
def test_decimal_sums_use_all_38_digits_and_no_more(sign: str) -> None:
    operator, keys = Aggregate({"t": ud.sum("x")}), ("k",)
    nines = Decimal(sign + "9" * 36 + ".99")
    rows = pa.table({"k": [1, 1], "x": pa.array([nines, Decimal("0.00")], pa.decimal128(38, 2))})
    tables = dict_tables(operator, rows.schema, keys)
    ctx = context(operator, rows, keys, tables)
    assert operator.process(rows, ctx)["t"].to_pylist() == [nines]
    cent = pa.table({"k": [1], "x": pa.array([Decimal(sign + "0.01")], pa.decimal128(38, 2))})
    with pytest.raises(SumOverflow, match=r"decimal128\(38, 2\)"):
        operator.process(cent, context(operator, cent, keys, tables))


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.0, NAN, 2.0], 1.0, NAN),
        ([NAN, NAN], NAN, NAN),
        ([None, NAN], NAN, NAN),
        ([None, None], None, None),
        ([None, -INF, INF], -INF, INF),
        ([-INF], -INF, -INF),
    ],
)
@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32(), pa.float16()], ids=str)
def test_nan_is_greater_than_any_number(values: list[Any], low: Any, high: Any, dtype: pa.DataType) -> None:
    operator, keys = Aggregate({"low": ud.min("x"), "high": ud.max("x")}), ("k",)
    for order in itertools.permutations(values):
        for cut in range(1, len(order) + 1):
            state, results = None, []
            for part in (order[:cut], order[cut:]):
                column = pa.array([None if v is None else np.dtype("f2").type(v) for v in part], pa.float16())
                rows = pa.table({"k": pa.array([1] * len(part), pa.int64()), "x": column.cast(dtype)})
                state = state or dict_tables(operator, rows.schema, keys)
                out = operator.process(rows, context(operator, rows, keys, state))
                results += out.to_pylist()
            assert same(results[-1]["low"], low), order
            assert same(results[-1]["high"], high), order


def test_combine_only_where_it_shrinks() -> None:
    operator = Aggregate({"n": ud.count(), "t": ud.sum("x")})
    random = np.random.default_rng(0)
    x = np.arange(100_000)
    few = pa.table({"k": random.integers(0, 100, 100_000), "x": x})
    many = pa.table({"k": random.integers(0, 10**9, 100_000), "x": x})
    seemingly_many = pa.table({"k": random.integers(0, 40_000, 100_000), "x": x})
    clustered = pa.table({"k": np.repeat(np.arange(20_000), 5), "x": x})
    for rows, distinct in ((few, 100), (seemingly_many, 36_000), (clustered, 20_000)):
        assert operator.is_worth_combining(rows, ("k",))
        table, hashes = operator.combine(rows, ("k",))
        assert table.num_rows == pytest.approx(distinct, rel=0.1)
        assert table.schema.equals(operator.combined_schema(rows.schema, ("k",)))
        assert np.array_equal(hashes, hash_keys([table["k"]]))
        assert np.all(hashes[1:] > hashes[:-1])
        assert sum(table["count()"].to_pylist()) == 100_000
    assert not operator.is_worth_combining(many, ("k",))
    assert not operator.is_worth_combining(few.slice(0, 10), ("k",))


def test_schemas_and_needed_columns() -> None:
    schema = pa.schema(
        [("z", pa.string()), ("k", pa.string()), ("x", pa.int32()), ("d", pa.decimal128(9, 2))]
    )
    aggs = {"n": ud.count(), "t": ud.sum("x"), "a": ud.mean("x"), "m": ud.max("d"), "s": ud.sum("d")}
    operator = Aggregate(aggs, ttl="10m")
    assert isinstance(operator, Combiner)
    assert problems(operator) == []
    assert operator.needed_columns(schema, ("k",)) == ("k", "x", "d")
    assert operator.output_schema(schema, ("k",)) == pa.schema(
        [
            ("k", pa.string()),
            ("n", pa.int64()),
            ("t", pa.int64()),
            ("a", pa.float64()),
            ("m", pa.decimal128(9, 2)),
            ("s", pa.decimal128(38, 2)),
        ]
    )
    spec = operator.tables(schema, ("k",))["state"]
    assert spec.ttl_ms == 600_000
    reordered = Aggregate(dict(reversed(aggs.items())), ttl="10m")
    assert reordered.tables(schema, ("k",))["state"].fingerprint() == spec.fingerprint()


def test_a_key_named_like_a_partial_is_no_clash() -> None:
    operator = Aggregate({"n": ud.count()})
    rows = pa.table({"count()": ["a", "a"]})
    ctx = context(operator, rows, ("count()",), dict_tables(operator, rows.schema, ("count()",)))
    assert operator.process(rows, ctx).to_pylist() == [{"count()": "a", "n": 2}]


def test_all_problems_of_the_input_are_named() -> None:
    schema = pa.schema([("k", pa.string()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
    aggs = {
        "k": ud.count(),
        "a": ud.sum("nope"),
        "b": ud.mean("s"),
        "c": ud.min("l"),
        "d": ud.Agg(ud.AggFn.SUM),
    }
    found = Aggregate(aggs).input_problems(schema, ("k",))
    assert [text.split(":")[0] for text in found] == [
        "k=count()",
        "a=sum(nope)",
        "b=mean(s)",
        "c=min(l)",
        "d=sum()",
    ]
    assert Aggregate({}).input_problems(schema, ("k",)) != []


def test_no_rows_and_pickling() -> None:
    operator = cloudpickle.loads(cloudpickle.dumps(Aggregate({"n": ud.count()})))
    rows = pa.table({"k": pa.array([], pa.string())})
    ctx = context(operator, rows, ("k",), dict_tables(operator, rows.schema, ("k",)))
    output = operator.process_mixed(None, None, None, None, ctx)
    assert output.schema == operator.output_schema(rows.schema, ("k",))
    assert output.num_rows == operator.process(rows, ctx).num_rows == 0


def test_the_number_of_threads_changes_nothing() -> None:
    random = np.random.default_rng(5)
    rows = pa.table(
        {
            "k": random.integers(0, 500, 50_000).astype(str),
            "x": random.normal(size=50_000),
            "s": ["a", "b"] * 25_000,
        }
    )
    operator = Aggregate({"t": ud.sum("x"), "a": ud.mean("x"), "lo": ud.min("s")})
    before = pa.cpu_count()
    try:
        results = []
        for threads in (1, 4):
            pa.set_cpu_count(threads)
            results.append(operator.combine(rows, ("k",))[0])
    finally:
        pa.set_cpu_count(before)
    assert results[0].equals(results[1])
