"""Run by test_session_log.py in a process of its own: runs that start Spark themselves, one after the other, in one JVM."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.spark.support import WORDS, counting, words

import updraft as ud
from updraft.runtime.session import start_session
from updraft.testing import ScriptedSource


def logs() -> dict[str, str]:
    found = Path(tempfile.gettempdir()).glob("updraft-log-*/spark.log")
    return {str(path): path.read_text() for path in sorted(found)}


def once(scratch: Path, fails: bool) -> dict[str, Any]:
    source = ScriptedSource(WORDS, [words(1)], directory=scratch / "script")

    def check(rows: pa.Table) -> pa.Table:
        if fails:
            raise ValueError("not these words")
        return rows

    app = ud.Topology("once")
    app.source("words", source.frame).map(check, schema=WORDS).sink("out", ud.sinks.discard())
    try:
        result = ud.run(app, master="local[1]", until_idle=True, control=False)
    except ud.UpdraftError as error:
        return {"notes": getattr(error, "__notes__", []), "logs": logs()}
    return {"spark_log": result.spark_log, "logs": logs()}


def several(scratch: Path) -> dict[str, Any]:
    source = ScriptedSource(WORDS, [words(1)], directory=scratch / "script")
    app = counting(ud.sinks.discard())(source)
    ud.run_all([app], checkpoint=scratch, master="local[1]", until_idle=True, control=False)
    return {"logs": logs()}


def main() -> None:
    scratch = Path(sys.argv[1])
    found = {
        "well": once(scratch / "1", fails=False),
        "badly": once(scratch / "2", fails=True),
        "several": several(scratch / "3"),
        "well again": once(scratch / "4", fails=False),
    }
    session, log = start_session("mine", master="local[1]")
    found["mine"] = {"log": str(log), "logs": logs()}
    session.stop()
    (scratch / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
