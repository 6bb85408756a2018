"""Once: after the batch; twice: now."""

from __future__ import annotations

import os
import signal
import threading

from updraft.runtime.stopping import Stopper, stopper


def test_one_signal_stops_two_abort_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopper(None) as asked:
        assert not asked.wanted
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.wanted
        assert not asked.aborted
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.aborted
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_callers_event_stops_and_never_aborts() -> None:
    event = threading.Event()
    with stopper(event) as asked:
        event.set()
        assert asked.wanted
        assert not asked.aborted


def test_other_threads_have_no_signals() -> None:
    found: list[Stopper] = []

    def elsewhere() -> None:
        with stopper(None) as asked:
            found.append(asked)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert not found[0].wanted
