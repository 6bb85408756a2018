"""Names that are safe as directory names, metric labels and column prefixes, and automatic ones.

State reattaches *by operator name*. An automatic name is the label of the operator ("count", "sum", the
function's or the class's name) with "-2", "-3", ... for further operators of the same label, in the order in
which they were written. Adding an operator of another label, or one of the same label further down, changes
no name; adding one of the same label further up does. So a stateful operator whose state must survive edits
of the program should be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SAFE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LONGEST = 64

# Entries of a checkpoint directory, and words that read as "no" or "every" operator in commands and logs.
RESERVED = frozenset({"updraft", "spark", "segments", "commits", "lock", "all", "none"})


def name_problem(name: object) -> str | None:
    """Why `name` cannot be a name, with the remedy; None if it can."""
    if not isinstance(name, str):
        return f"a name must be a string, not {type(name).__name__}"
    if not _SAFE.fullmatch(name):
        return f"use a letter followed by at most {_LONGEST - 1} letters, digits, '_' or '-'"
    if name.lower() in RESERVED:
        return f"'{name}' is reserved (reserved: {', '.join(sorted(RESERVED))}); choose another name"
    return None


def safe_label(wanted: str, otherwise: str) -> str:
    """`wanted` if it can be a name (a lambda's cannot), else `otherwise`."""
    return otherwise if name_problem(wanted) else wanted


def automatic_names(labels: Iterable[tuple[int, str]], taken: Iterable[str]) -> Mapping[int, str]:
    """A unique name, whatever the case, for every (record id, label) in this order, avoiding `taken`."""
    used = {name.lower() for name in taken}
    names: dict[int, str] = {}
    for record, label in labels:
        name, number = label, 1
        while name.lower() in used:
            number += 1
            suffix = f"-{number}"
            name = label[: _LONGEST - len(suffix)] + suffix
        used.add(name.lower())
        names[record] = name
    return names


def duplicates(names: Iterable[str]) -> tuple[str, ...]:
    """Names that occur more than once, ignoring case as the directories of some file systems do."""
    seen: set[str] = set()
    twice: dict[str, str] = {}
    for name in names:
        folded = name.lower()
        if folded in seen:
            twice.setdefault(folded, name)
        seen.add(folded)
    return tuple(twice.values())
