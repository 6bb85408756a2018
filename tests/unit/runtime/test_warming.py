from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import cloudpickle
import pytest

from updraft.runtime.reports import Report
from updraft.runtime.stage import WarmCall
from updraft.runtime.whole import reading_share


@dataclass(frozen=True)
class Sent:
    value: bytes


def report(level: int, wall_s: float) -> Report:
    return Report(level=level, slot=0, operator=None, instance=None, worker="1", pid=1, wall_s=wall_s)


def test_a_worker_that_warms_up_reads_all_and_says_that_it_is_ready() -> None:
    elements = iter([b"row", b"row"])
    call = WarmCall("warming-1", Sent(cloudpickle.dumps("the program")))
    assert list(call(0, elements)) == [b"ready"]
    assert list(elements) == []


def test_a_rehearsed_exchange_has_an_empty_bundle_for_every_slot() -> None:
    call = replace(WarmCall("warming-2", Sent(cloudpickle.dumps("the program"))), slots=2)
    assert list(call(0, iter(()))) == [struct.pack("!q", 0), b"", struct.pack("!q", 1), b""]


def test_reading_is_the_sources_part_of_a_batch() -> None:
    assert reading_share([report(0, 0.1), report(0, 0.1), report(1, 1.8)]) == pytest.approx(0.1)
    assert reading_share([report(0, 0.2), report(1, 0.2)]) is None  # a quiet time tells nothing
    assert reading_share([]) is None
