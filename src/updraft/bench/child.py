"""The process of one side: `python -m updraft.bench.child MODULE:FUNCTION REQUEST.json RESULT.json`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main(function: str, asked: str, answered: str) -> None:
    """Answer one request."""
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(json.loads(Path(asked).read_text()))
    Path(answered).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:4])
