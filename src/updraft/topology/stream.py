"""Handles of the fluent API: tuples of inputs; a method records what was said and returns a new handle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from updraft.topology import aggregates
from updraft.topology.aggregates import Agg
from updraft.topology.names import safe_label
from updraft.topology.records import (
    AggregateRecord,
    Filter,
    FrameFn,
    Grouping,
    Input,
    JoinRecord,
    LateRecord,
    MapOptions,
    MapRecord,
    Options,
    ProcessRecord,
    SinkRecord,
    StatefulOptions,
    TableFn,
    TransformRecord,
    Watermark,
    WindowRecord,
)
from updraft.topology.schemas import did_you_mean
from updraft.topology.windows import WindowSpec

if TYPE_CHECKING:
    from updraft.operators.duration import Duration
    from updraft.operators.topk import Ranking
    from updraft.topology.app import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Rows of one schema from one or several producers."""

    topology: Topology
    inputs: tuple[Input, ...]

    def transform(self, fn: FrameFn, schema: pa.Schema | None = None) -> Stream:
        """DataFrame code, run in the JVM; only directly behind sources and other transforms."""
        # A merged stream is transformed branch by branch: DataFrames of different legs never meet.
        made = tuple(self._transformed(stream, fn, schema) for stream in self.inputs)
        return replace(self, inputs=made)

    def with_watermark(
        self,
        column: str,
        delay: Duration = 0,
        *,
        idle_after: Duration | None = None,
        max_ahead: Duration | None = None,
    ) -> Stream:
        """Event time is `column`, and rows come at most `delay` behind the largest one seen (`docs/time.md`).

        Only directly behind a source or its transforms. idle_after: a source without rows for longer than that
        does not hold back the others. max_ahead: an event time further ahead of the clock than that does not
        move the watermark.
        """
        said = Watermark(column=column, delay=delay, idle_after=idle_after, max_ahead=max_ahead)
        made = tuple(self._transformed(stream, _unchanged, None, said) for stream in self.inputs)
        return replace(self, inputs=made)

    def map(self, fn: TableFn, *, schema: pa.Schema | None = None, **options: Unpack[MapOptions]) -> Stream:
        """A stateless function from Arrow table to Arrow table.

        Options: name, parallelism, min_parallelism, max_parallelism; without a parallelism it is fused with
        its producer. Without `schema` the output columns are found by calling `fn` on an empty table.
        """
        label = safe_label(getattr(fn, "__name__", ""), "map")
        return self._map(fn, label, options, schema=schema)

    def filter(self, fn: Callable[[pa.Table], Any], **options: Unpack[MapOptions]) -> Stream:
        """The rows for which `fn(table)`, a boolean array, is true. Options as in `map`."""
        label = safe_label(getattr(fn, "__name__", ""), "filter")
        return self._map(Filter(predicate=fn), label, options, keeps_schema=True)

    def process(self, operator: object, **options: Unpack[StatefulOptions]) -> Stream:
        """An ObjectOperator over rows that are not divided by key: state per task, rows go to any task.

        After `to_one()` there is one task that sees everything. After `broadcast()` it is refused: the state
        would depend on the parallelism. A KeyedOperator needs `key_by`.
        """
        return _process(self.topology, self.inputs, operator, options)

    def join_static(
        self, static: object, *, on: str | Sequence[str], how: str = "inner", **options: Unpack[MapOptions]
    ) -> Stream:
        """Joined with a table that does not change, where the columns `on` are equal; how: inner, left, semi or anti.

        A (batch) DataFrame is joined by Spark, in the JVM, and so only directly behind a source; it is read when the run starts
        and, if it is not cached, again in every batch. A `pyarrow.Table` travels with the program and is joined anywhere; keep
        it small enough for every worker. Options as in `map`, for a `pyarrow.Table` only.
        """
        from updraft.operators.static import FrameJoin, StaticJoin, static_problems

        columns = (on,) if isinstance(on, str) else tuple(on)
        problems = static_problems(static, columns, how)
        for problem in problems:
            self.topology.complain(f"join_static: {problem}")
        if problems:
            return self
        if isinstance(static, pa.Table):
            return self._map(StaticJoin(table=static, on=columns, how=how), "join_static", options)
        if options:
            self.topology.complain(
                f"join_static: {', '.join(options)} is for a pyarrow.Table only; Spark joins a DataFrame"
            )
        return self.transform(FrameJoin(static=static, on=columns, how=how))

    def distinct(
        self, *columns: str, ttl: Duration | None = None, **options: Unpack[StatefulOptions]
    ) -> Stream:
        """The first row with each combination of values in `columns`; see `KeyedStream.distinct`."""
        return self.key_by(*columns).distinct(ttl=ttl, **options)

    def deduplicate(
        self, *columns: str, within: Duration, time: str | None = None, **options: Unpack[StatefulOptions]
    ) -> Stream:
        """The first row with each combination of values in `columns`; see `KeyedStream.deduplicate`."""
        return self.key_by(*columns).deduplicate(within=within, time=time, **options)

    def top_k(
        self,
        k: int,
        by: str,
        *,
        id: str | Sequence[str] = (),
        descending: bool = True,
        keep: str = "latest",
        rank: str = "rank",
        **options: Unpack[StatefulOptions],
    ) -> Stream:
        """The k best rows of the whole stream; arguments as in `KeyedStream.top_k`.

        A ranker per task keeps the k best of its share and passes its list on when it changed; one final ranker merges
        the lists. Options are those of the first, which does the work; `name` names the final one.
        """
        from updraft.operators.topk import FinalRanker, IntermediateRanker

        ranking = _ranking(k, by, id, descending, keep, rank)
        name = options.pop("name", None)
        first: Any = {**options, **({"name": f"{name}-ranker"} if isinstance(name, str) else {})}
        last: Any = {} if name is None else {"name": name}
        divided = self.key_by(*ranking.id).inputs if ranking.id else self.inputs
        lists = _process(self.topology, divided, IntermediateRanker(ranking), first, "ranker")
        return _process(self.topology, lists.to_one().inputs, FinalRanker(ranking), last, "top_k")

    def window(
        self,
        window: WindowSpec,
        *,
        on: str | None = None,
        allowed_lateness: Duration = 0,
        emit: str = "close",
    ) -> WindowedStream:
        """Windows over all rows together; as `KeyedStream.window`, in one task and without key columns."""
        from updraft.operators.everything import EVERYTHING, with_one_key

        keyed = self._map(with_one_key, "everything", {}).key_by(EVERYTHING)
        made = keyed.window(window, on=on, allowed_lateness=allowed_lateness, emit=emit)
        return replace(made, whole=self.inputs)

    def merge(self, *others: Stream | KeyedStream) -> Stream:
        """The rows of all these streams, which must have the same columns."""
        inputs = self.inputs
        for other in others:
            if not isinstance(other, Stream):
                self.topology.complain(
                    f"merge: {type(other).__name__} is no Stream; merge first, then key_by()"
                )
            elif other.topology is not self.topology:
                self.topology.complain(
                    f"merge: a stream of topology '{other.topology.name}' cannot join one of "
                    f"'{self.topology.name}'; write both streams in one topology"
                )
            else:
                inputs += other.inputs
        return replace(self, inputs=inputs)

    def key_by(self, *columns: str) -> KeyedStream:
        """Divide rows by one or several columns: all rows of a key meet in one task."""
        inputs = tuple(replace(i, grouping=Grouping.KEY, keys=columns) for i in self.inputs)
        return KeyedStream(topology=self.topology, inputs=inputs)

    def shuffle(self) -> Stream:
        """Spread rows evenly over the consumer's instances."""
        return self._grouped(Grouping.SHUFFLE)

    def broadcast(self) -> Stream:
        """Send every row to every instance of the consumer, which must be stateless."""
        return self._grouped(Grouping.ALL)

    def to_one(self) -> Stream:
        """Send every row to one instance."""
        return self._grouped(Grouping.GLOBAL)

    def local(self) -> Stream:
        """Prefer an instance on the producer's own worker; spread evenly where there is none."""
        return self._grouped(Grouping.LOCAL)

    def sink(self, name: str, target: object) -> None:
        """End here: `target` is one of `ud.sinks` or a callable(df, batch_id)."""
        self.topology.record(lambda n: SinkRecord(id=n, inputs=self.inputs, name=name, target=target))

    def _transformed(
        self, stream: Input, fn: FrameFn, schema: pa.Schema | None, watermark: Watermark | None = None
    ) -> Input:
        record = self.topology.record(
            lambda n: TransformRecord(id=n, inputs=(stream,), fn=fn, schema=schema, watermark=watermark)
        )
        return Input(producer=record)

    def _grouped(self, grouping: Grouping) -> Stream:
        return replace(self, inputs=tuple(replace(i, grouping=grouping, keys=()) for i in self.inputs))

    def _map(self, fn: TableFn, label: str, options: Mapping[str, Any], **more: Any) -> Stream:
        made = _options(self.topology, label, options, ("tasks", "replicas", "replication"))
        record = self.topology.record(
            lambda n: MapRecord(id=n, inputs=self.inputs, fn=fn, label=label, options=made, **more)
        )
        return replace(self, inputs=(Input(producer=record),))


