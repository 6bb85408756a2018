"""The driver process of a chaos run: `python -m updraft.chaos.driver REQUEST.json`. Its parent kills it at any time.

It prints a JSON line for every committed batch, and reads requests for plan changes, a JSON line each, from its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import updraft as ud
from updraft.chaos.workload import topology
from updraft.control import ChangeRefused
from updraft.control.requests import parse_request
from updraft.runtime.live import LiveTopology
from updraft.runtime.session import start_session


def main(asked: str) -> None:
    """Run until the parent closes the standard input."""
    request = json.loads(Path(asked).read_text())
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.streaming.minBatchesToRetain": "100000",  # the judge reads what each batch consisted of
    }
    session, log = start_session(
        "chaos", master=request["master"], conf=conf, hang_timeout_s=request["hang_timeout_s"]
    )
    stop = threading.Event()
    _tell({"app": session.sparkContext.applicationId, "log": str(log)})

    def listen(live: LiveTopology) -> None:
        for line in sys.stdin:
            try:
                body = json.loads(line)
                ticket = live.apply(parse_request(body["kind"], body), who="chaos")
                _tell({"change": ticket.change_id})
            except ChangeRefused as refusal:
                _tell({"refused": str(refusal)})
            except Exception as error:
                _tell({"refused": f"{type(error).__name__}: {error}"})
        stop.set()

    ran = ud.run(
        topology(request["input"], request["out"], request["replicas"]),
        spark=session,
        checkpoint=request["checkpoint"],
        checkpoint_interval=request["checkpoint_interval"],
        progress=lambda batch: _tell(_described(batch)),
        stop=stop,
        on_start=lambda live: threading.Thread(target=listen, args=(live,), daemon=True).start(),
        policy="static",  # only what the script asks for may change the plan
    )
    _tell({"ended": ran.reason, "last": ran.last_batch})
    session.stop()


def _described(batch: ud.BatchSummary) -> dict[str, Any]:
    assert batch.plan is not None
    return {"batch": batch.batch_id, "workers": batch.plan.workers(), "plan": batch.plan.version}


def _tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
