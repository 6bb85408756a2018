"""A file of JSON objects, one per line, that only grows at its end and stays small: what a crash tears costs one line.

A file that has grown too large becomes `FILE.1`, and so on; the oldest goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class JsonLines:
    """One file and its predecessors; one process writes it, one thread at a time."""

    def __init__(self, path: Path, *, max_bytes: int = 1_000_000, keep: int = 3) -> None:
        if keep < 1 or max_bytes < 1:
            raise ValueError("a journal keeps at least one older file, and at least one byte in each")
        self.path = path
        self._max_bytes = max_bytes
        self._keep = (
            keep  # older files beside the current one; with none the newest numbers could be forgotten
        )

    def append(self, value: Mapping[str, Any]) -> None:
        """Write one object to the disk; OSError if that fails."""
        line = json.dumps(value, separators=(",", ":"), default=str).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        size = self.path.stat().st_size if self.path.exists() else 0
        if size and size + len(line) > self._max_bytes:
            self._rotate()
            size = 0
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # What a crash tore off must not swallow this line too.
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            while line:
                line = line[os.write(descriptor, line) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def newest(self) -> Iterator[dict[str, Any]]:
        """All objects, the last one first; what is torn or no object is left out."""
        for path in (self.path, *(self._older(number) for number in range(1, self._keep + 1))):
            try:
                lines = path.read_bytes().splitlines()
            except (FileNotFoundError, NotADirectoryError):
                continue
            for line in reversed(lines):
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    yield value

    def _rotate(self) -> None:
        for number in range(self._keep - 1, 0, -1):
            if self._older(number).exists():
                self._older(number).replace(self._older(number + 1))
        self.path.replace(self._older(1))

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
