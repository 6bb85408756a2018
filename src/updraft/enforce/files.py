"""The only code that touches cgroup files. A write that the kernel refuses raises at once, not when a buffer is flushed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """A cgroup directory tree. Files in a group come and go with it; they are the kernel's."""

    def make(self, group: Path) -> None: ...

    def remove(self, group: Path) -> None: ...

    def read(self, file: Path) -> str: ...

    def write(self, file: Path, text: str) -> None: ...

    def groups(self, parent: Path) -> list[Path]: ...


class KernelFiles:
    """The real tree."""

    def make(self, group: Path) -> None:
        group.mkdir()

    def remove(self, group: Path) -> None:
        group.rmdir()

    def read(self, file: Path) -> str:
        return file.read_text()

    def write(self, file: Path, text: str) -> None:
        descriptor = os.open(file, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def groups(self, parent: Path) -> list[Path]:
        return sorted(path for path in parent.iterdir() if path.is_dir())
