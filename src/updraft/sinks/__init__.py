"""Where results go. A sink gets the rows of a batch together with the batch's id.

After a crash a batch may be delivered again with the same id and the same rows: a sink that replaces what it has
for that id (all of these do) makes the whole exactly once. Any callable `(df, batch_id)` is a sink too.
"""

from updraft.sinks.basic import (
    CallbackSink,
    ConsoleSink,
    DiscardSink,
    MemorySink,
    ParquetSink,
    Sink,
    Wants,
    as_sink,
    callback,
    console,
    discard,
    memory,
    parquet,
)

__all__ = [
    "CallbackSink",
    "ConsoleSink",
    "DiscardSink",
    "MemorySink",
    "ParquetSink",
    "Sink",
    "Wants",
    "as_sink",
    "callback",
    "console",
    "discard",
    "memory",
    "parquet",
]