class _Aggregating:
    """What keyed and windowed streams have in common: the shorthands for one aggregate."""

    __slots__ = ()

    if TYPE_CHECKING:
        topology: Topology

        def _record(self, label: str, aggs: Mapping[str, Agg], options: Options) -> Stream: ...

    def count(self, as_: str = "count", **options: Unpack[StatefulOptions]) -> Stream:
        """Rows per key."""
        return self._aggregate("count", {as_: aggregates.count()}, options)

    def sum(self, column: str, as_: str | None = None, **options: Unpack[StatefulOptions]) -> Stream:
        """Sum of `column` per key, in column `as_` ("sum_<column>")."""
        return self._aggregate("sum", {as_ or f"sum_{column}": aggregates.sum(column)}, options)

    def min(self, column: str, as_: str | None = None, **options: Unpack[StatefulOptions]) -> Stream:
        """Smallest `column` per key, in column `as_` ("min_<column>")."""
        return self._aggregate("min", {as_ or f"min_{column}": aggregates.min(column)}, options)

    def max(self, column: str, as_: str | None = None, **options: Unpack[StatefulOptions]) -> Stream:
        """Largest `column` per key, in column `as_` ("max_<column>")."""
        return self._aggregate("max", {as_ or f"max_{column}": aggregates.max(column)}, options)

    def mean(self, column: str, as_: str | None = None, **options: Unpack[StatefulOptions]) -> Stream:
        """Mean of `column` per key, in column `as_` ("mean_<column>")."""
        return self._aggregate("mean", {as_ or f"mean_{column}": aggregates.mean(column)}, options)

    def aggregate(
        self,
        aggs: Mapping[str, Agg] | None = None,
        /,
        *,
        name: str | None = None,
        tasks: int | None = None,
        parallelism: int | None = None,
        min_parallelism: int | None = None,
        max_parallelism: int | None = None,
        replicas: int | None = None,
        replication: str | None = None,
        **named: Agg,
    ) -> Stream:
        """Several aggregates at once: `aggregate(n=ud.count(), total=ud.sum("price"))`.

        A mapping as first argument serves output columns that are no keywords or are called like an option.
        """
        options = Options(
            name=name,
            tasks=tasks,
            parallelism=parallelism,
            min_parallelism=min_parallelism,
            max_parallelism=max_parallelism,
            replicas=replicas,
            replication=replication,
        )
        return self._record("aggregate", {**(aggs or {}), **named}, options)

    def _aggregate(self, label: str, aggs: Mapping[str, Agg], options: Mapping[str, Any]) -> Stream:
        return self._record(label, aggs, _options(self.topology, label, options))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedStream(_Aggregating):
    """Rows divided by key. Every operator here is stateful and emits one row per key it touched in a batch.

    Options: name, tasks (32), parallelism, min_parallelism, max_parallelism, replicas (1),
    replication ("delta" or "active").
    """

    topology: Topology
    inputs: tuple[Input, ...]

    def window(
        self,
        window: WindowSpec,
        *,
        on: str | None = None,
        allowed_lateness: Duration = 0,
        emit: str = "close",
    ) -> WindowedStream:
        """Divide the rows of a key further by windows of event time: `window(ud.tumbling("1 minute"))`.

        on: the timestamp column, by default the one `with_watermark` named. allowed_lateness: how much longer than
        the watermark a window waits for rows. emit: "close" emits a window once, when it is complete; "update" every
        window that a batch changed. See `docs/time.md`.
        """
        return WindowedStream(
            topology=self.topology,
            inputs=self.inputs,
            window=window,
            on=on,
            allowed_lateness=allowed_lateness,
            emit=emit,
        )

    def process(self, operator: object, **options: Unpack[StatefulOptions]) -> Stream:
        """A KeyedOperator or ObjectOperator of your own, as instance, or as class that needs no arguments."""
        return _process(self.topology, self.inputs, operator, options)

    def distinct(self, *, ttl: Duration | None = None, **options: Unpack[StatefulOptions]) -> Stream:
        """The first row of every key, unchanged; with `ttl`, of every key not let through for that long.

        Without `ttl` every key ever seen is remembered. For a bound in event time see `deduplicate`.
        """
        from updraft.operators.distinct import Distinct

        return _process(self.topology, self.inputs, Distinct(ttl=ttl), options, "distinct")

    def deduplicate(
        self, *, within: Duration, time: str | None = None, **options: Unpack[StatefulOptions]
    ) -> Stream:
        """The first row of every key, unchanged; a key is forgotten when the watermark is `within` past that row's time.

        `time` is the event time column, if it is not the one `with_watermark` named. Late rows are dropped and counted.
        """
        from updraft.operators.distinct import Deduplicate

        made = Deduplicate(within=within, time=time)
        return _process(self.topology, self.inputs, made, options, "deduplicate")

    def join(
        self,
        other: KeyedStream | Stream,
        *,
        within: tuple[Duration, Duration] | Duration | None = None,
        how: str = "inner",
        suffix: str | None = None,
        time: str | tuple[str, str] | None = None,
        **options: Unpack[StatefulOptions],
    ) -> Stream:
        """Rows of both streams with equal keys, the right one's event time `within` (earliest, latest) of the left one's.

        `how`: "inner" emits pairs; "left" also left rows that met nothing, with nulls; "anti" only those, both once the
        watermark has passed all their partners. One duration means that much before and after. The output has the columns
        of the left, then of the right stream without keys of the same name; `suffix` is added to right columns whose
        name is taken. `time` names the event time columns, if they are not those of `with_watermark`. See docs/joins.md.
        """
        label = "join"
        if not isinstance(other, KeyedStream):
            self.topology.complain(
                f"join: {type(other).__name__} is no keyed stream; join with stream.key_by(...)"
            )
        elif other.topology is not self.topology:
            self.topology.complain(
                f"join: a stream of topology '{other.topology.name}' cannot join one of '{self.topology.name}'; write both "
                "streams in one topology"
            )
        right = other.inputs if isinstance(other, KeyedStream) and other.topology is self.topology else ()
        inputs = (*self.inputs, *(replace(stream, port=1) for stream in right))
        made = _options(self.topology, label, options)
        record = self.topology.record(
            lambda n: JoinRecord(
                id=n,
                inputs=inputs,
                how=how,
                within=within,
                suffix=suffix,
                time=time,
                label=label,
                options=made,
            )
        )
        return Stream(topology=self.topology, inputs=(Input(producer=record),))

    def top_k(
        self,
        k: int,
        by: str,
        *,
        id: str | Sequence[str] = (),
        descending: bool = True,
        keep: str = "latest",
        rank: str = "rank",
        ttl: Duration | None = None,
        until: str | None = None,
        **options: Unpack[StatefulOptions],
    ) -> Stream:
        """The k rows of every key with the largest (`descending=False`: smallest) `by`, with their place in column `rank`.

        With `id` columns, an id is listed once: with its newest row, or with `keep="best"` with its best one. Ties go to the
        smaller id (without `id`: the smaller other columns). The whole list of a key is emitted when a row of the batch is in
        it. State is k rows per key: with `keep="latest"`, ids that fell out are forgotten and return with their next row.
        `ttl` forgets a key whose list has not changed for that long; `until` names a timestamp column, equal for all rows of a
        key, such as `window_end`: the key is forgotten when the watermark reaches it.
        """
        from updraft.operators.topk import TopK

        ranking = _ranking(k, by, id, descending, keep, rank)
        return _process(self.topology, self.inputs, TopK(ranking, ttl=ttl, until=until), options, "top_k")

    def _record(self, label: str, aggs: Mapping[str, Agg], options: Options) -> Stream:
        pairs = tuple(aggs.items())
        record = self.topology.record(
            lambda n: AggregateRecord(id=n, inputs=self.inputs, aggs=pairs, label=label, options=options)
        )
        return Stream(topology=self.topology, inputs=(Input(producer=record),))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedStream(_Aggregating):
    """Rows divided by key and window. Output: the keys, window_start, window_end, the aggregates.

    Options as of a KeyedStream. `whole`: the stream as it was, if it has no key.
    """

    topology: Topology
    inputs: tuple[Input, ...]
    window: WindowSpec
    on: str | None
    allowed_lateness: Duration
    emit: str
    whole: tuple[Input, ...] | None = None

    def late(self, *, name: str | None = None) -> Stream:
        """The rows that come too late for these windows, or without event time: they are in none of them."""
        inputs = tuple(Input(producer=stream.producer) for stream in self.whole or self.inputs)
        record = self.topology.record(
            lambda n: LateRecord(
                id=n,
                inputs=inputs,
                window=self.window,
                on=self.on,
                allowed_lateness=self.allowed_lateness,
                options=Options(name=name),
            )
        )
        return Stream(topology=self.topology, inputs=(Input(producer=record),))

    def _record(self, label: str, aggs: Mapping[str, Agg], options: Options) -> Stream:
        from updraft.operators.everything import without_the_key

        if self.whole is not None and options.tasks is None:
            options = replace(options, tasks=1)
        record = self.topology.record(
            lambda n: WindowRecord(
                id=n,
                inputs=self.inputs,
                aggs=tuple(aggs.items()),
                window=self.window,
                on=self.on,
                allowed_lateness=self.allowed_lateness,
                emit=self.emit,
                label=f"{label}_window",
                options=options,
            )
        )
        made = Stream(topology=self.topology, inputs=(Input(producer=record),))
        return made if self.whole is None else made._map(without_the_key, "windows", {})


