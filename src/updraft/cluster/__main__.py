"""`python -m updraft.cluster SETTINGS-JSON`: a supervisor in the background; only `local.up` starts it so."""

from __future__ import annotations

import json
import os
import sys

from updraft.cluster.supervisor import Supervisor, from_wire, name_taken
from updraft.errors import ClusterError


def main(argument: str) -> int:
    settings = from_wire(json.loads(argument))
    try:
        # The name is taken before the fork, so that the starter learns at once if it is not free.
        with name_taken(settings):
            # Leave the starter's family and session: neither its end nor its terminal's signals may reach us.
            if os.fork() > 0:
                os._exit(0)
            os.setsid()
            Supervisor(settings).run()
    except ClusterError as error:
        # After the fork the starter reads it from the record, and this line is for readers of the log.
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
