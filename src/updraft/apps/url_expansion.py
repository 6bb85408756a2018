"""E-Storm's URL expansion (paper 4, §V-A2): tweets as JSON -> parse -> split -> convert short URLs with a keyed cache -> sink

    tweets -> parse (JSON, in the JVM) -> split (one row per short URL) -> convert (cache by short URL, stateful) -> sink

`updraft run updraft.apps.url_expansion` reads the JSON lines of the directory in UPDRAFT_INPUT, or, without one, seeded
tweets it writes into a temporary directory.

Deviations. The paper asks a URL shortener's service over the network; here a fixed rule stands in for it (`look_up`), so
that the result can be recomputed. The cache keeps every URL and counts its uses. Parsing is Spark's `from_json`, no operator of
its own; a line without a number `id` and a `text` is skipped, as one bad tweet must not end a stream.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.apps.text import ZipfText, publish, zipf_thresholds
from updraft.operators.base import Columns, KeyedOperator
from updraft.operators.context import Context

LINES = pa.schema([("value", pa.string())])
TWEETS = pa.schema([("id", pa.int64()), ("text", pa.string())])
LINKS = pa.schema([("id", pa.int64()), ("short", pa.string())])
EXPANDED = pa.schema([("id", pa.int64()), ("short", pa.string()), ("long", pa.string())])
SHORT = "http://sho.rt/"
LONG = "https://www.example.org/"


def parse(lines: Any) -> Any:
    """Tweets from lines of JSON, as DataFrame code: it runs in the JVM."""
    parsed = lines.selectExpr("from_json(value, 'id long, text string') AS tweet")
    return parsed.where("tweet.id IS NOT NULL AND tweet.text IS NOT NULL").selectExpr(
        "tweet.id", "tweet.text"
    )


def split(tweets: pa.Table) -> pa.Table:
    """One row for every short URL in a tweet, in order."""
    words = pc.split_pattern(tweets.column("text").combine_chunks(), " ")
    parents = pc.list_parent_indices(words)
    tokens = pc.list_flatten(words)
    links = pc.starts_with(tokens, SHORT)
    ids = tweets.column("id").combine_chunks().take(parents.filter(links))
    return pa.table({"id": ids, "short": tokens.filter(links)}, schema=LINKS)


def look_up(short: pa.Array) -> pa.Array:
    """What the shortener's service would answer: a fixed, one-to-one rule."""
    code = pc.utf8_slice_codeunits(short, len(SHORT))
    return pc.binary_join_element_wise(LONG, pc.utf8_reverse(code), "/", code, "")


class Convert(KeyedOperator):
    """Short URL -> long URL; only URLs the cache does not have are looked up."""

    state: ClassVar[Columns | None] = {"long": pa.string(), "uses": pa.int64()}
    output: ClassVar[Columns | None] = EXPANDED

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        asked = rows.group_by("short", use_threads=False).aggregate([("id", "count")])
        key = asked.select(["short"])
        found = ctx.state.get(key)
        short, long = key.column("short").combine_chunks(), found.values.column("long").combine_chunks()
        missing = pa.array(~found.mask)
        long = pc.replace_with_mask(long, missing, look_up(short.filter(missing)))
        uses = pc.add(pc.fill_null(found.values.column("uses"), 0), asked.column("id_count"))
        ctx.state.put(key.append_column("long", long).append_column("uses", uses))
        at = pc.index_in(rows.column("short"), value_set=short)
        return rows.select(["id", "short"]).append_column("long", pc.take(long, at)).cast(EXPANDED)


def topology(
    path: str | Path, sink: Any, *, tasks: int = 32, parallelism: int = 2, files_per_batch: int | None = None
) -> Any:
    """URL expansion over a watched directory of JSON lines."""
    import updraft as ud

    def read(spark: Any) -> Any:
        reader = spark.readStream.format("text")
        if files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        return reader.load(str(path))

    app = ud.Topology("url-expansion")
    lines = app.source("tweets", read, schema=LINES)
    links = lines.transform(parse, schema=TWEETS).map(split, name="split", schema=LINKS)
    expanded = links.key_by("short").process(Convert(), name="convert", tasks=tasks, parallelism=parallelism)
    expanded.sink("out", sink)
    return app


def generate(
    directory: Path,
    *,
    files: int = 8,
    tweets_per_file: int = 2_000,
    urls: int = 5_000,
    zipf: float = 1.0,
    seed: int = 7,
) -> tuple[Path, ...]:
    """Seeded tweets of eight words, none to two of which are short URLs of Zipf-distributed popularity."""
    text = ZipfText(vocabulary_size=2_000, zipf=zipf, seed=seed)
    random = np.random.default_rng([seed, 1])
    thresholds = zipf_thresholds(urls, zipf)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        drawn = text.draw(tweets_per_file * 8).reshape(tweets_per_file, 8).tolist()
        links = np.searchsorted(thresholds, random.random((tweets_per_file, 2)), side="right").tolist()
        counts = random.integers(0, 3, tweets_per_file).tolist()
        tweets = []
        for row, (words, codes, count) in enumerate(zip(drawn, links, counts, strict=True)):
            tokens = [text.words[word] for word in words]
            for place, code in zip((2, 6), codes[:count], strict=False):
                tokens[place] = f"{SHORT}{code:x}"
            tweet = {"id": number * tweets_per_file + row, "lang": "en", "text": " ".join(tokens)}
            tweets.append(json.dumps(tweet))
        paths.append(publish(directory / f"part-{number:05d}.json", ("\n".join(tweets) + "\n").encode()))
    return tuple(paths)


def app(spark: Any) -> Any:
    """Factory for `updraft run updraft.apps.url_expansion`."""
    import updraft as ud

    given = os.environ.get("UPDRAFT_INPUT")
    if given is not None:
        return topology(given, ud.sinks.console())
    directory = Path(tempfile.mkdtemp(prefix="updraft-url-expansion-"))
    generate(directory)
    return topology(directory, ud.sinks.console(), files_per_batch=1)


def expected(paths: Iterable[Path]) -> dict[str, tuple[str, int]]:
    """Plain recomputation of the cache: short URL -> (long URL, uses)."""
    uses: dict[str, int] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            for token in json.loads(line)["text"].split(" "):
                if token.startswith(SHORT):
                    uses[token] = uses.get(token, 0) + 1
    codes = {short: short.removeprefix(SHORT) for short in uses}
    return {short: (f"{LONG}{codes[short][::-1]}/{codes[short]}", count) for short, count in uses.items()}
