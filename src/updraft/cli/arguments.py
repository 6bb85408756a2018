"""What is typed after a command that changes a running topology: `[APP] op=4 op2=2`, `[APP] op:7,8`, `[APP] WORKER`.

APP may be left out when one topology runs. A pair has `=` or `:`, which no topology's name has, so it is never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from updraft.errors import UpdraftError


def parse_rescale(words: Sequence[str]) -> tuple[str | None, dict[str, int]]:
    """APP and OP=N pairs; UpdraftError lists every word that is none."""
    app, pairs = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    wanted: dict[str, int] = {}
    wrong: list[str] = []
    for pair in pairs:
        operator, _, count = pair.partition("=")
        number = count.strip()
        if not operator.strip() or not (number.isascii() and number.isdigit() and 0 < len(number) < 10):
            wrong.append(f"'{pair}' is not OP=N")
        elif operator.strip() in wanted:
            wrong.append(f"operator '{operator.strip()}' is given twice")
        else:
            wanted[operator.strip()] = int(number)
    if not pairs:
        wrong.append("no operator is given")
    if wrong:
        raise UpdraftError(f"{'; '.join(wrong)}; write OP=N, such as: updraft rescale APP count=4 top=2")
    return app, wanted


def parse_move(words: Sequence[str]) -> tuple[str | None, str, tuple[int, ...]]:
    """APP, operator and tasks."""
    from updraft.control.steps import parse_ranges

    example = "write OP:TASKS, such as: updraft move APP count:7,8 --to 2"
    if len(words) not in (1, 2):
        raise UpdraftError(f"one operator and its tasks can be moved at a time, not {len(words)}; {example}")
    operator, colon, tasks = words[-1].partition(":")
    if not operator or not colon:
        raise UpdraftError(f"'{words[-1]}' is not OP:TASKS; {example}")
    try:
        return (words[0] if len(words) == 2 else None), operator, parse_ranges(tasks)
    except ValueError as error:
        raise UpdraftError(f"'{words[-1]}': {error}; {example}") from error


def parse_drain(words: Sequence[str]) -> tuple[str | None, str]:
    """APP and worker."""
    if len(words) not in (1, 2) or not words[-1]:
        raise UpdraftError("write APP and a worker's id, such as: updraft drain APP 2")
    return (words[0] if len(words) == 2 else None), words[-1]
