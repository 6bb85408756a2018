"""Structured Streaming's own log inside a checkpoint: what each batch contains (`offsets`) and which are done (`commits`).

Winding it back makes Spark plan or hand out a batch again. Plans of later batches are kept aside until their turn
(`rewound-offsets`), so that a repeated batch has the rows it had: a sink may have them already under its number.
"""

from __future__ import annotations

import json

from updraft.state.files import Files

SPARK = "spark"
PLANNED = "offsets"
DONE = "commits"
ASIDE = "rewound-offsets"


class SparkLog:
    """Reads and winds back the log below a checkpoint's root."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def planned(self) -> list[int]:
        """Batches whose contents Spark has fixed, ascending."""
        return self._numbers(PLANNED)

    def done(self) -> list[int]:
        """Batches Spark has committed, ascending."""
        return self._numbers(DONE)

    def aside(self) -> list[int]:
        """Batches whose plans wait to be repeated, ascending."""
        return self._numbers(ASIDE)

    def time_ms(self, batch: int) -> int | None:
        """The time Spark gave a batch, None if the log does not say."""
        try:
            lines = self._files.read(f"{SPARK}/{PLANNED}/{batch}").decode().splitlines()
            return int(json.loads(lines[1])["batchTimestampMs"])
        except (FileNotFoundError, IndexError, KeyError, TypeError, ValueError):
            return None

    def problem(self, batch: int) -> str | None:
        """Why Spark could not go on after this batch, None if it can."""
        path = f"{SPARK}/{PLANNED}/{batch}"
        try:
            text = self._files.read(path).decode()
        except FileNotFoundError:
            return f"Spark's log has no {path}"
        except (OSError, ValueError) as error:
            return f"{path} cannot be read: {error}"
        return None if _is_plan(text) else f"{path} is damaged"

    def to_repeat(self, committed: int) -> range:
        """Batches to run again before new ones if the state is of batch `committed`: all that Spark has planned.

        Also the last one, which Spark had not committed: a sink may have its rows, so it must keep its boundaries. What a
        crash during repeating left aside counts as planned.
        """
        aside = self.aside()
        if max([*self.done(), *aside], default=-1) <= committed:
            return range(0)  # nothing but perhaps one planned batch, which Spark itself will run again
        return range(committed + 1, max([*self.planned(), *aside]) + 1)

    def rewind_to(self, batch: int) -> None:
        """Make the log say that `batch` is planned but not done; later plans go aside."""
        aside = set(self.aside())
        for number in self.done():
            if number >= batch:
                self._delete(DONE, number)
        self._set_aside(batch, aside)
        if batch in aside:
            self._delete(PLANNED, batch)
            data = self._files.read(f"{SPARK}/{ASIDE}/{batch}")
            self._files.write(f"{SPARK}/{PLANNED}/{batch}", data)

    def end_with(self, batch: int) -> range:
        """Make the log say that `batch` is the last one done; later plans go aside. Returns the batches to repeat.

        From the first plan that is missing or damaged on, plans are given up: Spark cuts that input into batches anew.
        """
        for number in self.done():
            if number > batch:
                self._delete(DONE, number)
        self._set_aside(batch, set(self.aside()))
        aside = set(self.aside())
        usable = batch
        while usable + 1 in aside and self._is_aside_whole(usable + 1):
            usable += 1
        for number in aside:
            if number <= batch or number > usable:
                self._delete(ASIDE, number)
        return range(batch + 1, usable + 1)

    def forget_aside(self, batch: int) -> None:
        """A batch was repeated: Spark's own log has it again."""
        self._delete(ASIDE, batch)

    def forget(self, batches: range) -> None:
        """Delete all trace of some batches that nobody will go back to."""
        for number in batches:
            self._delete(PLANNED, number)
            self._delete(DONE, number)

    def _set_aside(self, after: int, aside: set[int]) -> None:
        for number in self.planned():
            if number <= after:
                continue
            # A plan kept aside is the one that was run; what Spark has planned since then was never begun.
            if number not in aside:
                data = self._files.read(f"{SPARK}/{PLANNED}/{number}")
                self._files.write(f"{SPARK}/{ASIDE}/{number}", data)
            self._delete(PLANNED, number)

    def _is_aside_whole(self, batch: int) -> bool:
        try:
            return _is_plan(self._files.read(f"{SPARK}/{ASIDE}/{batch}").decode())
        except ValueError:
            return False

    def _numbers(self, log: str) -> list[int]:
        return sorted(int(name) for name in self._files.list(f"{SPARK}/{log}") if name.isdigit())

    def _delete(self, log: str, number: int) -> None:
        self._files.delete(f"{SPARK}/{log}/{number}")
        # Hadoop's side file, if there is one, would call the next file of this name damaged.
        self._files.delete(f"{SPARK}/{log}/.{number}.crc")


def _is_plan(text: str) -> bool:
    """A version line, metadata as JSON, and at least one source's offset."""
    lines = text.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        return False
    try:
        return isinstance(json.loads(lines[1]), dict)
    except ValueError:
        return False
