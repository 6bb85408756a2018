"""A small batch in one Spark task: all levels after each other in one Python worker, bundles handed over in memory.

Stages and shuffles cost the same for ten rows as for a million. Where every slot may run anywhere (embedded Spark) and
the last batch would have been quicker this way, this is the whole job. The calls are those of the staged job, so
reports, state and order are the same; should the batch turn out large after all, no state has been touched yet and
the driver runs it in stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from updraft.runtime.pieces import END, Kind, Piece, pack
from updraft.runtime.reports import Report
from updraft.runtime.stage import StageCall

LEAST_LIMIT_BYTES = 8 << 20
MOST_LIMIT_BYTES = 256 << 20  # one task holds all of it
TELLING_S = 0.5  # of work in a batch, from which on its parts say something about larger ones
STAGE_S = 0.04  # what a further Spark stage costs, whatever it does


def is_better_whole(reports: Iterable[Report], *, senders: int, slots: Sequence[int], cores: int) -> bool:
    """Whether a batch like the one reported on takes less time in one task than in stages.

    `senders`: partitions of the source; `slots`: of each later level. In stages the work is divided among cores, but every
    level after the first costs a stage.
    """
    reports = list(reports)
    whole_s = sum(report.wall_s for report in reports)
    staged_s = STAGE_S * len(slots)
    for level, parts in enumerate([senders, *slots]):
        work_s = sum(report.wall_s for report in reports if report.level == level)
        staged_s += work_s / max(1, min(parts, cores))
    return 2 * received_bytes(reports) <= MOST_LIMIT_BYTES and whole_s <= staged_s


def received_bytes(reports: Iterable[Report]) -> int:
    """What came from the sources."""
    return sum(report.bytes_in for report in reports if report.level == 0)


def reading_share(reports: Iterable[Report]) -> float | None:
    """The sources' part of the time that the instances and partitions of a batch took; None: it was so little time that it was
    spent on what a batch costs however few rows there are, of which reading has more than its part."""
    reports = list(reports)
    whole_s = sum(report.wall_s for report in reports)
    return (
        sum(report.wall_s for report in reports if report.level == 0) / whole_s
        if whole_s >= TELLING_S
        else None
    )


def limit_bytes(last_bytes: int) -> int:
    """A batch of more than this is given back: twice the last one, which the choice was made for, or any small one."""
    return min(MOST_LIMIT_BYTES, max(LEAST_LIMIT_BYTES, 2 * last_bytes))


@dataclass(frozen=True, slots=True)
class WholeCall:
    """Spark's function of the only task: the calls of all levels, in order."""

    calls: tuple[StageCall, ...]
    limit_bytes: int = LEAST_LIMIT_BYTES

    def __call__(self, split: int, elements: Iterable[Any]) -> Iterator[bytes]:
        try:
            out = self.calls[0](split, _limited(elements, self.limit_bytes))
        except _TooLarge:
            return _given_back(self.calls[-1].last_slots)
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


class _TooLarge(Exception):
    """More bytes than one task should take; raised before any state was touched."""


def _limited(messages: Iterable[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for message in messages:
        size += len(message)
        if size > limit:
            raise _TooLarge
        yield message


def _chained(call: StageCall, bundles: list[list[bytes]]) -> Iterator[bytes]:
    for slot, received in enumerate(bundles):
        yield from call(slot, received)


def _given_back(last_slots: int) -> Iterator[bytes]:
    piece = Piece(kind=Kind.TOO_LARGE, level=END, slot=0, edge=0, sender=0, payload=b"")
    if last_slots:
        yield bytes(8)  # slot 0
    yield pack([piece])
