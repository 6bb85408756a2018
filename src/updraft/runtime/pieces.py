"""How rows and reports travel between stages: pieces in bundles.

A *bundle* is the one element a sender emits for a destination slot; it is a run of *pieces*. A piece has a fixed header and
a payload padded to 8 bytes, so that Arrow can read it in place. The JVM and relaying stages never look inside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

END = 255  # the level of pieces that leave the job: reports, sink output, segments for a remote checkpoint
_HEADER = struct.Struct("<BBHIIIQ")  # kind, level, edge, sender, slot, instance, payload bytes


class Kind(IntEnum):
    """What a payload is."""

    ROWS = 0  # a record batch of the edge's wire schema
    COMBINED = 1  # a record batch of the edge's combined schema
    REPORT = 2  # JSON
    OUTPUT = 3  # a record batch of a sink's schema; `edge` is the sink's number
    SEGMENT = 4  # a sealed segment on its way to a checkpoint that workers cannot write
    TIMES = 6  # JSON, the largest event time by source leg; every slot gets it from every sender
    TOO_LARGE = 5  # a batch that was tried in one task and must be run in stages; no payload
    OVERFLOW = 7  # more sink output than is collected; the batch must be run again and leave it on the workers; no payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One payload with its address: the slot that gets it, and the instance there.

    `sender` keeps rows of a key in order: lower senders first.
    """

    kind: Kind
    level: int
    slot: int
    edge: int
    sender: int
    instance: int = 0
    payload: pa.Buffer | bytes


def pack(pieces: Iterable[Piece]) -> bytes:
    """A bundle."""
    parts: list[pa.Buffer | bytes] = []
    for piece in pieces:
        size = len(piece.payload)
        parts.append(
            _HEADER.pack(piece.kind, piece.level, piece.edge, piece.sender, piece.slot, piece.instance, size)
        )
        parts.append(piece.payload)
        parts.append(bytes(-size % 8))
    return b"".join(parts)


def unpack(bundle: bytes) -> Iterator[Piece]:
    """The pieces of a bundle; payloads are views of it."""
    whole = pa.py_buffer(bundle)
    at = 0
    while at < len(bundle):
        kind, level, edge, sender, slot, instance, size = _HEADER.unpack_from(bundle, at)
        at += _HEADER.size
        yield Piece(
            kind=Kind(kind),
            level=level,
            slot=slot,
            edge=edge,
            sender=sender,
            instance=instance,
            payload=whole.slice(at, size),
        )
        at += size + (-size % 8)
