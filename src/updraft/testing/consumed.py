"""Which input files a batch consisted of, as Spark's own log in the checkpoint says.

`maxFilesPerTrigger=1` does not mean one file a batch: the file source notes a new file in a log of its own before the batch
that takes it is planned, and if the driver dies between the two, the next batch takes that file and one more. A judge that
counted files would call that a mistake.
"""

from __future__ import annotations

import json
from pathlib import Path


def files_by_batch(checkpoint: Path) -> list[tuple[Path, ...]]:
    """Of a topology with one source of local files, the files of batches 0, 1, 2, …, as far as they are planned.

    Spark forgets old batches: set `spark.sql.streaming.minBatchesToRetain` high enough where more than 100 are run.
    """
    spark = checkpoint / "spark"
    taken: dict[int, dict[str, None]] = {}
    for log in sorted((spark / "sources" / "0").glob("[0-9]*")):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            taken.setdefault(entry["batchId"], {})[entry["path"]] = None
    found: list[tuple[Path, ...]] = []
    before = -1
    for plan in sorted((spark / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        if int(plan.name) != len(found):
            raise ValueError(f"Spark has forgotten what batch {len(found)} consisted of")
        last = int(json.loads(plan.read_text().splitlines()[2])["logOffset"])
        names = [name for offset in range(before + 1, last + 1) for name in taken.get(offset, {})]
        found.append(tuple(Path(name.removeprefix("file://")) for name in names))
        before = last
    return found
