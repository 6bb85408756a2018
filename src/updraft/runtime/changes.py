"""Takes requests for changes, one at a time, and knows the last ones. `preparing.py` carries them out."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from updraft.control import (
    ChangeRecord,
    ChangeRefused,
    ChangeTicket,
    Outcome,
    Preview,
    Request,
    UnknownChange,
)
from updraft.plan import Plan, strategy_named
from updraft.plan.preparation import PREPARING, Migration, Phase
from updraft.plan.protocol import BatchCommitted, Cancel
from updraft.runtime.change import Change
from updraft.runtime.course import Course
from updraft.runtime.preparing import IDLE_S, Preparing

log = logging.getLogger("updraft.live")
_KEPT = 50  # changes that `change()` still knows


class Changes:
    """Whoever asks does so on a thread of their own; each change that begins gets another."""

    def __init__(
        self, course: Course, preparing: Preparing, *, preview: Callable[[Request], Preview]
    ) -> None:
        self._course = course
        self._preparing = preparing
        self._preview = preview
        self._asked = threading.Lock()  # one request at a time
        self._known: deque[Change] = deque(maxlen=_KEPT)
        self._thread: threading.Thread | None = None

    def base(self) -> Plan:
        """The plan that a new request changes: the last one of the change under way, else the one in effect."""
        change = self._course.change
        if change is not None and change.outcome is Outcome.RUNNING:
            last = change.plans[-1]
            return replace(last, version=max(last.version, self._course.plan.version))
        return self._course.plan

    def apply(self, request: Request, *, who: str, by_hand: bool = True) -> ChangeTicket:
        """Begin a change; one in preparation is superseded by it, and its target is where this one starts from. Not so one
        that was asked for by hand: the policy, which looked before that came, may not supersede it."""
        course = self._course
        with self._asked:
            if course.closed.is_set():
                raise ChangeRefused(["the run is about to end"])
            before = course.change
            if before is not None and before.by_hand and not by_hand:
                raise ChangeRefused([f"change {before.id} was asked for by hand and is not over yet"])
            if before is not None and before.phase is Phase.PROMOTED:
                self._conclude(before)
                before = course.change
            preview = self._preview(request)
            for reason in preview.reasons:
                log.info("%s", reason)
            with course.turn:
                change = Change(
                    id=course.next_id(),
                    who=who,
                    request=request,
                    preview=preview,
                    current=course.plan,
                    plans=tuple(strategy_named(request.strategy)(course.plan, preview.target)),
                    started_at=time.time(),
                    by_hand=by_hand,
                )
                inherited: Migration | None = None
                if before is not None and before.outcome is Outcome.RUNNING:
                    inherited = self._preparing.supersede(before, change)
                course.change = change
                self._known.append(change)
                course.write(change)
            self._thread = threading.Thread(
                target=self._preparing.prepare,
                args=(change, inherited),
                name=f"updraft-change-{change.id}",
                daemon=True,
            )
            self._thread.start()
            return ChangeTicket(change_id=change.id, preview=preview)

    def _conclude(self, change: Change) -> None:
        """A switch is over with the first commit after it; without batches nobody will come to say so."""
        deadline = time.monotonic() + 1.0
        while change.phase is Phase.PROMOTED and time.monotonic() < deadline:
            time.sleep(IDLE_S)
        with self._course.turn:
            if change.migration is not None and change.migration.phase is Phase.PROMOTED:
                batch = change.migration.promoted_at or 0
                self._preparing.tell(change, BatchCommitted(batch=batch))
        if change.target is change.plans[-1]:
            change.over.wait(10.0)

    def cancel(self, *, who: str) -> Mapping[str, Any]:
        """Give the change in preparation up."""
        with self._course.turn:
            change = cancellable(self._course.change)
            if change.migration is None:
                self._preparing.end(change, Outcome.CANCELLED, f"cancelled by {who}")
            else:
                self._preparing.tell(change, Cancel(reason=f"cancelled by {who}"))
            return change.describe()

    def change(self, change_id: int) -> Mapping[str, Any]:
        """One change, running or ended."""
        return self._find(change_id).describe()

    def wait(self, change_id: int, timeout_s: float | None = None) -> Mapping[str, Any]:
        """`change`, once it has ended (or the time is up)."""
        change = self._find(change_id)
        change.over.wait(timeout_s)
        return change.describe()

    def _find(self, change_id: int) -> Change:
        for change in tuple(self._known):  # another one may begin meanwhile
            if change.id == change_id:
                return change
        raise UnknownChange(f"there is no change {change_id}")

    def by_hand_s(self) -> float | None:
        """When somebody last changed the run by hand (unix seconds); None: nobody did."""
        return max((at_s for one in tuple(self._known) if (at_s := one.hand_s) is not None), default=None)

    def last_ended(self) -> ChangeRecord | None:
        """The last change that was begun and is over."""
        ended = [one for one in tuple(self._known) if one.outcome is not Outcome.RUNNING]
        return ended[-1].record() if ended else None

    def close(self) -> None:
        """The run ends (`Course.closed` is set): the change under way is given up."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout=10)
        self._preparing.give_up(Outcome.INTERRUPTED, "the run ended before the change did")


def cancellable(change: Change | None) -> Change:
    """The change, if it is still in preparation; ChangeRefused if not."""
    if change is None or change.outcome is not Outcome.RUNNING:
        raise ChangeRefused(["no change is in preparation"])
    if change.migration is not None and change.migration.phase not in PREPARING:
        raise ChangeRefused([f"change {change.id} is in effect already; ask for another one"])
    return change