def _unchanged(frame: Any) -> Any:
    return frame


def _process(
    topology: Topology,
    inputs: tuple[Input, ...],
    operator: object,
    options: Mapping[str, Any],
    label: str | None = None,
) -> Stream:
    if label is None:
        kind = operator if isinstance(operator, type) else type(operator)
        label = safe_label(kind.__name__, "process")
    made = _options(topology, label, options)
    record = topology.record(
        lambda n: ProcessRecord(id=n, inputs=inputs, operator=operator, label=label, options=made)
    )
    return Stream(topology=topology, inputs=(Input(producer=record),))


def _ranking(k: int, by: str, ids: str | Sequence[str], descending: bool, keep: str, rank: str) -> Ranking:
    from updraft.operators.topk import Ranking

    names = (ids,) if isinstance(ids, str) else tuple(ids)
    return Ranking(k=k, by=by, id=names, descending=descending, keep=keep, rank=rank)


def _options(
    topology: Topology, label: str, given: Mapping[str, Any], refused: tuple[str, ...] = ()
) -> Options:
    """Known options; unknown ones become complaints, because `**options` lets Python accept any word."""
    known = {field.name for field in fields(Options)} - set(refused)
    who = f"operator '{given.get('name') or label}'"
    for name in given:
        if name in refused:
            topology.complain(
                f"{who}: {name} is for stateful operators only, this one keeps no state; remove it"
            )
        elif name not in known:
            topology.complain(f"{who}: unknown option '{name}'.{did_you_mean(name, known)}")
    return Options(**{name: value for name, value in given.items() if name in known})
