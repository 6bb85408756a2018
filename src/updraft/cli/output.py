"""What commands say and where: results on standard output, everything for people's eyes on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console
from rich.text import Text


def notes() -> Console:
    """For progress and messages; made anew so that tests and redirections are respected."""
    return Console(stderr=True, highlight=False)


def results() -> Console:
    return Console(highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """A remark for people, never broken into lines by us: paths and URLs are copied from it."""
    notes().print(Text(message), soft_wrap=True)


def complain(message: str) -> None:
    # As Text: a message may hold square brackets that are no markup.
    notes().print(Text(message, style="red"), soft_wrap=True)


def write_json(value: Any) -> None:
    """One JSON document on one line of standard output."""
    sys.stdout.write(json.dumps(plain(value), default=str) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """Dataclasses and read-only mappings as what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key: plain(item) for key, item in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value
