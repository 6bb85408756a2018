"""A small batch in one Spark task: all levels after each other in one Python worker, bundles handed over in memory.

Stages and shuffles cost the same for ten rows as for a million. Where every slot may run anywhere (embedded Spark) and the
last batch was small, this is the whole job. The calls are those of the staged job, so reports, state and order are the same;
should the batch turn out large after all, nothing has been done yet and the driver runs it in stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from updraft.runtime.pieces import END, Kind, Piece, pack
from updraft.runtime.reports import Report
from updraft.runtime.stage import StageCall

SMALL_BYTES = 1 << 20  # the last batch was at most this large: try the next one whole
SMALL_WORK_S = 0.1  # and its instances worked at most this long, together
LIMIT_BYTES = 8 << 20  # a batch larger than this is given back unprocessed


def is_small(reports: Iterable[Report]) -> bool:
    """Whether a batch like the one reported on is better run in one task: few bytes, and little work on them."""
    reports = list(reports)
    received = sum(report.bytes_in for report in reports if report.level == 0)
    return received <= SMALL_BYTES and sum(report.wall_s for report in reports) <= SMALL_WORK_S


@dataclass(frozen=True, slots=True)
class WholeCall:
    """Spark's function of the only task: the calls of all levels, in order."""

    calls: tuple[StageCall, ...]

    def __call__(self, split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        messages: list[bytes] = []
        size = 0
        for message in elements:
            size += len(message)
            if size > LIMIT_BYTES:
                return _given_back(self.calls[-1].last_slots)
            messages.append(message)
        out = self.calls[0](split, messages)
        for call in self.calls[1:]:
            bundles: list[list[bytes]] = []
            for number, bundle in enumerate(out):
                if number % 2:  # every bundle is preceded by its slot number, and slots come in order
                    slot = number // 2 % call.slots
                    if slot == len(bundles):
                        bundles.append([])
                    bundles[slot].append(bundle)
            out = _chained(call, bundles)
        return out


def _chained(call: StageCall, bundles: list[list[bytes]]) -> Iterator[bytes]:
    for slot, received in enumerate(bundles):
        yield from call(slot, received)


def _given_back(last_slots: int) -> Iterator[bytes]:
    piece = Piece(kind=Kind.TOO_LARGE, level=END, slot=0, edge=0, sender=0, payload=b"")
    if last_slots:
        yield bytes(8)  # slot 0
    yield pack([piece])
